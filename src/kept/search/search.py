"""One search, from the parsed query to hits that are verified against what was stored."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Sequence
from functools import cache, partial

from kept.config import QuerySettings
from kept.embedding.base import Calibration, Embedder
from kept.errors import EmbeddingError, StoreDamaged
from kept.records import Dropped, DropReason, Filter, Hit, cite
from kept.redact import redact
from kept.search.confidence import after_reading, calibrate, how_sure, read_signs
from kept.search.evidence import Candidate, Pool, is_turn
from kept.search.exact import ExactMatch, lift_exact
from kept.search.fuse import FusionWeights, Scored, fuse_rrf, fuse_weighted, select
from kept.search.keyword import KeywordSearch
from kept.search.query import ParsedQuery
from kept.search.rerank import Reranker, rerank
from kept.search.snippet import make_snippet
from kept.search.spread import spread_notes
from kept.search.times import add_times, spells_in
from kept.search.weights import LEAST_TRUST, TURN_TRUST, UNCOVERED_TRUST
from kept.search.window import Windows
from kept.store.generation import ChunkRow
from kept.store.index import Index
from kept.store.kernels import quantise
from kept.values import frozen

LEAST_CANDIDATES, MAX_CANDIDATES = 40, 200
_WINDOW_LINES = 12
_WORD = re.compile(r"\w+")


@frozen
class IndexSearchResult:
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
    settings: QuerySettings,
    filters: Filter,
    *,
    now_ms: int,
    judge: Reranker | None = None,
) -> IndexSearchResult:
    """``vector`` is of the embedder whose vectors the index holds, or None to search by word only.

    ``judge`` is the model that reads the best passages with the query, where there is one.
    """
    degraded: tuple[str, ...] = ()
    with index.reading():
        exact = ExactMatch(query)
        exact_rows = exact.find_rows(index.words, filters)
        pool = find_pool(index, vector, query, settings, filters, also=exact_rows)
        ranked = fuse_pool(pool.candidates(query.text, now_ms=now_ms), settings, vector)
        ranked = add_times(ranked, spells_in(query.text, _local(now_ms).date()), now_ms=now_ms)
        signs = read_signs(ranked, pool.terms, passages=pool.passages)
        sure = how_sure(signs, vector_share=vector_share_of(settings, vector))
        if judge:
            before = ranked
            ranked, degraded = rerank(before, judge, query.text, partial(_passage, pool), settings.rerank)
            sure = after_reading(sure, before, ranked, settings.rerank.weight)
        ranked = calibrate(spread_notes(ranked, partial(_note, pool)), sure, signs)
        ranked = lift_exact(ranked, {row: how for row in exact_rows if (how := exact.of(pool.chunks[row])) is not None})
        scores = {one.candidate.row: one.score for one in ranked}
        windows = Windows(pool.chunks, partial(index.live.chunks_around, lines=_WINDOW_LINES), scores, filters)

        @cache
        def words_of(row: int) -> frozenset[str]:
            return frozenset(_WORD.findall(pool.chunks[row].text.lower()))

        kept, dropped = select(
            ranked,
            min_score=settings.min_score,
            max_results=settings.max_results,
            words_of=words_of,
            showing=windows,
        )
    hits = tuple(_hit(one, windows.of(one.candidate.row), pool.chunks[one.candidate.row], index.path) for one in kept)
    lost = tuple(_dropped(pool.chunks[one.candidate.row], one.score, reason) for one, reason in dropped)
    return IndexSearchResult(hits, lost, degraded)


def find_pool(
    index: Index,
    vector: QueryVector | None,
    query: ParsedQuery,
    settings: QuerySettings,
    filters: Filter,
    *,
    also: Sequence[int] = (),
) -> Pool:
    """Everything that is looked at, with all that is known of it. Each side's finds are judged by the other as well.

    It is never small: what stands beside a candidate is evidence only if it was found too.
    """
    wanted = settings.max_results * settings.hybrid.candidate_multiplier
    limit = min(MAX_CANDIDATES, max(LEAST_CANDIDATES, wanted))
    keywords = KeywordSearch(index.words, query, match_all=settings.hybrid.match == "all")
    text = {hit.row: hit for hit in keywords.best(limit, filters)}
    text.update((hit.row, hit) for hit in keywords.score_rows([row for row in also if row not in text]))
    cosine = _nearest(index, vector.code, limit, filters, also=list(text)) if vector else {}
    for hit in keywords.score_rows([row for row in cosine if row not in text]):
        text[hit.row] = hit
    chunks = index.live.get_chunks(dict.fromkeys([*text, *cosine, *also]))
    calibration = vector.calibration if vector else Calibration()
    return Pool(chunks, text, cosine, calibration, terms=keywords.terms, passages=keywords.chunks)


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


def _note(pool: Pool, row: int) -> str | None:
    chunk = pool.chunks[row]
    return None if is_turn(chunk) else chunk.path


def _passage(pool: Pool, row: int) -> str:
    """What a model reads of a chunk: what is shown of it, and the headings above."""
    chunk, words = pool.chunks[row], pool.text.get(row)
    return f"{chunk.heading}\n{make_snippet(chunk.text, words.matched if words else ())}".strip()


def fuse_pool(candidates: list[Candidate], settings: QuerySettings, vector: QueryVector | None) -> list[Scored]:
    share = vector_share_of(settings, vector)
    weights = FusionWeights(share, 1.0 - share)
    if settings.hybrid.fusion == "rrf":
        return fuse_rrf(candidates, weights)
    if vector is not None and not isinstance(settings.hybrid.vector_weight, str):
        return fuse_weighted(candidates, weights)
    return fuse_weighted(candidates, weights.scaled(_trust(candidates)), turns=weights.scaled(TURN_TRUST))


def _trust(candidates: Sequence[Candidate]) -> float:
    """How far the embedder is trusted with notes: the more, the less of the query's words stands in any of them."""
    best = max((one.evidence.coverage for one in candidates if not one.is_turn), default=0.0)
    return LEAST_TRUST + UNCOVERED_TRUST * (1.0 - best)


def vector_share_of(settings: QuerySettings, vector: QueryVector | None) -> float:
    """How much of a score is meaning: what was chosen, or else what was measured for the embedder."""
    if vector is None:
        return 0.0
    chosen = settings.hybrid.vector_weight
    return vector.calibration.weight if isinstance(chosen, str) else chosen


def _hit(scored: Scored, window: Sequence[ChunkRow], chunk: ChunkRow, index_path: str) -> Hit:
    # What is shown is what was indexed, or it is not shown.
    for shown in window:
        if hashlib.sha256(shown.text.encode("utf-8", "replace")).hexdigest() != shown.hash:
            raise StoreDamaged(f"{index_path}: the index is damaged (a chunk does not match its hash).")
    text = "\n".join(shown.text for shown in window)
    return Hit(
        path=chunk.path,
        start_line=window[0].start_line,
        end_line=window[-1].end_line,
        score=scored.score,
        vector_score=scored.vector,
        text_score=scored.text,
        snippet=make_snippet(text, scored.candidate.matched),
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
