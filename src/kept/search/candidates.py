"""Candidates of a query: the chunks that have its words or are near to it in meaning, with the evidence for each.

**Keyword search** is BM25, with scores that can be compared between queries. SQLite finds the best chunks. Their scores
are computed here, because SQLite's own score depends on the query and vanishes in a small index. A term counts by its
rarity (idf). Each figure is a share of the most that the query could get: BM25 of the text (a chunk of mean length that
has every term once is at 1, before that is saturated into the range from 0 to 1), BM25 of its context, the share of the
query in the text, and the share of it in the text with its context.

**Evidence** for and against a candidate are figures from 0 to 1 that mean the same for every query. An utterance is
seldom understood alone. So it is also judged by its neighbours in the same file, if they are candidates too: an answer
by the question before it, a remark by the subject of the conversation.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from kept.clock import DAY_MS
from kept.config import QuerySettings
from kept.embedding.base import Calibration
from kept.records import Filter
from kept.search.query import ParsedQuery, Term
from kept.store.generation import ChunkRow
from kept.store.index import Index, KeywordMatch, WordIndex
from kept.values import frozen

K1 = 1.2
B = 0.6
CONTEXT_WEIGHT = 0.5
"""Weight of a word in the context of a chunk, relative to one in its text, when SQLite picks the best chunks."""
STEEPNESS = 1.5
_FEW_MATCHES = 4_000
ROWS_BUDGET = 10_000
"""With more rows to rank than this, only rows with one of the rarer terms are looked at."""

MIN_CANDIDATES, MAX_CANDIDATES = 40, 200

_SPEAKER = r"\[\d{4}-\d\d-\d\d \d\d:\d\d\] ([^:\n]{1,80}): (?!… )"
"""Label of a message. A piece that continues a long one has "… " after its label."""
_ROLES = frozenset({"", "user", "assistant", "tool", "system", "summary"})
_WORD = re.compile(r"\w+")
_MAX_LINES_APART = 2
"""Neighbours may have one line between them that is not an utterance, such as a change of settings."""


# by word


@frozen
class WeightedTerm:
    term: Term
    idf: float
    rows: int
    """Number of chunks that have it."""


@frozen
class KeywordHit:
    row: int
    words: float
    """BM25 of the text."""
    around: float
    """BM25 of the context: headings, the date, neighbouring utterances."""
    coverage: float
    """Share of the query, weighted by rarity, in the text."""
    reach: float
    """Share of the query, weighted by rarity, in the text and the context together."""
    matched: tuple[str, ...]
    """Terms in the text or the context."""


class KeywordSearch:
    """One query against the word index. Terms are weighted once, for finding and for scoring."""

    def __init__(self, words: WordIndex, query: ParsedQuery, *, match_all: bool) -> None:
        self.words = words
        self.match_all = match_all
        self.chunk_count = words.chunk_count()
        weighted = (_weigh(words, term, self.chunk_count) for term in query.terms)
        self.terms = [term for term in weighted if term is not None]
        self.total_idf = sum(term.idf for term in self.terms)
        self._present = [term for term in self.terms if term.rows > 0]
        self._rows = sum(term.rows for term in self._present)
        self._can_match = len(self._present) == len(self.terms) > 0 if match_all else bool(self._present)
        self._expression = (" AND " if match_all else " OR ").join(term.term.expression for term in self._present)

    def find_best(self, limit: int, filters: Filter) -> list[KeywordHit]:
        """Return the best chunks by BM25 of text and context."""
        if not self._can_match:
            return []
        expression = self._expression
        rare_terms = self._rare_terms() if self._rows > ROWS_BUDGET and not self.match_all else []
        if rare_terms:  # they come first in the expression, but only the phrases after them count for the score
            expression = f"({' OR '.join(term.term.expression for term in rare_terms)}) AND ({expression})"
        phrases = range(len(rare_terms), len(rare_terms) + len(self._present))
        matches, mean_length = self.words.match(
            expression, phrases=phrases, weights=(1.0, CONTEXT_WEIGHT), limit=limit, filters=filters
        )
        return [self._hit(match, mean_length) for match in matches]

    def score_rows(self, rows: Sequence[int]) -> list[KeywordHit]:
        """Return the hits among these rows: chunks that are near in meaning may have some of the words too."""
        if not rows or not self._can_match:
            return []
        matches, mean_length = self.words.match_rows(self._expression, rows, few=self._rows <= _FEW_MATCHES)
        return [self._hit(match, mean_length) for match in matches]

    def _rare_terms(self) -> list[WeightedTerm]:
        """Return the rarest terms whose rows fit the budget, or an empty list if these are all terms."""
        rare_terms: list[WeightedTerm] = []
        rows = 0
        for term in sorted(self._present, key=lambda term: term.rows):
            if rare_terms and rows + term.rows > ROWS_BUDGET:
                break
            rare_terms.append(term)
            rows += term.rows
        return rare_terms if len(rare_terms) < len(self._present) else []

    def _hit(self, match: KeywordMatch, mean_length: float) -> KeywordHit:
        words = around = coverage = reach = 0.0
        matched: list[str] = []
        damping = K1 * (1 - B + B * match.length / max(1.0, mean_length))
        for weighted, (in_text, in_context) in zip(self._present, match.counts, strict=True):
            if in_text:
                words += weighted.idf * in_text * (K1 + 1) / (in_text + damping)
                coverage += weighted.idf
            if in_context:
                around += weighted.idf * in_context * (K1 + 1) / (in_context + K1)
            if in_text or in_context:
                reach += weighted.idf
                matched.append(weighted.term.text)
        total = self.total_idf
        return KeywordHit(
            match.row,
            1 - math.exp(-STEEPNESS * (words / total)),  # saturated: from 0 to 1, in the same order
            1 - math.exp(-STEEPNESS * (around / total)),
            coverage / total,
            reach / total,
            tuple(matched),
        )


def _weigh(words: WordIndex, term: Term, chunk_count: int) -> WeightedTerm | None:
    stems = words.stems(term.text)
    if not stems:
        return None
    if term.kind == "prefix":
        rows = words.phrase_frequency(term.expression, cap=ROWS_BUDGET)
    else:
        rows = min(words.document_frequency(stem) for stem in stems)
        if rows and len(stems) > 1:
            rows = words.phrase_frequency(term.expression, cap=rows)
    # A word that is nowhere counts like one that is in one chunk: in a few notes its absence says little.
    known = max(1, rows)
    return WeightedTerm(term, math.log(1 + (max(chunk_count, known) - known + 0.5) / (known + 0.5)), rows)


# evidence


@frozen
class Evidence:
    """Evidence for or against one candidate, each from 0 to 1. Most figures after `reach` are for utterances only."""

    words: float = 0.0
    """BM25 of the text, as a share of what the query could score."""
    around: float = 0.0
    """BM25 of the context alone."""
    coverage: float = 0.0
    """Share of the query, weighted by rarity, that the text has."""
    reach: float = 0.0
    """Coverage by the text and its context: for an utterance, two before and after it."""
    answers: float = 0.0
    """Score of the words in the question before it, if there is one."""
    meaning: float = 0.0
    """Similarity of the text in meaning, between the embedder's floor and ceiling."""
    beside: float = 0.0
    """Similarity of the nearer of its neighbours in meaning."""
    asks: float = 0.0
    """1 for a question: a search is for answers."""
    other_speaker: float = 0.0
    """1 if the query names a speaker of the conversation, and another one says this."""
    machine: float = 0.0
    """1 if an assistant or a tool says it, or it continues a long message: memory is for what people said."""


