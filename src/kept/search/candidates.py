"""Candidates of a query: the chunks that have its words or are near to it in meaning, with the evidence for each.

**Evidence** for and against a candidate are figures from 0 to 1 that mean the same for every query. An utterance is
seldom understood alone. So it is also judged by its neighbours in the same file, if they are candidates too: an answer
by the question before it, a remark by the subject of the conversation.

Keyword search: the best chunks by word, and how much of a query each of them has.

It is BM25, with scores that can be compared between queries. The store finds the best chunks. Their scores are computed
here, because the score of FTS5 depends on the query and vanishes in a small index. A term counts by its rarity (idf).
Each figure is a share of the most that the query could get: BM25 of the text (a chunk of mean length that has every
term once is at 1, before that is saturated into the range from 0 to 1), BM25 of its context, the share of the query in
the text, and the share of it in the text with its context. A term of the query may have other words that stand for it
(`expansion`). They count less, and of a term and its expansions the best counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from kept.base.values import frozen
from kept.base.words.equivalents import EQUIVALENTS
from kept.base.words.segment import segment
from kept.embedding.base import Calibration
from kept.index.sqlite.rows import ChunkRow
from kept.index.sqlite.vectors import quantise
from kept.index.sqlite.word_index import CountedPhrase, KeywordMatch, PhraseCount
from kept.search.query import Expansion, IndexQuery, ParsedQuery, Term
from kept.search.weights import CLOSEST_MEANING, JUST_WEAK, SMALL_MEMORY_PASSAGES

if TYPE_CHECKING:
    from kept.index.sqlite.index import Index
    from kept.index.sqlite.word_index import WordIndex

MIN_CANDIDATES, MAX_CANDIDATES = 40, 200

MESSAGE_LABEL = r"\[\d{4}-\d\d-\d\d \d\d:\d\d\] (?P<speaker>[^:\n]{1,80}): (?P<continues>… )?"
"""Beginning of a message with its time and speaker. A piece that continues a long one has "… " after its label."""
_ROLES = frozenset({"", "user", "assistant", "tool", "system", "summary"})
_WORD = re.compile(r"\w+")
_DONE = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s+\[[xX]\](?:\s|$)")
"""Beginning of a line with a task that is done."""


# evidence


@frozen
class Evidence:
    """Evidence for or against one candidate: figures from 0 to 1, most of those after `reach` for utterances only, and
    the words of the query that it has."""

    words: float = 0.0
    """BM25 of the text, as a share of what the query could score."""
    around: float = 0.0
    """BM25 of the context alone: headings, the date, neighbouring utterances."""
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
    question: float = 0.0
    """1 for a question: a search is for answers."""
    speaker: float = 0.0
    """1 if the query names a speaker of the conversation, and another one says this."""
    machine: float = 0.0
    """1 if an assistant or a tool says it, or it continues a long message: memory is for what people said."""
    matched: tuple[str, ...] = ()
    """Terms in the text or the context."""
    expansions: tuple[Expansion, ...] = ()
    """Words in the text or the context that stand for terms that it lacks."""

    @property
    def shares(self) -> dict[str, float]:
        """The terms of the query that the chunk has. One that another stands for is part of a term."""
        stand_ins = {source: expansion.share for expansion in self.expansions for source in expansion.sources}
        return stand_ins | dict.fromkeys(self.matched, 1.0)

    @property
    def other_words(self) -> tuple[str, ...]:
        """The words that stand for words of the query. A wildcard ends with '*', and a phrase is several."""
        return tuple(
            f"{word}*" if expansion.term.kind == "wildcard" else word
            for expansion in self.expansions
            for word in expansion.term.text.split()
        )

    @property
    def found_words(self) -> tuple[str, ...]:
        """All words of the chunk that are of the query, or stand for one."""
        return (*self.matched, *self.other_words)


NO_WORDS = Evidence()


class CandidatePool:
    """The chunks that were found by word or by meaning, with all that is known about them."""

    def __init__(
        self,
        chunks: Mapping[int, ChunkRow],
        text: Mapping[int, Evidence],
        meaning: Mapping[int, float],
        *,
        terms: Sequence[WeightedTerm] = (),
        passages: int = 0,
    ) -> None:
        """``meaning`` has the similarity of chunks from 0 to 1, and ``passages`` is the number of them in the index."""
        self.chunks, self.text, self.meaning = chunks, text, meaning
        self.terms, self.passages = terms, passages
        messages = (chunk for chunk in chunks.values() if chunk.source == "sessions")
        self.messages = sorted(messages, key=lambda chunk: (chunk.path, chunk.start_line, chunk.row))
        self._index_of = {chunk.row: at for at, chunk in enumerate(self.messages)}
        self.speakers: dict[int, str] = {}
        """Name or role of each message's speaker in lower case, or "" for a piece after the first of a long message."""
        for chunk in self.messages:
            label = re.match(MESSAGE_LABEL, chunk.text)
            self.speakers[chunk.row] = label["speaker"].lower() if label and not label["continues"] else ""

    def find_evidence(self, query_text: str) -> dict[int, Evidence]:
        """Return the evidence for each chunk, by row."""
        query_words = frozenset(_WORD.findall(query_text.lower()))
        speakers = set(self.speakers.values()) - _ROLES  # the query names them by any part of their name
        named = {speaker for speaker in speakers if query_words.intersection(_WORD.findall(speaker))}
        evidence = {}
        for row, chunk in self.chunks.items():
            evidence[row] = replace(self.text.get(row, NO_WORDS), meaning=self.meaning.get(row, 0.0))
            if chunk.source != "sessions":
                continue
            before, after = self._neighbour(chunk, -1), self._neighbour(chunk, 1)
            speaker = self.speakers[row]
            has_name = speaker not in _ROLES
            evidence[row] = replace(
                evidence[row],
                answers=self.text.get(before.row, NO_WORDS).words if before and _is_question(before) else 0.0,
                beside=max(self.meaning.get(beside.row, 0.0) if beside else 0.0 for beside in (before, after)),
                question=float(_is_question(chunk)),
                speaker=float(bool(named) and has_name and speaker not in named),
                machine=float(not has_name and speaker != "user"),
            )
        return evidence

    def messages_around(self, row: int, steps: int) -> Sequence[ChunkRow]:
        """Return the messages of the pool before and after this one in its file, up to ``steps`` on each side."""
        at = self._index_of[row]
        near = self.messages[max(0, at - steps) : at + steps + 1]
        return [other for other in near if other.path == self.chunks[row].path and other.row != row]

    def _neighbour(self, chunk: ChunkRow, step: int) -> ChunkRow | None:
        """Return the message before (-1) or after (1) this one, or None if it is not in the pool."""
        at = self._index_of[chunk.row] + step
        if not 0 <= at < len(self.messages):
            return None
        other = self.messages[at]
        # There may be one line between them that is not a message, such as a change of settings.
        is_near = other.path == chunk.path and abs(other.start_line - chunk.start_line) <= 2
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
    blend: Callable[..., tuple[bytes, Calibration]] | None = None
    """Returns the vector for the share of ``unknown`` words, which no chunk has, and the scale of its cosines, if the
    embedder weighs its parts by that."""
    most_by_meaning: float = JUST_WEAK
    """Highest confidence in a passage that is near in meaning but has no word of the query."""


