"""Changes of the order of candidates after their evidence was added up: an exact match, the rest of a note, and a
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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from kept.base.records import SOURCES, Filter
from kept.base.remote_errors import EmbeddingError
from kept.base.words.segment import fold, is_unspaced, name_parts_in, normalise
from kept.index.chunking.markdown import HEADING_JOIN, HEADING_MARKS, note_name
from kept.index.sqlite.rows import ChunkRow
from kept.search.candidates import WeightedTerm
from kept.search.query import ParsedQuery, make_phrase
from kept.search.scores import Scored, rank
from kept.search.selection import make_snippet
from kept.search.weights import BESIDE_BETTER_SHARE, EXACT_FLOOR, WHOLE_NOTE_SHARE

if TYPE_CHECKING:
    from kept.embedding.onnx import CrossEncoder
    from kept.index.sqlite.word_index import WordIndex

MAX_ROWS = 50
_MAX_TOKENS = 32
"""A longer query is not meant word for word."""

_SPACE = re.compile(r"\s+")
_WORDS = re.compile(r"[^\W_]+")
_EDGES = " \t.,;:!?…'\"()[]{}<>“”„«»「」『』"
_SAME_WORDS, _SAME_CHARACTERS, _IS_TITLE = _DEGREES = (
    "the words are here one after the other",
    "it is here exactly as in the query",
    "it is the title",
)
"""Degrees of an exact match, the most exact last. A title is the name of the note, one in its properties, or a
heading."""


class ExactMatch:
    """The texts of a query that are looked for word for word."""

    def __init__(self, query: ParsedQuery) -> None:
        self.texts = [plain for text in (query.quoted or (query.text,)) if (plain := _plain(text).strip(_EDGES))]
        phrases = [term.phrase for text in self.texts if (term := make_phrase(text))]
        phrases = [phrase for phrase in phrases if phrase.text.count(" ") < _MAX_TOKENS]
        self.phrases = phrases if len(phrases) == len(self.texts) else []
        # A plain word is in many texts. Several words, or a word with punctuation or digits, are specific.
        self.counts_in_text = bool(query.quoted) or any(
            not text.isalpha() or (not text.isascii() and sum(map(is_unspaced, text)) > 2) for text in self.texts
        )

    def find_rows(self, words: WordIndex, filters: Filter) -> list[int]:
        """Return the chunks that may have it. The context of a chunk holds the titles above it."""
        if not self.phrases:
            return []
        search = partial(words.rows_with_every, self.phrases, limit=MAX_ROWS)
        rows = search(filters=filters) if self.counts_in_text else []
        # So many have it in their text that a title may be missing: only the context tells titles.
        if (not self.counts_in_text or len(rows) == MAX_ROWS) and "memory" in (filters.sources or SOURCES):
            rows += search(filters=replace(filters, sources=("memory",)), in_context=True)
        return list(dict.fromkeys(rows))

    def lift(
        self, ranked: Sequence[Scored], rows: Collection[int], given_titles: Mapping[str, Sequence[str]]
    ) -> list[Scored]:
        """Put exact matches among the rows first, the most exact before the others, with scores no lower than those
        they pass. ``given_titles`` has the titles and aliases in the properties of notes, by path."""
        degrees = {
            scored.chunk.row: self._find_degree(scored.chunk, given_titles.get(scored.chunk.path, ()))
            for scored in ranked
            if scored.chunk.row in rows
        }
        ordered = [scored for scored in ranked if not degrees.get(scored.chunk.row)]
        for degree in _DEGREES:
            score = max([EXACT_FLOOR, *(scored.score for scored in ordered[:1])])
            relevance = max([EXACT_FLOOR, *(scored.relevance for scored in ordered[:1])])
            matches = [scored for scored in ranked if degrees.get(scored.chunk.row) == degree]
            ordered = [*(scored.at_least(score, relevance, "exact", degree) for scored in matches), *ordered]
        return ordered

    def _find_degree(self, chunk: ChunkRow, given_titles: Sequence[str]) -> str | None:
        phrases = [_WORDS.findall(text) for text in self.texts]
        titles = [*_titles(chunk), *map(_plain, given_titles)]
        if len(phrases) == 1 and any(_WORDS.findall(title) == phrases[0] for title in titles):
            return _IS_TITLE
        if not self.counts_in_text:
            return None
        plain = _plain(chunk.text)
        if all(re.search(_pattern(text), plain) for text in self.texts):
            return _SAME_CHARACTERS
        # The parts of names count as words: "user name" is in getUserName.
        words = f" {' '.join(_WORDS.findall(plain))} | {name_parts_in(chunk.text).lower()} "
        if all(len(phrase) > 1 and f" {' '.join(phrase)} " in words for phrase in phrases):
            return _SAME_WORDS
        return None


def _plain(text: str) -> str:
    return _SPACE.sub(" ", fold(normalise(text)).lower())


def _pattern(text: str) -> str:
    """Return a pattern of the text that does not match inside a longer word. Unspaced scripts have no such edges."""
    starts, ends = (
        (character.isalnum() or character == "_") and not is_unspaced(character) for character in (text[0], text[-1])
    )
    return (r"(?<!\w)" if starts else "") + re.escape(text) + (r"(?!\w)" if ends else "")


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


def judge_whole_notes(
    ranked: Sequence[Scored],
    terms: Sequence[WeightedTerm],
    *,
    text_share: float,
    share: float = WHOLE_NOTE_SHARE,
    beside_share: float = BESIDE_BETTER_SHARE,
) -> list[Scored]:
    """Add to the best passage of each note for the words of the query in its other passages, then bring each passage
    nearer to a better one that it touches, and rank again.

    ``text_share`` is the share of words in a score, ``share`` the weight of those in other passages, and
    ``beside_share`` the share of the distance to a better passage.
    """
    by_path: dict[str, list[Scored]] = {}
    for scored in ranked:
        if scored.chunk.source != "sessions":
            by_path.setdefault(scored.chunk.path, []).append(scored)
    notes = [passages for passages in by_path.values() if len(passages) > 1]
    if not notes:
        return list(ranked)
    # Pairs of characters, which stand for words in scripts without spaces, meet by chance in a long note.
    idf = {weighted.term.text: weighted.idf for weighted in terms if weighted.term.kind not in ("pair", "prefix")}
    weight = share * text_share / sum(weighted.idf for weighted in terms) if idf else 0.0
    changed: dict[int, Scored] = {}
    for passages in notes:
        if idf:
            passages[0] = _with_other_passages(passages, idf, weight)
        for scored in _lift_neighbours(passages, beside_share):
            changed[scored.chunk.row] = scored
    return rank(changed.get(scored.chunk.row, scored) for scored in ranked)


def _with_other_passages(passages: Sequence[Scored], idf: Mapping[str, float], weight: float) -> Scored:
    """Return the best passage of a note with the words that only its other passages have."""
    best, *others = passages
    shares = best.evidence.shares
    missing: dict[str, float] = {}
    for text, share in (item for other in others for item in other.evidence.shares.items()):
        more = share - shares.get(text, 0.0)
        if more > missing.get(text, 0.0):
            missing[text] = more
    gain = min(1.0 - best.score, weight * sum(idf.get(text, 0.0) * share for text, share in missing.items()))
    if gain <= 0:
        return best
    why = f"other passages have {', '.join(missing)}"
    return best.plus("whole note", gain, why, relevance=min(gain, 1.0 - best.relevance))


def _lift_neighbours(passages: Sequence[Scored], share: float) -> Iterable[Scored]:
    """Return the passages of a note, each nearer to a better one that it touches, by a share of the distance."""
    passages = sorted(passages, key=lambda scored: (scored.chunk.start_line, scored.chunk.row))
    lifted = {scored.chunk.row: scored for scored in passages}
    for before, after in pairwise(passages):
        if after.chunk.start_line > before.chunk.end_line + 2:  # there may be a blank line between them
            continue
        low, high = sorted((before, after), key=lambda scored: scored.score)
        gain = share * (high.score - low.score)
        # Its other neighbour may have lifted it as much.
        if gain > 0 and lifted[low.chunk.row].score < low.score + gain:
            lifted[low.chunk.row] = low.plus("next passage", gain, "next to a better passage")
    return lifted.values()


TOP = 30
"""Number of the best passages that the model reads."""
BUDGET_MS = 800
"""Time limit per query. Passages that the model has not read by then rank after those that it has."""
WEIGHT = 0.5
"""Share of the score that comes from the model."""


def rerank(
    ranked: Sequence[Scored], reranker: CrossEncoder, query: str, *, timer: Callable[[], float] = time.perf_counter
) -> tuple[list[Scored], tuple[str, ...]]:
    """Return the new order, and a message if the model failed or ran out of time, which starts once it is loaded.

    The model reads the headings above a chunk, and the part of it that is shown.
    """
    best = ranked[:TOP]
    read: list[Scored] = []
    try:
        reranker.load()
        deadline = timer() + BUDGET_MS / 1000
        for scored in best:
            if timer() >= deadline:
                break
            words = scored.evidence.found_words
            passage = f"{scored.chunk.heading}\n{make_snippet(scored.chunk.text, words)}".strip()
            judgement = reranker.score(query, passage)
            why = f"{WEIGHT:.2f} of the score is the model's {judgement:.3f}"
            gain, relevance = WEIGHT * (judgement - scored.score), WEIGHT * (judgement - scored.relevance)
            read.append(scored.plus("rerank", gain, why, relevance=relevance))
    except EmbeddingError as exc:
        return list(ranked), (f"Not reranked: {exc.message}",)
    last = min(read, key=lambda other: other.score, default=None)
    unread = [
        scored.below(last, "rerank", "not read by the model", by=0.0) if last and last.score < scored.score else scored
        for scored in ranked[len(read) :]
    ]
    reordered = rank(read) + unread
    if len(read) == len(best):
        return reordered, ()
    return reordered, (f"Reranked {len(read)} of {len(best)}: the time of {BUDGET_MS} ms was used up.",)
