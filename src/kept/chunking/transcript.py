"""Turns of a conversation to chunks.

The unit is a question with its answer: a chunk begins where a person speaks after somebody else did. What is longer
than a chunk may be is parted between messages, and a long message at its paragraphs, lines or words. A chunk is found
by the two turns before and after it as well, at a lower weight; it is embedded with those before it only, so that
adding to a conversation changes nothing that was embedded but its end.

Where a chunk begins follows from the turns behind that place alone. So a conversation that has grown can be cut from
the last settled place on, and gives the same chunks as when it is cut from its beginning.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Literal

from kept.values import frozen

TRANSCRIPT_CHUNKER_VERSION = 1
"""Raised when the same turns would be cut differently, so that existing indexes are rebuilt."""

MAX_CHUNK_CHARS = 2_000
CONTEXT_TURNS = 2
CONTEXT_CHARS = 300
"""Of each neighbouring turn; a chunk should be found for what it says."""
_LEAST_ROOM = 400
"""A long message begins in the chunk of the question if at least so much of it fits in."""

Kind = Literal["user", "assistant", "tool", "system", "summary"]


@frozen
class Turn:
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
class TurnChunk:
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


def show_turns(turns: Sequence[Turn]) -> str:
    return "\n".join(turn.shown for turn in turns)


def chunk_turns(turns: Sequence[Turn], *, after_line: int = 0) -> list[TurnChunk]:
    """Turns up to ``after_line`` are in chunks already, and serve as context only."""
    first = next((at for at, turn in enumerate(turns) if turn.line > after_line), len(turns))
    return [_chunk(turns, draft) for draft in _drafts(turns, first)]


def find_settled(turns: Sequence[Turn], chunks: Sequence[TurnChunk]) -> Settled | None:
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
    """Turns ``first`` to ``last``. ``parts`` is what is shown of them, and the same without the times."""

    first: int
    last: int
    parts: tuple[tuple[str, str], ...]


def _drafts(turns: Sequence[Turn], first: int) -> Iterator[_Draft]:
    begin, size = first, 0
    parts: list[tuple[str, str]] = []
    for at in range(first, len(turns)):
        turn = turns[at]
        needed = len(turn.shown) + bool(parts)
        too_long = len(turn.shown) > MAX_CHUNK_CHARS
        fits = size + needed <= MAX_CHUNK_CHARS or (too_long and MAX_CHUNK_CHARS - size >= _LEAST_ROOM)
        if parts and (_opens(turns, at) or not fits):
            yield _Draft(begin, at - 1, tuple(parts))
            begin, parts, size = at, [], 0
        if not too_long:
            parts.append((turn.shown, turn.said))
            size += len(turn.shown) + (len(parts) > 1)
            continue
        yield from _cut(turn, at, begin, parts, room=MAX_CHUNK_CHARS - size - bool(parts))
        begin, parts, size = at + 1, [], 0
    if parts:
        yield _Draft(begin, len(turns) - 1, tuple(parts))


def _opens(turns: Sequence[Turn], at: int) -> bool:
    """Whether a turn begins a chunk whatever its length."""
    turn, before = turns[at], turns[at - 1]
    asks = turn.kind == "user" and before.kind != "user"
    return turn.begins or asks or "summary" in (turn.kind, before.kind)


def _cut(turn: Turn, at: int, begin: int, parts: list[tuple[str, str]], *, room: int) -> Iterator[_Draft]:
    """A turn that is longer than a chunk: its first piece with what stands before it, the others by themselves."""
    pieces = _pieces(turn.shown, room)
    label = turn.shown.removesuffix(turn.text)
    shown = next(pieces)
    yield _Draft(begin, at, (*parts, (shown, f"{turn.speaker}: {shown.removeprefix(label)}")))
    for piece in pieces:
        yield _Draft(at, at, ((piece, f"{turn.speaker}: {piece}"),))


def _pieces(text: str, room: int) -> Iterator[str]:
    start = 0
    while len(text) - start > room:
        end = _edge(text, start, start + room)
        piece = text[start:end].strip()
        if piece:
            yield piece
        start, room = end, MAX_CHUNK_CHARS
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


def _chunk(turns: Sequence[Turn], draft: _Draft) -> TurnChunk:
    first, last = turns[draft.first], turns[draft.last]
    before, after = _before(turns, draft.first), _after(turns, draft.last)
    words = "\n".join(said for _, said in draft.parts)
    return TurnChunk(
        start_line=first.line,
        end_line=last.line,
        text="\n".join(shown for shown, _ in draft.parts),
        words=words,
        context="\n".join(_clipped(turn) for turn in (*before, *after)),
        embed_text="\n".join((*_embedded_context(before, len(words)), words)),
        day=first.day,
        timestamp_ms=first.timestamp_ms,
    )


def _before(turns: Sequence[Turn], at: int) -> list[Turn]:
    found: list[Turn] = []
    while at > 0 and not turns[at].begins and len(found) < CONTEXT_TURNS:
        at -= 1
        found.insert(0, turns[at])
    return found


def _after(turns: Sequence[Turn], at: int) -> list[Turn]:
    found: list[Turn] = []
    while at + 1 < len(turns) and not turns[at + 1].begins and len(found) < CONTEXT_TURNS:
        at += 1
        found.append(turns[at])
    return found


def _clipped(turn: Turn) -> str:
    return turn.said[:CONTEXT_CHARS]


def _embedded_context(before: Sequence[Turn], room: int) -> list[str]:
    """No more than the chunk says itself, the nearest first: a "thank you" does not mean what it was said for."""
    taken: list[str] = []
    for turn in reversed(before):
        piece = _clipped(turn)[:room]
        room -= len(piece)
        if piece:
            taken.insert(0, piece)
    return taken