def gather_pool(
    index: Index,
    request: IndexQuery,
    vector: QueryVector | None,
    *,
    exact_rows: Sequence[int] = (),
    limit: int | None = None,
) -> CandidatePool:
    """Return all candidates. Those found by word are compared in meaning too, and the other way round.

    There are at least 40 of each kind: the neighbours of a candidate are evidence only if they are candidates too.
    """
    query, settings, filters = request.query, request.settings, request.filters
    if limit is None:
        limit = settings.max_results * settings.hybrid.candidate_multiplier
        limit = min(MAX_CANDIDATES, max(MIN_CANDIDATES, limit))
    keywords = KeywordSearch(index.words, query)
    best = keywords.search.find_best(limit, filters) if keywords.phrases else []
    cosine: dict[int, float] = {}
    knows_query = vector is not None and vector.most_by_meaning > JUST_WEAK  # other embedders cannot tell nonsense
    if vector:
        if vector.blend:
            stems = set(index.words.stems(segment(query.text)))  # stopwords count: they tell the language best
            known = len(index.words.document_frequencies(stems))
            blended, calibration = vector.blend(unknown=1.0 - known / len(stems) if stems else 0.0)
            vector = replace(vector, code=quantise(blended), calibration=calibration)
        vectors, generation = index.live.vectors, index.generation_number()
        among = index.live.rows_matching(filters) if filters else None
        cosine.update(vectors.nearest(vector.code, limit, among=among, generation=generation))
    # Both figures are worked out for every candidate, however it was found: a missing one would read as zero, and the
    # order would depend on how a candidate was found.
    text = keywords.score_rows(best, [*exact_rows, *cosine])
    meaning: dict[int, float] = {}
    if vector:
        unmeasured = [row for row in text if row not in cosine]
        cosine.update(vectors.similarities(vector.code, unmeasured))
        # In a few notes a question gets the closest, however far it is. A word that is nowhere gets nothing.
        is_small = len(query.text.split()) > 1 and keywords.chunk_count <= SMALL_MEMORY_PASSAGES
        least = CLOSEST_MEANING if is_small and knows_query and not text else 0.0
        score = vector.calibration.score
        meaning = {row: max(score(likeness), least * (1 + likeness) / 2) for row, likeness in cosine.items()}
    stored = index.live.get_chunks(dict.fromkeys([*text, *cosine, *exact_rows]))
    # Headings and tasks that are done say nothing that is near in meaning.
    chunks = {row: chunk for row, chunk in stored.items() if row in text or may_answer(chunk.text)}
    return CandidatePool(chunks, text, meaning, terms=keywords.terms, passages=keywords.chunk_count)


