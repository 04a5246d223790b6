"""Turns of a conversation to chunks.

A chunk is what one message says: a question and its answer are told apart, and the search puts them together again when
it shows one. A long message is cut at its paragraphs, lines or words. A chunk is found by the two turns before and
after it as well, at a lower weight; it is embedded by itself, so that adding to a conversation embeds what was added.

What a chunk is follows from its message and those beside it. So a conversation that has grown can be cut from the
last settled place on, and gives the same chunks as when it is cut from its beginning.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Literal

from kept.values import frozen

TRANSCRIPT_CHUNKER_VERSION = 2
"""Raised when the same turns would be cut differently, so that existing indexes are rebuilt."""

MAX_CHUNK_CHARS = 1_000
CONTEXT_TURNS = 2
CONTEXT_CHARS = 300
"""Of each neighbouring turn; a chunk should be found for what it says."""

Kind = Literal["user", "assistant", "tool", "system", "summary"]


@frozen
class Utterance:
    """What one line of a transcript says, as it may be shown: redacted, shortened, not empty."""

    line: int
    kind: Kind
    speaker: str
    day: dt.date
    when: str
    timestamp_ms: int
    text: str
    begins: bool = False
    """Whether the conversation begins anew here: nothing before it is its context."""

    @property
    def said(self) -> str:
        return f"{self.speaker}: {self.text}"

    @property
    def shown(self) -> str:
        return f"[{self.when}] {self.said}"


@frozen
class UtteranceChunk:
    start_line: int
    end_line: int
    text: str
    """What is shown and cited: part of what ``show_turns`` makes of these lines."""
    words: str
    """The same without the times, which nobody looks for by word."""
    context: str
    embed_text: str
    day: dt.date
    timestamp_ms: int


@frozen
class Settled:
    """Up to where chunks are final, and the line to read again from for what comes behind."""

    line: int
    again_from: int


def show_turns(turns: Sequence[Utterance]) -> str:
    return "\n".join(turn.shown for turn in turns)


def chunk_turns(turns: Sequence[Utterance], *, after_line: int = 0) -> list[UtteranceChunk]:
    """Turns up to ``after_line`` are in chunks already, and serve as context only."""
    first = next((at for at, turn in enumerate(turns) if turn.line > after_line), len(turns))
    return [_chunk(turns, draft) for draft in _drafts(turns, first)]


def find_settled(turns: Sequence[Utterance], chunks: Sequence[UtteranceChunk]) -> Settled | None:
    """The last place between two chunks before which nothing changes, whatever is added behind."""
    if len(turns) <= CONTEXT_TURNS:
        return None
    context_from = turns[-CONTEXT_TURNS].line
    for at in range(len(chunks) - 2, -1, -1):
        line = chunks[at].end_line
        if line < context_from and line < chunks[at + 1].start_line:
            before = [turn.line for turn in turns if turn.line <= line]
            return Settled(line, before[-CONTEXT_TURNS:][0])
    return None


# cutting


@frozen
class _Draft:
    """One turn, or a piece of one: what is shown of it, and the same without the time."""

    at: int
    shown: str
    said: str


def _drafts(turns: Sequence[Utterance], first: int) -> Iterator[_Draft]:
    for at in range(first, len(turns)):
        turn = turns[at]
        if len(turn.shown) <= MAX_CHUNK_CHARS:
            yield _Draft(at, turn.shown, turn.said)
        else:
            yield from _cut(turn, at)


def _cut(turn: Utterance, at: int) -> Iterator[_Draft]:
    """A turn that is longer than a chunk. Who says it is looked for in every piece, and shown in the first."""
    label = turn.shown.removesuffix(turn.text)
    for piece in _pieces(turn.shown):
        yield _Draft(at, piece, f"{turn.speaker}: {piece.removeprefix(label)}")


def _pieces(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > MAX_CHUNK_CHARS:
        end = _edge(text, start, start + MAX_CHUNK_CHARS)
        piece = text[start:end].strip()
        if piece:
            yield piece
        start = end
    rest = text[start:].strip()
    if rest:
        yield rest


def _edge(text: str, start: int, end: int) -> int:
    """Where to cut before ``end``: behind a paragraph, a line or a word, or just there."""
    for sign in ("\n\n", "\n", " "):
        found = text.rfind(sign, start + (end - start) // 2, end)
        if found > 0:
            return found + len(sign)
    return end


# context


def _chunk(turns: Sequence[Utterance], draft: _Draft) -> UtteranceChunk:
    turn = turns[draft.at]
    around = (*_before(turns, draft.at), *_after(turns, draft.at))
    return UtteranceChunk(
        start_line=turn.line,
        end_line=turn.line,
        text=draft.shown,
        words=draft.said,
        context="\n".join(_clipped(other) for other in around),
        embed_text=draft.said,
        day=turn.day,
        timestamp_ms=turn.timestamp_ms,
    )


def _before(turns: Sequence[Utterance], at: int) -> list[Utterance]:
    found: list[Utterance] = []
    while at > 0 and not turns[at].begins and len(found) < CONTEXT_TURNS:
        at -= 1
        found.insert(0, turns[at])
    return found


def _after(turns: Sequence[Utterance], at: int) -> list[Utterance]:
    found: list[Utterance] = []
    while at + 1 < len(turns) and not turns[at + 1].begins and len(found) < CONTEXT_TURNS:
        at += 1
        found.append(turns[at])
    return found


def _clipped(turn: Utterance) -> str:
    return turn.said[:CONTEXT_CHARS]
