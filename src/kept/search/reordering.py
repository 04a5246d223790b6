"""What changes the order of candidates after their evidence was added up: an exact match, the rest of a note, and a
model that reads the best passages.

Exact matches: chunks with the query's literal text, such as a title, a name or a phrase, rank first.

The phrase is the whole query, or its quoted texts if there are any. Chunks that may have it are looked up separately,
so that no number of chunks with the same words in another order can crowd them out. Then their text is compared,
because SQLite knows words by their stems and ignores the characters between them.

Judging a note as a whole: a long note may have the words of the query in different passages. Pure.

The evidence is what the pool has anyway: the title and the other headings, which are context of every passage, and all
passages of the note that are candidates. Only the words that its best passage lacks count, so a note of one passage
gains nothing. The confidence does not depend on it: words that are far apart meet by chance.

An answer often goes on in the next passage, or began in the one before. So a passage that touches a better one of the
same note comes nearer to it. The best passage of a note gains nothing by that, so the order of notes stays.
Grades stay too: `kept forget` takes what is likely, and must not take the fact beside it.

Reranking: a model reads the query with each of the best passages, as far as the time allows.

Its judgement is mixed into the score. Passages that it has not read, because the time was up or because they are not
among the best, keep their order after those that it has read.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from kept.base.records import SOURCES, Filter, ScorePart
from kept.base.remote_errors import EmbeddingError
from kept.base.words.segment import fold, is_unspaced, name_parts_in, normalise
from kept.index.chunking.markdown import HEADING_JOIN, HEADING_MARKS, note_name
from kept.index.sqlite.rows import ChunkRow
from kept.index.sqlite.word_index import every
from kept.search.candidates import Candidate, WeightedTerm
from kept.search.query import ParsedQuery, make_phrase
from kept.search.scores import Scored, rank
from kept.search.weights import BESIDE_BETTER_SHARE, EXACT_FLOOR, WHOLE_NOTE_SHARE

if TYPE_CHECKING:
    from kept.index.sqlite.word_index import WordIndex

MAX_ROWS = 50
_MAX_TOKENS = 32
"""A longer query is not meant word for word."""

_EXACT_PART = "exact"
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
                ScorePart(_EXACT_PART, max(0.0, score - scored.score), _REASONS[level]),
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


_WHOLE_NOTE_PART, _BESIDE_PART = "whole note", "next passage"
_MAX_LINES_BETWEEN = 1
"""Blank lines between two passages that touch."""


def judge_whole_notes(
    ranked: Sequence[Scored],
    terms: Sequence[WeightedTerm],
    *,
    text_share: float = 1.0,
    share: float = WHOLE_NOTE_SHARE,
) -> list[Scored]:
    """Add to the best passage of each note for the words of the query in its other passages, and rank again.

    ``text_share`` is the share of words in a score, and ``share`` the weight of those in other passages.
    """
    # Pairs of characters, which stand for words in scripts without spaces, meet by chance in a long note.
    idf = {weighted.term.text: weighted.idf for weighted in terms if weighted.term.kind not in ("pair", "prefix")}
    if not idf:
        return list(ranked)
    weight = share * text_share / sum(weighted.idf for weighted in terms)
    by_note: dict[str, list[Scored]] = {}
    for scored in ranked:
        if not scored.candidate.is_utterance:
            by_note.setdefault(scored.candidate.position[0], []).append(scored)
    judged: dict[int, Scored] = {}
    for best, *others in by_note.values():
        if others and (missing := _find_missing(best.candidate, [scored.candidate for scored in others])):
            gain = weight * sum(idf.get(text, 0.0) * share for text, share in missing.items())
            gain = min(gain, 1.0 - best.score)
            if gain > 0:
                part = ScorePart(_WHOLE_NOTE_PART, gain, f"other passages have {', '.join(missing)}")
                judged[best.candidate.row] = best.plus(part, relevance=min(gain, 1.0 - best.relevance))
    if not judged:
        return list(ranked)
    return rank(judged.get(scored.candidate.row, scored) for scored in ranked)


def _find_missing(best: Candidate, others: Sequence[Candidate]) -> dict[str, float]:
    """Return the words that other passages have and the best lacks, and the share of each that is missing."""
    shares = _word_shares(best)
    missing: dict[str, float] = {}
    for other in others:
        for text, share in _word_shares(other).items():
            more = share - shares.get(text, 0.0)
            if more > missing.get(text, 0.0):
                missing[text] = more
    return missing


def _word_shares(candidate: Candidate) -> Mapping[str, float]:
    """Return the words of the query that a passage has. One that another stands for is part of a word."""
    if not candidate.expansions:
        return dict.fromkeys(candidate.matched, 1.0)
    shares = {source: expansion.share for expansion in candidate.expansions for source in expansion.sources}
    shares.update(dict.fromkeys(candidate.matched, 1.0))
    return shares


def lift_neighbours(
    ranked: Sequence[Scored], chunks: Mapping[int, ChunkRow], *, share: float = BESIDE_BETTER_SHARE
) -> list[Scored]:
    """Bring each passage nearer to a better one that it touches in the same note, by a share of the distance."""
    by_note: dict[str, list[Scored]] = {}
    for scored in ranked:
        if not scored.candidate.is_utterance:
            by_note.setdefault(scored.candidate.position[0], []).append(scored)
    lifted: dict[int, Scored] = {}
    for passages in by_note.values():
        if len(passages) > 1:
            passages.sort(key=lambda scored: scored.candidate.position)
            for before, after in pairwise(passages):
                if _touch(chunks[before.candidate.row], chunks[after.candidate.row]):
                    low, high = sorted((before, after), key=lambda scored: scored.score)
                    _lift(low, high, share, lifted)
    if not lifted:
        return list(ranked)
    return rank(lifted.get(scored.candidate.row, scored) for scored in ranked)


def _touch(before: ChunkRow, after: ChunkRow) -> bool:
    return after.start_line <= before.end_line + _MAX_LINES_BETWEEN + 1


def _lift(low: Scored, high: Scored, share: float, lifted: dict[int, Scored]) -> None:
    """Lift a passage, unless its other neighbour has lifted it as much."""
    gain = share * (high.score - low.score)
    row = low.candidate.row
    if gain > 0 and (row not in lifted or lifted[row].score < low.score + gain):
        lifted[row] = low.plus(ScorePart(_BESIDE_PART, gain, "next to a better passage"))


_RERANK_PART = "rerank"


TOP = 30
"""Number of the best passages that the model reads."""
BUDGET_MS = 800
"""Time limit per query. Passages that the model has not read by then rank after those that it has."""
WEIGHT = 0.5
"""Share of the score that comes from the model."""


class Reranker(Protocol):
    """Model that reads a query and a passage together: a cross-encoder."""

    def load(self) -> None: ...

    def score(self, query: str, passage: str) -> float: ...


def rerank(
    ranked: Sequence[Scored],
    reranker: Reranker,
    query: str,
    passage_of: Callable[[int], str],
    *,
    timer: Callable[[], float] = time.perf_counter,
) -> tuple[list[Scored], tuple[str, ...]]:
    """Return the new order, and a message if the model failed or ran out of time.

    ``passage_of`` returns the text of a row. The time budget starts once the model is loaded.
    """
    count = min(TOP, len(ranked))
    judgements: list[float] = []
    try:
        reranker.load()
        deadline = timer() + BUDGET_MS / 1000
        for scored in ranked[:count]:
            if timer() >= deadline:
                break
            judgements.append(reranker.score(query, passage_of(scored.candidate.row)))
    except EmbeddingError as exc:
        return list(ranked), (f"Not reranked: {exc.message}",)
    reordered = _reorder(ranked, judgements, WEIGHT)
    if len(judgements) == count:
        return reordered, ()
    return reordered, (f"Reranked {len(judgements)} of {count}: the time of {BUDGET_MS} ms was used up.",)


def _reorder(ranked: Sequence[Scored], judgements: Sequence[float], weight: float) -> list[Scored]:
    if not judgements:
        return list(ranked)
    read = rank(_mix(scored, judgement, weight) for scored, judgement in zip(ranked, judgements, strict=False))
    return read + [_cap(scored, read[-1]) for scored in ranked[len(judgements) :]]


def _mix(scored: Scored, judgement: float, weight: float) -> Scored:
    reason = f"{weight:.2f} of the score is the model's {judgement:.3f}"
    part = ScorePart(_RERANK_PART, weight * (judgement - scored.score), reason)
    return scored.plus(part, relevance=weight * (judgement - scored.relevance))


def _cap(scored: Scored, last: Scored) -> Scored:
    """Lower the score of a passage that was not read to that of the last one that was."""
    part = ScorePart(_RERANK_PART, min(0.0, last.score - scored.score), "not read by the model")
    return scored.plus(part, relevance=min(0.0, last.relevance - scored.relevance)) if part.value < 0 else scored