# passages that answer nothing: headings with no text below them, and tasks that are done


def may_answer(text: str) -> bool:
    """Return whether a passage has more than headings and tasks that are done."""
    return any(line.strip() and not line.startswith("#") and not _DONE.match(line) for line in text.split("\n"))


def is_done(text: str, matched: Iterable[str], stems: Callable[[str], list[str]]) -> bool:
    """Return whether all words of a query that a passage has are in tasks that are done."""
    done: list[str] = []
    others: list[str] = []
    for line in text.split("\n"):
        (done if _DONE.match(line) else others).append(line)
    in_done, elsewhere = {*stems("\n".join(done))}, {*stems("\n".join(others))}
    words = [stems(word) for word in matched] if done else []
    return bool(words) and all(in_done.issuperset(word) and not elsewhere.issuperset(word) for word in words)


K1 = 1.2
B = 0.6
STEEPNESS = 1.5
_MAX_COUNTED = 10_000
"""Rows that are counted to weigh a prefix."""
_MAX_PAIRS = 48
"""Pairs of characters of an unspaced script that are looked for. Of more, the rarest are: most are in many chunks, and
a sentence of Thai has fifty."""


@frozen
class WeightedTerm:
    term: Term
    idf: float
    rows: int
    """Number of chunks that have it."""


@frozen
class _Phrase:
    """A phrase of the full-text query: a term, or an expansion of it."""

    counted: CountedPhrase
    term: Term
    """The term of the query that it stands for."""
    expansion: Expansion | None
    gain: float
    """Amount that counts towards the total of the query."""


