"""What says exactly what was asked for stands first: a title, a name, a phrase.

A query is taken as a phrase from its first word to its last, or, where something is quoted, as what is quoted. Passages
that have it are looked up by themselves, so that no number of passages with the same words in another order can
crowd them out, and are then read: SQLite knows words by their stems and nothing about the signs between them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import IntEnum

from kept.chunking.folding import fold
from kept.chunking.identifiers import name_parts_in
from kept.chunking.markdown import note_name
from kept.chunking.segment import is_unspaced, normalise
from kept.records import SOURCES, Filter, ScorePart
from kept.search.fuse import Scored
from kept.search.query import ParsedQuery, Term, phrase_of
from kept.store.generation import ChunkRow
from kept.store.words import WordIndex

MAX_ROWS = 50
_LONGEST_TOKENS = 32
"""Nobody asks for a longer text word for word."""

FLOOR = 0.6
"""The least that an exact match scores. Above any threshold worth setting: it is what was asked for."""

_PART = "exact"
_SPACE = re.compile(r"\s+")
_WORDS = re.compile(r"[^\W_]+")
_EDGES = " \t.,;:!?…'\"()[]{}<>“”„«»「」『』"
_HEADING = re.compile(r"^\s{0,3}#{1,6}\s+|\s+#+\s*$")


class Exactness(IntEnum):
    """How exactly, the most exact last."""

    WORDS = 1
    SIGNS = 2
    TITLE = 3


_REASONS = {
    Exactness.WORDS: "the words stand here one after the other",
    Exactness.SIGNS: "it stands here as it was asked for",
    Exactness.TITLE: "it is the title",
}


class ExactMatch:
    """What a query asks for word for word."""

    def __init__(self, query: ParsedQuery) -> None:
        self.wanted = [plain for text in (query.quoted or (query.text,)) if (plain := _plain(text).strip(_EDGES))]
        self.phrases = [phrase for text in self.wanted if (phrase := _phrase(text)) is not None]
        self.is_usable = bool(self.wanted) and len(self.phrases) == len(self.wanted)
        self.counts_in_text = bool(query.quoted) or any(_is_more_than_a_word(text) for text in self.wanted)
        self._patterns = [_pattern(text) for text in self.wanted]
        self._tokens = [_WORDS.findall(text) for text in self.wanted]

    def find_rows(self, words: WordIndex, filters: Filter) -> list[int]:
        """Passages that may have it. As a title it is in the context of what stands below it."""
        if not self.is_usable:
            return []
        phrase = " AND ".join(one.expression for one in self.phrases)
        rows = self._rows(words, phrase, filters) if self.counts_in_text else []
        if (not self.counts_in_text or len(rows) == MAX_ROWS) and "memory" in (filters.sources or SOURCES):
            in_notes = replace(filters, sources=("memory",))
            rows += self._rows(words, f"context : ({phrase})", in_notes)
        return list(dict.fromkeys(rows))

    def _rows(self, words: WordIndex, expression: str, filters: Filter) -> list[int]:
        found, _ = words.match(expression, phrases=(), weights=(1.0, 1.0), limit=MAX_ROWS, filters=filters)
        return [match.row for match in found]

    def of(self, chunk: ChunkRow) -> Exactness | None:
        """How exactly a passage has it, if it has it."""
        text = _plain(chunk.text)
        if len(self.wanted) == 1 and any(_WORDS.findall(title) == self._tokens[0] for title in _titles(chunk)):
            return Exactness.TITLE
        if not self.counts_in_text:
            return None
        if all(pattern.search(text) for pattern in self._patterns):
            return Exactness.SIGNS
        # The parts of names count as words: "user name" is in getUserName.
        tokens = f" {' '.join(_WORDS.findall(text))} | {name_parts_in(chunk.text).lower()} "
        if all(len(wanted) > 1 and f" {' '.join(wanted)} " in tokens for wanted in self._tokens):
            return Exactness.WORDS
        return None


def lift_exact(ranked: Sequence[Scored], exact: Mapping[int, Exactness]) -> list[Scored]:
    """Puts what is exact before all else, at no lower a score than what it passes."""
    if not exact:
        return list(ranked)
    lifted: list[Scored] = [one for one in ranked if one.candidate.row not in exact]
    for level in Exactness:
        best, best_relevance = (lifted[0].score, lifted[0].relevance) if lifted else (0.0, 0.0)
        members = [one for one in ranked if exact.get(one.candidate.row) == level]
        lifted = [_lift(one, max(best, FLOOR), max(best_relevance, FLOOR), level) for one in members] + lifted
    return lifted


def _lift(one: Scored, score: float, relevance: float, level: Exactness) -> Scored:
    part = ScorePart(_PART, max(0.0, score - one.score), _REASONS[level])
    return one.plus(part, relevance=max(0.0, relevance - one.relevance))


def _plain(text: str) -> str:
    return _SPACE.sub(" ", fold(normalise(text)).lower())


def _phrase(text: str) -> Term | None:
    phrase = phrase_of(text)
    return phrase if phrase and phrase.text.count(" ") < _LONGEST_TOKENS else None


def _is_more_than_a_word(text: str) -> bool:
    """A single word may stand anywhere in many forms; several words, or a word with signs or digits in it, may not."""
    return not text.isalpha() or (not text.isascii() and sum(map(is_unspaced, text)) > 2)


def _pattern(text: str) -> re.Pattern[str]:
    """The text as it is, not as part of a longer word. Where there are no spaces, there is no telling."""
    before = r"(?<!\w)" if _is_spaced_word_sign(text[0]) else ""
    after = r"(?!\w)" if _is_spaced_word_sign(text[-1]) else ""
    return re.compile(before + re.escape(text) + after)


def _is_spaced_word_sign(sign: str) -> bool:
    return (sign.isalnum() or sign == "_") and not is_unspaced(sign)


def _titles(chunk: ChunkRow) -> list[str]:
    """What a passage is called: its note, the heading it stands under, and the headings that stand in it."""
    if chunk.source != "memory":
        return []
    name = _plain(note_name(chunk.path))
    if not chunk.heading:
        return [name]
    path = _plain(chunk.heading).split(" > ")
    lines = {_plain(_HEADING.sub("", line)).strip() for line in chunk.text.split("\n")}
    inside = [one for one in path[:-1] if one in lines]
    return [name, *inside, *(" > ".join(path[at:]) for at in range(len(path)))]
