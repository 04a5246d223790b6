"""Exact matches: chunks with the query's literal text, such as a title, a name or a phrase, rank first.

The phrase is the whole query, or its quoted texts if there are any. Chunks that may have it are looked up separately,
so that no number of chunks with the same words in another order can crowd them out. Then their text is compared,
because SQLite knows words by their stems and ignores the characters between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from functools import cached_property, partial
from typing import TYPE_CHECKING

from kept.base.records import SOURCES, Filter, ScorePart
from kept.base.words.segment import fold, is_unspaced, name_parts_in, normalise
from kept.index.chunking.markdown import HEADING_JOIN, HEADING_MARKS, note_name
from kept.index.sqlite.phrases import every
from kept.index.sqlite.rows import ChunkRow
from kept.search.query import ParsedQuery, make_phrase
from kept.search.scores import Scored
from kept.search.weights import EXACT_FLOOR

if TYPE_CHECKING:
    from kept.index.sqlite.word_index import WordIndex

MAX_ROWS = 50
_MAX_TOKENS = 32
"""A longer query is not meant word for word."""

_PART = "exact"
_SPACE = re.compile(r"\s+")
_WORDS = re.compile(r"[^\W_]+")
_EDGES = " \t.,;:!?…'\"()[]{}<>“”„«»「」『』"


class Exactness(IntEnum):
    """Degree of an exact match, the most exact last."""

    WORDS = 1
    """The same words in the same order."""
    CHARACTERS = 2
    """The same words and punctuation."""
    TITLE = 3
    """The name of the note, a title or alias in its properties, or a heading."""


_REASONS = {
    Exactness.WORDS: "the words are here one after the other",
    Exactness.CHARACTERS: "it is here exactly as in the query",
    Exactness.TITLE: "it is the title",
}


class ExactMatch:
    """The texts of a query that are looked for word for word."""

    def __init__(self, query: ParsedQuery) -> None:
        self.texts = [plain for text in (query.quoted or (query.text,)) if (plain := _plain(text).strip(_EDGES))]
        phrases = [phrase for text in self.texts if (phrase := make_phrase(text)) is not None]
        self.phrases = [phrase for phrase in phrases if phrase.text.count(" ") < _MAX_TOKENS]
        self.is_usable = bool(self.texts) and len(self.phrases) == len(self.texts)
        # A plain word is in many texts. Several words, or a word with punctuation or digits, are specific.
        self.counts_in_text = bool(query.quoted) or any(
            not text.isalpha() or (not text.isascii() and sum(map(is_unspaced, text)) > 2) for text in self.texts
        )

    @cached_property
    def _patterns(self) -> list[re.Pattern[str]]:
        return [_pattern(text) for text in self.texts]

    @cached_property
    def _words(self) -> list[list[str]]:
        return [_WORDS.findall(text) for text in self.texts]

    def find_rows(self, words: WordIndex, filters: Filter) -> list[int]:
        """Return the chunks that may have it. The context of a chunk holds the titles above it."""
        if not self.is_usable:
            return []
        search = partial(words.best_rows, weights=(1.0, 1.0), limit=MAX_ROWS)
        phrases = tuple(term.phrase for term in self.phrases)
        rows = search(every(phrases), filters=filters) if self.counts_in_text else []
        if (not self.counts_in_text or len(rows) == MAX_ROWS) and "memory" in (filters.sources or SOURCES):
            rows = [*rows, *search(every(phrases, in_context=True), filters=replace(filters, sources=("memory",)))]
        return list(dict.fromkeys(rows))

    def compare(
        self, chunks: Iterable[ChunkRow], given_titles: Mapping[str, Sequence[str]] | None = None
    ) -> dict[int, Exactness]:
        """Return the exactness of each chunk that is an exact match, by row.

        ``given_titles`` has the titles and aliases in the properties of notes, by path.
        """
        titles = given_titles or {}
        levels = ((chunk.row, self._exactness(chunk, titles.get(chunk.path, ()))) for chunk in chunks)
        return {row: level for row, level in levels if level is not None}

    def _exactness(self, chunk: ChunkRow, given_titles: Sequence[str]) -> Exactness | None:
        text = _plain(chunk.text)
        titles = [*_titles(chunk), *map(_plain, given_titles)]
        if len(self.texts) == 1 and any(_WORDS.findall(title) == self._words[0] for title in titles):
            return Exactness.TITLE
        if not self.counts_in_text:
            return None
        if all(pattern.search(text) for pattern in self._patterns):
            return Exactness.CHARACTERS
        # The parts of names count as words: "user name" is in getUserName.
        words = f" {' '.join(_WORDS.findall(text))} | {name_parts_in(chunk.text).lower()} "
        if all(len(phrase) > 1 and f" {' '.join(phrase)} " in words for phrase in self._words):
            return Exactness.WORDS
        return None


def lift_exact(ranked: Sequence[Scored], exactness: Mapping[int, Exactness]) -> list[Scored]:
    """Put exact matches first, the most exact before the others, with scores no lower than those they pass."""
    if not exactness:
        return list(ranked)
    ordered = [scored for scored in ranked if scored.candidate.row not in exactness]
    for level in Exactness:
        best_score, best_relevance = (ordered[0].score, ordered[0].relevance) if ordered else (0.0, 0.0)
        score, relevance = max(best_score, EXACT_FLOOR), max(best_relevance, EXACT_FLOOR)
        lifted = [
            scored.plus(
                ScorePart(_PART, max(0.0, score - scored.score), _REASONS[level]),
                relevance=max(0.0, relevance - scored.relevance),
            )
            for scored in ranked
            if exactness.get(scored.candidate.row) == level
        ]
        ordered = lifted + ordered
    return ordered


def _plain(text: str) -> str:
    return _SPACE.sub(" ", fold(normalise(text)).lower())


def _pattern(text: str) -> re.Pattern[str]:
    """Return a pattern of the text that does not match inside a longer word. Unspaced scripts have no such edges."""
    starts, ends = (
        (character.isalnum() or character == "_") and not is_unspaced(character) for character in (text[0], text[-1])
    )
    return re.compile((r"(?<!\w)" if starts else "") + re.escape(text) + (r"(?!\w)" if ends else ""))


def _titles(chunk: ChunkRow) -> list[str]:
    """Return the titles of a chunk: the name of its note, the headings above it, and the headings in it."""
    if chunk.source != "memory":
        return []
    name = _plain(note_name(chunk.path))
    if not chunk.heading:
        return [name]
    headings = _plain(chunk.heading).split(HEADING_JOIN)
    lines = {_plain(HEADING_MARKS.sub("", line)).strip() for line in chunk.text.split("\n")}
    inside = [heading for heading in headings[:-1] if heading in lines]
    return [name, *inside, *(HEADING_JOIN.join(headings[at:]) for at in range(len(headings)))]
