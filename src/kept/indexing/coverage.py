"""Whether a search can find what a conversation says, line by line."""

from __future__ import annotations

import os

from kept.indexing.conversation import find_turn
from kept.indexing.sources import CITED_FOLDER
from kept.sessions.transcript import Transcript, parse_line
from kept.store.generation import Generation


def find_unindexed(generation: Generation, folder: str, path: str, first_line: int, last_line: int) -> tuple[int, ...]:
    """The lines of a transcript that say something and are in no chunk. ``path`` is as a search cites it."""
    spans = generation.spans("sessions", path, first_line, last_line)
    covered = {line for start, end in spans for line in range(max(start, first_line), min(end, last_line) + 1)}
    transcript = Transcript(os.path.join(folder, path.removeprefix(CITED_FOLDER)))
    missing = []
    for raw in transcript.iter_raw():
        if raw.number > last_line:
            break
        if raw.number >= first_line and raw.number not in covered and find_turn(parse_line(raw)) is not None:
            missing.append(raw.number)
    return tuple(missing)
