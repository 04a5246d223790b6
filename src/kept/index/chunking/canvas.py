"""Cuts a canvas of Obsidian into chunks: the text of each card, and the labels of groups. Its other data is no text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kept.base.records import Chunk
from kept.index.chunking.markdown import ChunkSize, CutNote, chunk_markdown
from kept.index.chunking.properties import NO_PROPERTIES, NO_REFERENCES, NoteProperties

MAX_CARDS = 10_000


def cut_canvas(text: str, size: ChunkSize) -> CutNote:
    """Return the chunks of a canvas. Each cites the line of the file that has its card."""
    try:
        tree = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        return CutNote([], NoteProperties(warning="not a canvas: it is not valid JSON"), NO_REFERENCES)
    cards = tree.get("nodes") if isinstance(tree, dict) else None
    chunks = [*_cut_cards(text, cards[:MAX_CARDS], size)] if isinstance(cards, list) else []
    return CutNote(chunks, NO_PROPERTIES, NO_REFERENCES)


def _cut_cards(text: str, cards: list[Any], size: ChunkSize) -> Iterator[Chunk]:
    at, line = 0, 1
    for card in cards:
        if not isinstance(card, dict):
            continue
        # Cards are in the order of the file, so each is looked for after the one before.
        start = text.find(json.dumps(card.get("id"), ensure_ascii=False), at)
        if start >= 0:
            at, line = start, line + text.count("\n", at, start)
        card_text = next((card[key] for key in ("text", "label") if isinstance(card.get(key), str)), "")
        for chunk in chunk_markdown(card_text, size=size):
            yield replace(chunk, start_line=line, end_line=line)
