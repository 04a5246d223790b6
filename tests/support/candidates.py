"""Candidates of a query, without an index."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from kept.base.clock import DAY_MS
from kept.index.sqlite.rows import ChunkRow
from kept.search.candidates import Evidence
from kept.search.scores import Scored, rank, score_chunk

Candidate = tuple[ChunkRow, Evidence]


def candidate(
    row: int,
    evidence: Evidence,
    matched: Collection[str] = (),
    *,
    path: str = "memory/a.md",
    lines: tuple[int, int] | None = None,
    is_utterance: bool = False,
    age_days: float = 1e6,
) -> Candidate:
    source = "sessions" if is_utterance else "memory"
    timestamp_ms = -round(age_days * DAY_MS)
    chunk = ChunkRow(path, *(lines or (row, row)), row, source, b"", "", str(row), timestamp_ms)
    return chunk, replace(evidence, matched=tuple(matched))


def fuse(candidates: Iterable[Candidate], meaning_share: float | None = 0.0) -> list[Scored]:
    return rank(score_chunk(*one, meaning_share, now_ms=0) for one in candidates)