ChunkPosition = tuple[str, int, int]
"""Path, line, and row number, which orders the pieces of one line."""


@frozen
class Candidate:
    """A chunk that may answer the query."""

    row: int
    is_utterance: bool
    evidence: Evidence
    has_vector: bool
    age_days: float
    matched: tuple[str, ...] = ()
    """Terms of the query that it has."""
    position: ChunkPosition = ("", 0, 0)
    """Orders candidates of equal score."""


class CandidatePool:
    """The chunks that were found by word or by meaning, with all that is known about them."""

    def __init__(
        self,
        chunks: Mapping[int, ChunkRow],
        text: Mapping[int, KeywordHit],
        cosine: Mapping[int, float],
        calibration: Calibration,
        *,
        terms: Sequence[WeightedTerm] = (),
        passages: int = 0,
    ) -> None:
        self.chunks = chunks
        self.terms = terms
        self.passages = passages
        self.text = text
        self.meaning = {row: calibration.score(similarity) for row, similarity in cosine.items()}
        utterances = [chunk for chunk in chunks.values() if chunk.source == "sessions"]
        self._utterances = sorted(utterances, key=lambda chunk: (chunk.path, chunk.start_line, chunk.row))
        self._index_of = {chunk.row: at for at, chunk in enumerate(self._utterances)}
        self._speakers: dict[int, str] = {}
        """Name or role in lower case, or "" for a piece after the first of a long message."""
        for chunk in self._utterances:
            label = re.match(_SPEAKER, chunk.text) if chunk.text.startswith("[") else None
            self._speakers[chunk.row] = label[1].lower() if label else ""

    def candidates(self, query_text: str, *, now_ms: int) -> list[Candidate]:
        """Return the candidates with their evidence, in no particular order."""
        query_words = frozenset(_WORD.findall(query_text.lower()))
        speakers = set(self._speakers.values()) - _ROLES  # the query names them by any part of their name
        named = frozenset(speaker for speaker in speakers if query_words.intersection(_WORD.findall(speaker)))
        return [
            Candidate(
                row=row,
                is_utterance=row in self._index_of,
                evidence=self._evidence(chunk, named),
                has_vector=row in self.meaning,
                age_days=(now_ms - chunk.timestamp_ms) / DAY_MS,
                matched=self.text[row].matched if row in self.text else (),
                position=(chunk.path, chunk.start_line, row),
            )
            for row, chunk in self.chunks.items()
        ]

    def _evidence(self, chunk: ChunkRow, named: frozenset[str]) -> Evidence:
        hit, meaning = self.text.get(chunk.row), self.meaning.get(chunk.row, 0.0)
        words = (hit.words, hit.around, hit.coverage, hit.reach) if hit else (0.0, 0.0, 0.0, 0.0)
        if chunk.row not in self._index_of:
            return Evidence(*words, meaning=meaning)
        before, after = self._neighbour(chunk, -1), self._neighbour(chunk, 1)
        question = self.text.get(before.row) if before is not None and _is_question(before) else None
        neighbours = [neighbour for neighbour in (before, after) if neighbour is not None]
        speaker = self._speakers[chunk.row]
        has_name = speaker not in _ROLES
        return Evidence(
            *words,
            answers=question.words if question else 0.0,
            meaning=meaning,
            beside=max((self.meaning.get(neighbour.row, 0.0) for neighbour in neighbours), default=0.0),
            asks=float(_is_question(chunk)),
            other_speaker=float(bool(named) and has_name and speaker not in named),
            machine=float(not has_name and speaker != "user"),
        )

    def speaker(self, row: int) -> str:
        """Return the name or role of a message's speaker in lower case, or "" for a note or the rest of a message."""
        return self._speakers.get(row, "")

    def messages_around(self, row: int, steps: int) -> Sequence[ChunkRow]:
        """Return the messages of the pool before and after this one in its file, up to ``steps`` on each side."""
        at = self._index_of[row]
        near = self._utterances[max(0, at - steps) : at + steps + 1]
        return [other for other in near if other.path == self.chunks[row].path and other.row != row]

    def _neighbour(self, chunk: ChunkRow, step: int) -> ChunkRow | None:
        """Return the utterance before (-1) or after (1) this one, or None if it is not in the pool."""
        at = self._index_of[chunk.row] + step
        if not 0 <= at < len(self._utterances):
            return None
        other = self._utterances[at]
        is_near = other.path == chunk.path and abs(other.start_line - chunk.start_line) <= _MAX_LINES_APART
        return other if is_near else None


