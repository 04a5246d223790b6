"""One search, from the parsed query to hits that are verified against what was stored."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache, partial

from kept.config import Query
from kept.embedding.base import Calibration, Embedder
from kept.errors import EmbeddingError, StoreDamaged
from kept.records import Dropped, DropReason, Filter, Hit, cite
from kept.redact import redact
from kept.search.exact import ExactMatch, lift_exact
from kept.search.fuse import Candidate, Scored, Weights, fuse_rrf, fuse_weighted, select
from kept.search.keyword import KeywordHit, KeywordSearch
from kept.search.query import ParsedQuery
from kept.search.rerank import Judge, rerank
from kept.search.snippet import make_snippet
from kept.search.times import add_times, spells_in
from kept.store.index import Index
from kept.store.kernels import quantise
from kept.store.rows import ChunkRow
from kept.values import frozen

MAX_CANDIDATES = 200
_WORD = re.compile(r"\w+")
_DAY_MS = 86_400_000


@frozen
class Found:
    hits: tuple[Hit, ...]
    dropped: tuple[Dropped, ...]
    degraded: tuple[str, ...] = ()


@frozen
class QueryVector:
    """What a query means, and how its likeness to a text is to be read."""

    code: bytes
    identity: str
    calibration: Calibration


def search_index(
    index: Index,
    vector: QueryVector | None,
    query: ParsedQuery,
    settings: Query,
    filters: Filter,
    *,
    now_ms: int,
    judge: Judge | None = None,
) -> Found:
    """``vector`` is of the embedder whose vectors the index holds, or None to search by word only.

    ``judge`` is the model that reads the best passages with the query, where there is one.
    """
    code = vector.code if vector else None
    limit = min(MAX_CANDIDATES, max(1, settings.max_results * settings.hybrid.candidate_multiplier))
    with index.reading():
        keywords = KeywordSearch(index.words, query, match_all=settings.hybrid.match == "all")
        text = {hit.row: hit for hit in keywords.best(limit, filters)}
        exact = ExactMatch(query)
        exact_rows = exact.find_rows(index.words, filters)
        text.update((hit.row, hit) for hit in keywords.score_rows([row for row in exact_rows if row not in text]))
        cosine = _nearest(index, code, limit, filters, also=list(text)) if code else {}
        for hit in keywords.score_rows([row for row in cosine if row not in text]):
            text[hit.row] = hit
        chunks = index.live.get_chunks(dict.fromkeys([*text, *cosine, *exact_rows]))
    calibration = vector.calibration if vector else Calibration()
    candidates = [
        _candidate(chunk, cosine.get(row), text.get(row), calibration, now_ms) for row, chunk in chunks.items()
    ]
    ranked = _fuse(candidates, settings, calibration, has_vectors=code is not None)
    ranked = add_times(ranked, spells_in(query.text, _local(now_ms).date()), now_ms=now_ms)
    degraded: tuple[str, ...] = ()
    if judge:
        passage_of = partial(_passage, chunks, text)
        ranked, degraded = rerank(ranked, judge, query.text, passage_of, settings.rerank)
    ranked = lift_exact(ranked, {row: how for row in exact_rows if (how := exact.of(chunks[row])) is not None})

    @cache
    def words_of(row: int) -> frozenset[str]:
        return frozenset(_WORD.findall(chunks[row].text.lower()))

    kept, dropped = select(
        ranked,
        min_score=settings.min_score,
        max_results=settings.max_results,
        words_of=words_of,
    )
    hits = tuple(_hit(one, chunks[one.candidate.row], text.get(one.candidate.row), index.path) for one in kept)
    lost = tuple(_dropped(chunks[one.candidate.row], one.score, reason) for one, reason in dropped)
    return Found(hits, lost, degraded)


def embed_query(embedder: Embedder, query: ParsedQuery) -> tuple[QueryVector | None, tuple[str, ...]]:
    """The query's vector, or why there is none."""
    try:
        matrix = embedder.embed([redact(query.text)], role="query")
        calibration = embedder.calibration  # a local model measures it, so this may fail as well
    except EmbeddingError as exc:
        return None, (f"Searching by word only: {exc.message}",)
    code = quantise(matrix.data)
    return (QueryVector(code, embedder.identity.key, calibration) if any(code) else None), ()


def _nearest(index: Index, code: bytes, limit: int, filters: Filter, *, also: Sequence[int]) -> dict[int, float]:
    """The nearest chunks, and how near those are that have the words."""
    vectors = index.live.vectors
    among = index.live.rows_matching(filters) if filters else None
    found = dict(vectors.nearest(code, limit, among=among, generation=index.generation_number()))
    found.update(vectors.similarities(code, [row for row in also if row not in found]))
    return found


def _candidate(
    chunk: ChunkRow, cosine: float | None, text: KeywordHit | None, calibration: Calibration, now_ms: int
) -> Candidate:
    return Candidate(
        row=chunk.row,
        vector=None if cosine is None else calibration.score(cosine),
        text=text.score if text else None,
        age_days=(now_ms - chunk.timestamp_ms) / _DAY_MS,
        matched=text.matched if text else (),
    )


def _passage(chunks: Mapping[int, ChunkRow], text: Mapping[int, KeywordHit], row: int) -> str:
    """What a model reads of a chunk: what is shown of it, and the headings above."""
    shown = make_snippet(chunks[row].text, text[row].matched if row in text else ())
    return f"{chunks[row].heading}\n{shown}".strip()


def _fuse(candidates: list[Candidate], settings: Query, calibration: Calibration, *, has_vectors: bool) -> list[Scored]:
    hybrid = settings.hybrid
    vector = calibration.weight if isinstance(hybrid.vector_weight, str) else hybrid.vector_weight
    weights = Weights(vector, 1.0 - vector) if has_vectors else Weights(0.0, 1.0)
    return (fuse_rrf if hybrid.fusion == "rrf" else fuse_weighted)(candidates, weights)


def _hit(scored: Scored, chunk: ChunkRow, text: KeywordHit | None, index_path: str) -> Hit:
    # What is shown is what was indexed, or it is not shown.
    if hashlib.sha256(chunk.text.encode("utf-8", "replace")).hexdigest() != chunk.hash:
        raise StoreDamaged(f"{index_path}: the index is damaged (a chunk does not match its hash).")
    return Hit(
        path=chunk.path,
        start_line=chunk.start_line,
        end_line=chunk.end_line,
        score=scored.score,
        vector_score=scored.candidate.vector,
        text_score=scored.candidate.text,
        snippet=make_snippet(chunk.text, text.matched if text else ()),
        source=chunk.source,
        timestamp=_iso(chunk.timestamp_ms),
        heading=chunk.heading,
        parts=scored.parts(),
        session_key=chunk.session_key,
        channel=chunk.channel,
    )


def _iso(timestamp_ms: int) -> str:
    return _local(timestamp_ms).isoformat(timespec="seconds")


def _local(timestamp_ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(timestamp_ms / 1000).astimezone()


def _dropped(chunk: ChunkRow, score: float, reason: DropReason) -> Dropped:
    return Dropped(cite(chunk.path, chunk.start_line, chunk.end_line), score, reason)
