"""Evidence for and against a candidate: figures from 0 to 1 that mean the same for every query. Pure.

An utterance is seldom understood alone. So it is also judged by its neighbours in the same file, if they are candidates
too: an answer by the question before it, a remark by the subject of the conversation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kept.clock import DAY_MS
from kept.embedding.base import Calibration
from kept.search.keyword import KeywordHit, WeightedTerm
from kept.search.snippet import make_snippet
from kept.store.generation import ChunkRow
from kept.values import frozen

_SPEAKER = r"\[\d{4}-\d\d-\d\d \d\d:\d\d\] ([^:\n]{1,80}): "
_ROLES = frozenset({"", "user", "assistant", "tool", "system", "summary"})
_WORD = re.compile(r"\w+")
_MAX_LINES_APART = 2
"""Neighbours may have one line between them that is not an utterance, such as a change of settings."""


@frozen
class Evidence:
    """Figures of one candidate. Those from `answers` on, except `meaning`, are for utterances."""

    words: float = 0.0
    around: float = 0.0
    coverage: float = 0.0
    reach: float = 0.0
    answers: float = 0.0
    """Score of the words in the question before it, if there is one."""
    meaning: float = 0.0
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

    @property
    def path(self) -> str:
        return self.position[0]


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
        utterances = [chunk for chunk in chunks.values() if is_utterance(chunk)]
        self._utterances = sorted(utterances, key=lambda chunk: (chunk.path, chunk.start_line, chunk.row))
        self._index_of = {chunk.row: at for at, chunk in enumerate(self._utterances)}
        self._speakers = {chunk.row: speaker_of(chunk) for chunk in self._utterances}

    def candidates(self, query_text: str, *, now_ms: int) -> list[Candidate]:
        """Return the candidates with their evidence, in no particular order."""
        named = self._named_speakers(query_text)
        return [
            Candidate(
                row=row,
                is_utterance=is_utterance(chunk),
                evidence=self._evidence(chunk, named),
                has_vector=row in self.meaning,
                age_days=(now_ms - chunk.timestamp_ms) / DAY_MS,
                matched=self.text[row].matched if row in self.text else (),
                position=(chunk.path, chunk.start_line, row),
            )
            for row, chunk in self.chunks.items()
        ]

    def passage(self, row: int) -> str:
        """Return the text that a reranker reads: the headings above the chunk, and the part of it that is shown."""
        chunk, hit = self.chunks[row], self.text.get(row)
        return f"{chunk.heading}\n{make_snippet(chunk.text, hit.matched if hit else ())}".strip()

    def _named_speakers(self, query_text: str) -> frozenset[str]:
        """Return the speakers among the candidates that the query names, by any part of their name."""
        query_words = frozenset(_WORD.findall(query_text.lower()))
        speakers = set(self._speakers.values()) - _ROLES
        return frozenset(speaker for speaker in speakers if query_words.intersection(_WORD.findall(speaker)))

    def _evidence(self, chunk: ChunkRow, named: frozenset[str]) -> Evidence:
        hit, meaning = self.text.get(chunk.row), self.meaning.get(chunk.row, 0.0)
        words = (hit.words, hit.around, hit.coverage, hit.reach) if hit else (0.0, 0.0, 0.0, 0.0)
        if not is_utterance(chunk):
            return Evidence(*words, meaning=meaning)
        before, after = self._neighbour(chunk, -1), self._neighbour(chunk, 1)
        question = self.text.get(before.row) if before is not None and is_question(before) else None
        neighbours = [neighbour for neighbour in (before, after) if neighbour is not None]
        speaker = self._speakers[chunk.row]
        has_name = speaker not in _ROLES
        return Evidence(
            *words,
            answers=question.words if question else 0.0,
            meaning=meaning,
            beside=max((self.meaning.get(neighbour.row, 0.0) for neighbour in neighbours), default=0.0),
            asks=float(is_question(chunk)),
            other_speaker=float(bool(named) and has_name and speaker not in named),
            machine=float(not has_name and speaker != "user"),
        )

    def _neighbour(self, chunk: ChunkRow, step: int) -> ChunkRow | None:
        """Return the utterance before (-1) or after (1) this one, or None if it is not in the pool."""
        at = self._index_of[chunk.row] + step
        if not 0 <= at < len(self._utterances):
            return None
        other = self._utterances[at]
        is_near = other.path == chunk.path and abs(other.start_line - chunk.start_line) <= _MAX_LINES_APART
        return other if is_near else None


def is_utterance(chunk: ChunkRow) -> bool:
    return chunk.source == "sessions"


def is_question(chunk: ChunkRow) -> bool:
    return chunk.text.rstrip().endswith(("?", "？", "؟"))


def speaker_of(chunk: ChunkRow) -> str:
    """Return the speaker in lower case: a name or a role, or "" for a piece after the first of a long message."""
    label = re.match(_SPEAKER, chunk.text) if chunk.text.startswith("[") else None
    return label.group(1).lower() if label else ""