def _is_question(chunk: ChunkRow) -> bool:
    return chunk.text.rstrip().endswith(("?", "？", "؟"))


# by word and by meaning


@frozen
class QueryVector:
    """Vector of a query, with the calibration that turns similarities into scores."""

    code: bytes
    identity: str
    calibration: Calibration


def gather_pool(
    index: Index,
    vector: QueryVector | None,
    query: ParsedQuery,
    settings: QuerySettings,
    filters: Filter,
    *,
    exact_rows: Sequence[int] = (),
) -> CandidatePool:
    """Return all candidates. Those found by word are compared in meaning too, and the other way round.

    There are at least 40 of each kind: the neighbours of a candidate are evidence only if they are candidates too.
    """
    limit = settings.max_results * settings.hybrid.candidate_multiplier
    limit = min(MAX_CANDIDATES, max(MIN_CANDIDATES, limit))
    keywords = KeywordSearch(index.words, query, match_all=settings.hybrid.match == "all")
    text = {hit.row: hit for hit in keywords.find_best(limit, filters)}
    text.update((hit.row, hit) for hit in keywords.score_rows([row for row in exact_rows if row not in text]))
    cosine: dict[int, float] = {}
    if vector:
        vectors = index.live.vectors
        among = index.live.rows_matching(filters) if filters else None
        cosine.update(vectors.nearest(vector.code, limit, among=among, generation=index.generation_number()))
        cosine.update(vectors.similarities(vector.code, [row for row in text if row not in cosine]))
        text.update((hit.row, hit) for hit in keywords.score_rows([row for row in cosine if row not in text]))
    chunks = index.live.get_chunks(dict.fromkeys([*text, *cosine, *exact_rows]))
    calibration = vector.calibration if vector else Calibration()
    return CandidatePool(chunks, text, cosine, calibration, terms=keywords.terms, passages=keywords.chunk_count)
