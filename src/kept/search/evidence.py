"""What speaks for a candidate, and what against it: figures from 0 to 1 that mean the same for every query. Pure.

A turn of a conversation is seldom understood alone. So a candidate is also judged by those that stand beside it in the
same file and were found as well: an answer by the question before it, a remark by what was talked about.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kept.embedding.base import Calibration
from kept.search.keyword import KeywordHit, WeightedTerm
from kept.store.generation import ChunkRow
from kept.values import frozen

_SPEAKER = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d\] ([^:\n]{1,80}): ")
_ROLES = frozenset({"", "user", "assistant", "tool", "system", "summary"})
_WORD = re.compile(r"\w+")
_NEAR_LINES = 2
"""Lines between two turns that say nothing, such as a change of settings, do not part them."""
_DAY_MS = 86_400_000


@frozen
class Evidence:
    words: float = 0.0
    around: float = 0.0
    coverage: float = 0.0
    reach: float = 0.0
    answers: float = 0.0
    """What the question before it has of the query's words, if there is one."""
    meaning: float = 0.0
    beside: float = 0.0
    """How near the nearer of its neighbours is in meaning."""
    asks: float = 0.0
    """1 where it is a question itself: those who search want answers."""
    other_speaker: float = 0.0
    """1 where the query names one who takes part, and another says this."""
    machine: float = 0.0
    """1 where an assistant or a tool says it, or it is the rest of a long message: memory is for what people said."""


Place = tuple[str, int, int]
"""Path, line, and row number, which orders the pieces of one line."""


@frozen
class Candidate:
    row: int
    is_turn: bool
    evidence: Evidence
    has_vector: bool
    age_days: float
    matched: tuple[str, ...] = ()
    """The words it has."""
    place: Place = ("", 0, 0)
    """Where it stands, which orders candidates of equal score."""


class Pool:
    """The chunks that were found, by word or by meaning, with what is known of each."""

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
        self.meaning = {row: calibration.score(value) for row, value in cosine.items()}
        turns = sorted((c for c in chunks.values() if is_turn(c)), key=lambda c: (c.path, c.start_line, c.row))
        self._turns = turns
        self._place = {chunk.row: at for at, chunk in enumerate(turns)}
        self._speakers = {chunk.row: speaker_of(chunk) for chunk in turns}

    def candidates(self, query_text: str, *, now_ms: int) -> list[Candidate]:
        named = self._named(query_text)
        return [
            Candidate(
                row=row,
                is_turn=is_turn(chunk),
                evidence=self._evidence(chunk, named),
                has_vector=row in self.meaning,
                age_days=(now_ms - chunk.timestamp_ms) / _DAY_MS,
                matched=self.text[row].matched if row in self.text else (),
                place=(chunk.path, chunk.start_line, row),
            )
            for row, chunk in self.chunks.items()
        ]

    def _named(self, query_text: str) -> frozenset[str]:
        """The speakers among these turns whom the query names, by any part of their name."""
        asked = frozenset(_WORD.findall(query_text.lower()))
        speakers = set(self._speakers.values()) - _ROLES
        return frozenset(one for one in speakers if asked.intersection(_WORD.findall(one)))

    def _evidence(self, chunk: ChunkRow, named: frozenset[str]) -> Evidence:
        hit, meaning = self.text.get(chunk.row), self.meaning.get(chunk.row, 0.0)
        words = (hit.words, hit.around, hit.coverage, hit.reach) if hit else (0.0, 0.0, 0.0, 0.0)
        if not is_turn(chunk):
            return Evidence(*words, meaning=meaning)
        before, after = self._beside(chunk.row, -1), self._beside(chunk.row, 1)
        asked = self.text.get(before.row) if before is not None and asks(before) else None
        speaker = self._speakers[chunk.row]
        is_named = speaker not in _ROLES
        return Evidence(
            *words,
            answers=asked.words if asked else 0.0,
            meaning=meaning,
            beside=max((self.meaning.get(one.row, 0.0) for one in (before, after) if one is not None), default=0.0),
            asks=float(asks(chunk)),
            other_speaker=float(bool(named) and is_named and speaker not in named),
            machine=float(not is_named and speaker != "user"),
        )

    def _beside(self, row: int, step: int) -> ChunkRow | None:
        """The turn before or after this one, where it was found too."""
        at = self._place[row] + step
        if not 0 <= at < len(self._turns):
            return None
        here, there = self.chunks[row], self._turns[at]
        near = there.path == here.path and abs(there.start_line - here.start_line) <= _NEAR_LINES
        return there if near else None


def is_turn(chunk: ChunkRow) -> bool:
    return chunk.source == "sessions"


def asks(chunk: ChunkRow) -> bool:
    return chunk.text.rstrip().endswith(("?", "？", "؟"))


def speaker_of(chunk: ChunkRow) -> str:
    """Who says it, in small letters: a name or a role. Empty behind the beginning of a long message."""
    found = _SPEAKER.match(chunk.text)
    return found.group(1).lower() if found else ""