class KeywordSearch:
    """One query against the word index. Terms are weighted once, for finding and for scoring."""

    def __init__(self, words: WordIndex, query: ParsedQuery) -> None:
        self.words = words
        self.chunk_count = words.chunk_count()
        weighted = (_weigh(words, term, self.chunk_count) for term in query.terms)
        # A term of punctuation alone has no stem, so no chunk can have it.
        self.terms = [term for term in weighted if term is not None]
        pairs = sorted((term for term in self.terms if term.term.kind == "pair"), key=lambda term: term.rows)
        if common := pairs[_MAX_PAIRS:]:
            self.terms = [term for term in self.terms if term not in common]
        self._expansions = self._weigh_expansions(query)
        self.phrases: list[_Phrase] = []
        """The phrases for each term, one after the other."""
        for at, term in enumerate(self.terms):
            stand_ins = [(item, other) for item, other in self._expansions if term.term.text in item.sources]
            certain = [other.idf for item, other in stand_ins if item.is_certain]
            if term.rows:
                self.phrases.append(_Phrase(CountedPhrase(term.term.phrase, term.rows), term.term, None, term.idf))
            elif certain:  # as rare as the word that certainly stands for it
                term = self.terms[at] = WeightedTerm(term.term, min(term.idf, max(certain)), 0)
            for item, other in stand_ins:
                gain = item.share * min(term.idf, other.idf)
                self.phrases.append(_Phrase(CountedPhrase(other.term.phrase, other.rows), term.term, item, gain))
        self.total_idf = sum(term.idf for term in self.terms)
        self.search = words.search([phrase.counted for phrase in self.phrases])

    def _weigh_expansions(self, query: ParsedQuery) -> list[tuple[Expansion, WeightedTerm]]:
        """Return the other words for terms, if a word is unknown, has equivalents or irregular forms, or is one of two
        that the index has as one."""
        words, texts = self.words, [term.term.text for term in self.terms]
        unknown = [term.term.text for term in self.terms if not term.rows and term.term.kind in ("word", "wildcard")]
        joined = " ".join(map("".join, query.pairs))
        if not (
            unknown
            or any(text.lower() in EQUIVALENTS for text in texts)
            or any(stem in words.irregular_forms for text in texts for stem in words.stems(text))
            or (joined and words.document_frequencies(words.stems(joined)))
        ):
            return []
        from kept.search.expansion import expand  # most queries do not need it

        weighted = ((item, _weigh(words, item.term, self.chunk_count)) for item in expand(words, query, unknown))
        return [(item, term) for item, term in weighted if term is not None and term.rows]

    def score_rows(self, best: Sequence[int], others: Iterable[int]) -> dict[int, Evidence]:
        """Return the hits among the ``best`` rows, which `search` found, and others: chunks that are near in
        meaning may have some of the words too."""
        if not self.phrases:
            return {}
        known = set(best)
        matches, mean_length = self.search.count(best, [row for row in dict.fromkeys(others) if row not in known])
        return {match.row: self._hit(match, mean_length) for match in matches}

    def _hit(self, match: KeywordMatch, mean_length: float) -> Evidence:
        words = around = coverage = reach = 0.0
        matched: list[str] = []
        expansions: dict[Expansion, None] = {}
        damping = K1 * (1 - B + B * match.length / max(1.0, mean_length))
        counts: Iterable[PhraseCount] = match.counts
        if self._expansions:
            # Of the phrases for one term, the best: in the text before in the context, then what counts most.
            groups = groupby(counts, key=lambda item: self.phrases[item[0]].term)
            counts = (
                max(group, key=lambda item: (*map(bool, item[1:]), self.phrases[item[0]].gain)) for _, group in groups
            )
        for number, in_text, in_context in counts:
            phrase = self.phrases[number]
            gain = phrase.gain
            if in_text:
                words += gain * in_text * (K1 + 1) / (in_text + damping)
                coverage += gain
            if in_context:
                around += gain * in_context * (K1 + 1) / (in_context + K1)
            reach += gain
            if phrase.expansion is None:
                matched.append(phrase.term.text)
            else:
                expansions[phrase.expansion] = None
        total = self.total_idf
        return Evidence(
            1 - math.exp(-STEEPNESS * (words / total)),  # saturated: from 0 to 1, in the same order
            1 - math.exp(-STEEPNESS * (around / total)),
            coverage / total,
            reach / total,
            matched=tuple(matched),
            expansions=tuple(expansions),
        )


def _weigh(words: WordIndex, term: Term, chunk_count: int) -> WeightedTerm | None:
    stems = words.stems(term.text)
    if not stems:
        return None
    if term.kind in ("prefix", "wildcard"):
        # The vocabulary has no frequency of a beginning, and counting all chunks with it may take long.
        rows = words.phrase_frequency(term.phrase, cap=_MAX_COUNTED)
    else:
        frequencies = words.document_frequencies(stems)
        rows = min(frequencies.get(stem, 0) for stem in stems)
        if rows and len(stems) > 1:
            rows = words.phrase_frequency(term.phrase, cap=rows)
    # A word that is nowhere counts like one that is in one chunk: in a few notes its absence says little.
    known = max(1, rows)
    return WeightedTerm(term, math.log(1 + (max(chunk_count, known) - known + 0.5) / (known + 0.5)), rows)
