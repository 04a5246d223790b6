"""Cuts the utterances of a conversation into chunks.

A chunk is one message: a question and its answer are separate, and the search joins them again when it shows one. A
long message is cut at its paragraphs, lines or words. The output of a tool is only context. A chunk is also found by
the two utterances before and after it, at a lower weight. It is embedded alone, so that adding to a conversation embeds
only the addition.

A chunk depends on its message and the neighbours, and on nothing else. So a conversation that has grown can be cut from
the last settled line on, and gives the same chunks as when it is cut from the beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kept.base.values import frozen

if TYPE_CHECKING:  # a search needs only the version below
    from kept.sessions.spoken import Utterance

# Increase it when the same transcript would be read or cut differently, so that existing indexes are rebuilt.
TRANSCRIPT_CHUNKER_VERSION = 6

MAX_CHUNK_CHARS = 1_000
# Utterances before a chunk, and after it, that are its context.
CONTEXT_UTTERANCES = 2
# Length to which each of them is cut: a chunk should be found for its own words.
CONTEXT_CHARS = 300


# Put before a piece that continues a long message.
CONTINUED = "… "


@frozen
class UtteranceChunk:
    """An utterance, or a piece of a long one."""

    utterance: Utterance
    text: str
    """Text that is shown and cited: ``Utterance.shown``, or its label with a part of its text."""
    embed_text: str
    """Text that is embedded and found by word: speaker and words, without the time, which no query looks for."""
    context: str


@frozen
class Settled:
    """Position from which indexing resumes when a transcript has grown: the last line whose chunks are final, and the
    line to read from to cut the lines after it."""

    line: int
    resume_line: int


def chunk_utterances(utterances: Sequence[Utterance], *, after_line: int = 0) -> list[UtteranceChunk]:
    """Return the chunks of all utterances after a line. The earlier ones, and those of tools, only serve as context."""
    return [
        UtteranceChunk(utterance, text, embed_text, context)
        for at, utterance in enumerate(utterances)
        if utterance.line > after_line and not utterance.is_context
        for context in [_context(utterances, at)]
        for text, embed_text in _pieces_of(utterance)
    ]


def find_settled(utterances: Sequence[Utterance], *, after_line: int = 0) -> Settled | None:
    """Return the last line whose chunks no later line can change, or None if there is none after ``after_line``.

    The last utterances do not count: the next ones to be added will be their context.
    """
    final = utterances[:-CONTEXT_UTTERANCES]
    if not final or final[-1].line <= after_line:
        return None
    return Settled(final[-1].line, resume_line=final[-CONTEXT_UTTERANCES:][0].line)


# cutting


def _pieces_of(utterance: Utterance) -> Iterator[tuple[str, str]]:
    """Yield the shown and the embedded text of each piece. Every piece has its speaker and time."""
    if len(utterance.shown) <= MAX_CHUNK_CHARS:
        yield utterance.shown, utterance.with_speaker
        return
    label = utterance.label
    for number, piece in enumerate(_cut(utterance.shown)):
        text = piece if number == 0 else f"{label}{CONTINUED}{piece}"
        yield text, f"{utterance.speaker}: {piece.removeprefix(label)}"


def _cut(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        rest = len(text) - start
        end = len(text) if rest <= MAX_CHUNK_CHARS else _boundary(text, start, start + MAX_CHUNK_CHARS)
        if piece := text[start:end].strip():
            yield piece
        start = end


def _boundary(text: str, start: int, end: int) -> int:
    """Return where to cut: after the last paragraph, line or word in the second half, or at ``end``."""
    for separator in ("\n\n", "\n", " "):
        at = text.rfind(separator, start + (end - start) // 2, end)
        if at > 0:
            return at + len(separator)
    return end


# context


def _context(utterances: Sequence[Utterance], at: int) -> str:
    """Return the utterances before and after one, as far as they belong to the same conversation."""
    first, end = at, at + 1
    while first > 0 and not utterances[first].starts_conversation and at - first < CONTEXT_UTTERANCES:
        first -= 1
    while end < len(utterances) and not utterances[end].starts_conversation and end - at <= CONTEXT_UTTERANCES:
        end += 1
    around = (*utterances[first:at], *utterances[at + 1 : end])
    return "\n".join(utterance.with_speaker[:CONTEXT_CHARS] for utterance in around)
