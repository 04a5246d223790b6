"""One search of the index, from the parsed query to hits that are verified against the stored hashes."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Sequence
from functools import partial

from kept.config import QuerySettings
from kept.embedding.base import Calibration, Embedder
from kept.errors import EmbeddingError, StoreDamaged
from kept.records import Dropped, DropReason, Filter, Hit, ScorePart, cite
from kept.redact import redact
from kept.search.confidence import calibrate, confidence_after_reranking, estimate_confidence, read_signals
from kept.search.evidence import Candidate, CandidatePool
from kept.search.exact import ExactMatch, Exactness, lift_exact
from kept.search.fuse import FusionWeights, Scored, demote_further_passages, fuse_rrf, fuse_weighted
from kept.search.keyword import KeywordSearch
from kept.search.query import ParsedQuery
from kept.search.query_dates import boost_periods, find_periods
from kept.search.rerank import Reranker, rerank
from kept.search.selection import Windows, select_hits
from kept.search.snippet import make_snippet
from kept.search.weights import COVERED_TRUST, UNCOVERED_TRUST, UTTERANCE_TRUST
from kept.store.generation import ChunkRow
from kept.store.index import Index
from kept.store.kernels import quantise
from kept.values import frozen

MIN_CANDIDATES, MAX_CANDIDATES = 40, 200
WINDOW_LINES = 12


@frozen
class IndexSearchResult:
    hits: tuple[Hit, ...]
    dropped: tuple[Dropped, ...]
    degraded: tuple[str, ...] = ()


@frozen
class QueryVector:
    """Vector of a query, with the calibration that turns similarities into scores."""

    code: bytes
    identity: str
    calibration: Calibration


def search_index(
    index: Index,
    vector: QueryVector | None,
    query: ParsedQuery,
    settings: QuerySettings,
    filters: Filter,
    *,
    now_ms: int,
    reranker: Reranker | None = None,
) -> IndexSearchResult:
    """Return the hits of a query, best first.

    ``vector`` must be of the embedder whose vectors the index holds; None searches by word only. ``reranker`` reads the
    best passages together with the query, if there is one.
    """
    degraded: tuple[str, ...] = ()
    with index.reading():
        exact = ExactMatch(query)
        exact_rows = exact.find_rows(index.words, filters)
        pool = gather_pool(index, vector, query, settings, filters, exact_rows=exact_rows)
        ranked = fuse_pool(pool.candidates(query.text, now_ms=now_ms), settings, vector)
        if periods := find_periods(query.text, _local_time(now_ms)):
            ranked = boost_periods(ranked, periods, now_ms=now_ms)
        signals = read_signals(ranked, pool.terms, passages=pool.passages)
        confidence = estimate_confidence(signals, vector_share=vector_share(settings, vector))
        if reranker:
            before = ranked
            ranked, degraded = rerank(before, reranker, query.text, pool.passage, settings.rerank)
            confidence = confidence_after_reranking(confidence, before, ranked, settings.rerank.weight)
        ranked = calibrate(demote_further_passages(ranked), confidence, signals)
        ranked = lift_exact(ranked, _compare(exact, [pool.chunks[row] for row in exact_rows], index))
        scores = {scored.candidate.row: scored.score for scored in ranked}
        neighbours = partial(index.live.chunks_around, lines=WINDOW_LINES)
        windows = Windows(pool.chunks, neighbours, scores, filters)
        selection = select_hits(
            ranked, pool.chunks, windows, min_score=settings.min_score, max_results=settings.max_results
        )
        if filters.tags and not selection.hits:
            degraded = (*degraded, *_unknown_tags(index, filters))
    return IndexSearchResult(
        hits=tuple(_ranked_hit(scored, windows.get(scored.candidate.row), index.path) for scored in selection.hits),
        dropped=tuple(_dropped(pool.chunks[scored.candidate.row], scored, why) for scored, why in selection.dropped),
        degraded=degraded,
    )


# finding candidates


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
    cosine = _similarities(index, vector.code, limit, filters, keyword_rows=list(text)) if vector else {}
    text.update((hit.row, hit) for hit in keywords.score_rows([row for row in cosine if row not in text]))
    chunks = index.live.get_chunks(dict.fromkeys([*text, *cosine, *exact_rows]))
    calibration = vector.calibration if vector else Calibration()
    return CandidatePool(chunks, text, cosine, calibration, terms=keywords.terms, passages=keywords.chunk_count)


def _similarities(
    index: Index, code: bytes, limit: int, filters: Filter, *, keyword_rows: Sequence[int]
) -> dict[int, float]:
    """Return the similarity of the nearest chunks, and of those that were found by word."""
    vectors = index.live.vectors
    among = index.live.rows_matching(filters) if filters else None
    similarities = dict(vectors.nearest(code, limit, among=among, generation=index.generation_number()))
    similarities.update(vectors.similarities(code, [row for row in keyword_rows if row not in similarities]))
    return similarities


def embed_query(embedder: Embedder, query: ParsedQuery) -> tuple[QueryVector | None, tuple[str, ...]]:
    """Return the vector of a query, or None and the reason."""
    try:
        matrix = embedder.embed([redact(query.text)], role="query")
        calibration = embedder.calibration  # a local model measures it, so this may fail as well
    except EmbeddingError as exc:
        return None, (f"Searching by word only: {exc.message}",)
    code = quantise(matrix.data)
    return (QueryVector(code, embedder.identity.key, calibration) if any(code) else None), ()


# scoring them


def fuse_pool(candidates: list[Candidate], settings: QuerySettings, vector: QueryVector | None) -> list[Scored]:
    """Return the candidates with their scores, best first."""
    share = vector_share(settings, vector)
    weights = FusionWeights(share, 1.0 - share)
    if settings.hybrid.fusion == "rrf":
        return fuse_rrf(candidates, weights)
    if vector is not None and settings.hybrid.fixed_vector_weight is not None:
        return fuse_weighted(candidates, weights)
    trusted = weights.scaled(_trust(candidates))
    return fuse_weighted(candidates, trusted, utterances=weights.scaled(UTTERANCE_TRUST))


def _trust(candidates: Sequence[Candidate]) -> float:
    """Return the trust in the embedder for notes: the fewer of the query's words any note has, the more."""
    best = max((candidate.evidence.coverage for candidate in candidates if not candidate.is_utterance), default=0.0)
    return COVERED_TRUST + UNCOVERED_TRUST * (1.0 - best)


def vector_share(settings: QuerySettings, vector: QueryVector | None) -> float:
    """Return the share of meaning in a score: the one in the settings, or else the one measured for the embedder."""
    if vector is None:
        return 0.0
    fixed = settings.hybrid.fixed_vector_weight
    return vector.calibration.weight if fixed is None else fixed


def _compare(exact: ExactMatch, chunks: Sequence[ChunkRow], index: Index) -> dict[int, Exactness]:
    given_titles = index.live.notes.given_titles({chunk.path for chunk in chunks}) if chunks else {}
    return exact.compare(chunks, given_titles)


# results


def _unknown_tags(index: Index, filters: Filter) -> list[str]:
    return [f"No note has the tag '{tag}'." for tag in filters.tags if not index.live.notes.has_tag(tag)]


def _ranked_hit(scored: Scored, window: Sequence[ChunkRow], index_path: str) -> Hit:
    return make_hit(
        window,
        scored.candidate.row,
        index_path,
        score=scored.score,
        vector_score=scored.vector,
        text_score=scored.text,
        matched=scored.candidate.matched,
        parts=scored.parts(),
    )


def make_hit(
    window: Sequence[ChunkRow],
    row: int,
    index_path: str,
    *,
    score: float,
    vector_score: float | None = None,
    text_score: float | None = None,
    matched: Sequence[str] = (),
    parts: tuple[ScorePart, ...] = (),
    listed: bool = False,
) -> Hit:
    """Return a hit. Raise `StoreDamaged` if a shown text is not the one that was indexed."""
    for shown in window:
        if hashlib.sha256(shown.text.encode("utf-8", "replace")).hexdigest() != shown.hash:
            raise StoreDamaged(f"{index_path}: the index is damaged (a chunk does not match its hash).")
    chunk = next(shown for shown in window if shown.row == row)
    return Hit(
        path=chunk.path,
        start_line=window[0].start_line,
        end_line=window[-1].end_line,
        score=score,
        vector_score=vector_score,
        text_score=text_score,
        snippet=make_snippet("\n".join(shown.text for shown in window), matched),
        source=chunk.source,
        timestamp=_local_time(chunk.timestamp_ms).isoformat(timespec="seconds"),
        heading=chunk.heading,
        parts=parts,
        session_key=chunk.session_key,
        channel=chunk.channel,
        listed=listed,
    )


def _dropped(chunk: ChunkRow, scored: Scored, reason: DropReason) -> Dropped:
    return Dropped(cite(chunk.path, chunk.start_line, chunk.end_line), scored.score, reason)


def _local_time(timestamp_ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(timestamp_ms / 1000).astimezone()
