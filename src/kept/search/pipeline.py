"""One search of the index, from the parsed query to hits that are verified against the stored hashes.

`list_hits` returns what was written and said in a time instead: in order, without a ranking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from kept.base.limits import time_from_ms
from kept.base.records import (
    LIKELY_FROM,
    Dropped,
    DropReason,
    Filter,
    Hit,
    Occurrence,
    ScorePart,
    SearchResult,
    grade_of,
)
from kept.base.redact import redact
from kept.base.remote_errors import EmbeddingError
from kept.base.values import frozen
from kept.base.visibility import project_of_path
from kept.embedding.base import Embedder
from kept.embedding.static import StaticEmbedder
from kept.errors import StoreDamaged
from kept.index.sqlite.rows import ChunkRow, text_hash
from kept.index.sqlite.vectors import quantise
from kept.notes.daily import DailyNotes
from kept.notes.validity import may_be_marked
from kept.search.candidates import NO_WORDS, CandidatePool, QueryVector, gather_pool, is_done, may_answer
from kept.search.query import IndexQuery, ParsedQuery
from kept.search.query_dates import boost_periods, find_periods
from kept.search.reordering import WEIGHT, ExactMatch, judge_whole_notes, rerank
from kept.search.repetitions import (
    Arrangement,
    arrange,
    find_bystanders,
    find_repeated_questions,
    is_question,
    move_last,
)
from kept.search.scores import (
    Scored,
    calibrate,
    confidence_after_reranking,
    estimate_confidence,
    fuse_pool,
    prefer_project,
    rank,
    read_signals,
    vector_share,
)
from kept.search.selection import Selection, Windows, make_message_snippet, make_snippet, select_hits
from kept.search.weights import JUST_LIKELY, JUST_WEAK

if TYPE_CHECKING:
    from kept.embedding.onnx import CrossEncoder
    from kept.index.sqlite.index import Index
    from kept.search.fact_validity import FactRanking

_WINDOW_LINES = 12
_MANY_MARKED, _VERSIONS = 12, 500
"""Candidates with marks from which on more are looked at, and how many: a fact may have changed often."""
_LISTED = (ScorePart("listed", 1.0, "from that time"),)


def embed_query(embedder: Embedder, query: ParsedQuery) -> tuple[QueryVector | None, tuple[str, ...]]:
    """Return the vector of a query, or None and the reason."""
    text = redact(query.text)
    try:
        matrix = embedder.embed([text], role="query")
        calibration = embedder.calibration  # a local model measures it, so this may fail as well
    except EmbeddingError as exc:
        return None, (f"Searching by word only: {exc.message}",)
    code = quantise(matrix.data)
    if not any(code):
        return None, ()
    identity = embedder.identity.key
    # Only the built-in model has two parts to blend, and knows which words it has never seen.
    if not isinstance(embedder, StaticEmbedder):
        return QueryVector(code, identity, calibration), ()
    blend = partial(embedder.blend_query, matrix.data)
    most = JUST_LIKELY if embedder.knows(text) else 0.0
    return QueryVector(code, identity, calibration, blend, most_by_meaning=most), ()


def search_index(
    index: Index, request: IndexQuery, vector: QueryVector | None, *, now_ms: int, reranker: CrossEncoder | None = None
) -> SearchResult:
    """Return the hits of a query, best first.

    ``vector`` must be of the embedder whose vectors the index holds; None searches by word only. ``reranker`` reads the
    best passages together with the query, if there is one.
    """
    settings, filters = request.settings, request.filters
    with index.reading():
        ranking = _rank(index, request, vector, now_ms=now_ms, reranker=reranker)
        arrangement = ranking.arrangement
        scores = {scored.chunk.row: scored.score for scored in arrangement.ranked}
        within = filters
        # The neighbours that are shown with a message must not be later than the day that was asked about.
        if filters.as_of_ms is not None:
            bounds = (filters.as_of_ms, filters.until_ms)
            within = replace(filters, until_ms=min(bound for bound in bounds if bound is not None))
        selection = select_hits(
            arrangement.ranked,
            Windows(partial(index.live.chunks_around, lines=_WINDOW_LINES), scores, within),
            min_score=settings.min_score,
            max_results=settings.max_results,
            repeats=arrangement.repeats,
            bystanders=arrangement.bystanders,
        )
        talks = {scored.chunk.path for scored, _ in selection.hits if scored.chunk.source == "sessions"}
        titles = index.live.conversation_titles(talks) if talks else {}
    return _make_result(selection, ranking, index.path, titles)


@frozen
class _Ranking:
    """The candidates of a query, ranked."""

    chunks: Mapping[int, ChunkRow]
    arrangement: Arrangement
    questions: frozenset[int]
    """Rows of messages that only ask the same, or are found only by such a question. They are not ranked."""
    degraded: tuple[str, ...]
    facts: FactRanking | None = None
    """Validity of the candidates, if any of them says when it holds."""


def _rank(
    index: Index, request: IndexQuery, vector: QueryVector | None, *, now_ms: int, reranker: CrossEncoder | None
) -> _Ranking:
    query, settings, filters = request.query, request.settings, request.filters
    now = time_from_ms(now_ms)
    # Looked up apart from the candidates: many chunks with the same words in another order must not crowd them out.
    exact = ExactMatch(query)
    exact_rows = exact.find_rows(index.words, filters)
    pool = gather_pool(index, request, vector, exact_rows=exact_rows)
    notes = (chunk for chunk in pool.chunks.values() if chunk.source == "memory")
    marked = sum(may_be_marked(chunk.text) or may_be_marked(chunk.heading) for chunk in notes)
    if marked > _MANY_MARKED:  # many versions of a fact may have crowded out the one that holds
        pool = gather_pool(index, request, vector, exact_rows=exact_rows, limit=_VERSIONS)
    questions = find_repeated_questions(pool, query.text) if pool.messages else frozenset[int]()
    # Who asks wants an answer, and an earlier question is none. Who looks for words may look for the question.
    left_out = questions if questions and is_question(query.text) else frozenset[int]()
    if left_out:
        left_out |= find_bystanders(pool, left_out, same_speaker=True)
    evidence = {row: figures for row, figures in pool.find_evidence(query.text).items() if row not in left_out}
    ranked = fuse_pool(pool, evidence, settings, vector, now_ms=now_ms)
    if periods := find_periods(query.text, now):
        ranked = boost_periods(ranked, periods)
    if filters.scope and filters.scope.name:
        ranked = prefer_project(ranked, filters.scope)
    no_answers = _find_no_answers(index, pool)
    weak = [scored for scored in ranked if scored.chunk.row in no_answers]
    ranked = [scored for scored in ranked if scored.chunk.row not in no_answers]
    # Judged apart, because the confidence follows from the best: a heading without text would lend it to the others.
    ranked, degraded = _judge(ranked, pool, request, vector, reranker)
    if weak:
        ranked = rank([*ranked, *_judge(weak, pool, request, vector, None, most=JUST_WEAK)[0]])
    # After the reranker: what is literally what the query says stands first, whatever a model thinks of it.
    if exact_chunks := [pool.chunks[row] for row in exact_rows if row not in no_answers]:
        given_titles = index.live.notes.given_titles({chunk.path for chunk in exact_chunks})
        ranked = exact.lift(ranked, {chunk.row for chunk in exact_chunks}, given_titles)
    # Only among hits that are likely anyway: a weak one must not rise because it is newer, or from a note.
    certain = max(settings.min_score, LIKELY_FROM)
    if asking := questions - left_out:
        ranked = move_last(ranked, asking, min_score=certain)
    # Who names a time wants what was said then, also where something newer replaced it.
    arrangement = arrange(ranked, pool, query.text, min_score=certain, by_time=not periods)
    if not marked:
        return _Ranking(pool.chunks, arrangement, left_out, degraded)
    from kept.search.fact_validity import choose_moment, settle_facts

    as_of = None if filters.as_of_ms is None else time_from_ms(filters.as_of_ms)
    facts = settle_facts(arrangement.ranked, query.text, choose_moment(now, as_of=as_of, periods=periods))
    return _Ranking(pool.chunks, replace(arrangement, ranked=facts.ranked), left_out, degraded, facts)


def _find_no_answers(index: Index, pool: CandidatePool) -> set[int]:
    """Return the chunks that have the words of the query only in tasks that are done, or in a heading without text,
    unless that is the title of the note."""
    rows: set[int] = set()
    for row, hit in pool.text.items():
        chunk = pool.chunks[row]
        if chunk.source != "memory":
            continue
        is_heading = not may_answer(chunk.text) and chunk.heading != index.live.notes.find_title(chunk.path)
        if is_heading or ("[x]" in chunk.text.lower() and is_done(chunk.text, hit.found_words, index.words.stems)):
            rows.add(row)
    return rows


def _judge(
    ranked: list[Scored],
    pool: CandidatePool,
    request: IndexQuery,
    vector: QueryVector | None,
    reranker: CrossEncoder | None,
    *,
    most: float = 1.0,
) -> tuple[list[Scored], tuple[str, ...]]:
    """Judge notes as a whole, ask the reranker, and make the scores comparable with those of other queries, with
    ``most`` for the first. Return the ranking, and what did not work."""
    signals = read_signals(ranked, pool, request.query.text, vector)
    # Before the other passages of a note count: words that are far apart meet by chance, and say little of an answer.
    confidence = min(most, estimate_confidence(signals))
    judged = judge_whole_notes(ranked, pool.terms, text_share=1.0 - vector_share(request.settings, vector))
    if reranker is None:
        return calibrate(judged, confidence, signals), ()
    reranked, degraded = rerank(judged, reranker, request.query.text)
    confidence = confidence_after_reranking(confidence, judged, reranked, WEIGHT)
    return calibrate(reranked, confidence, signals), degraded


def list_hits(index: Index, filters: Filter, daily: DailyNotes, *, max_results: int) -> tuple[list[Hit], int]:
    """Return the latest entries of a time, oldest first, and how many there are in all.

    An entry is a section of a daily log, any other note as a whole, or what was said in one conversation. Each is shown
    by its beginning, and the cited lines are those that are shown.
    """
    entries: list[tuple[int, str, str, int]] = []  # row, source, path and timestamp of the first chunk of each
    for (source, path), group in groupby(index.live.lists.entry_rows(filters), key=itemgetter(1, 2)):
        chunks_of_file = list(group)
        is_log = daily.find_day(path) or chunks_of_file[0][3] != chunks_of_file[-1][3]
        entries += chunks_of_file if source == "memory" and is_log else chunks_of_file[:1]
    entries.sort(key=itemgetter(3, 2, 0))
    latest = [row for row, *_ in entries[-max_results:]]
    chunks = index.live.get_chunks(latest)
    windows = Windows(partial(index.live.chunks_around, lines=_WINDOW_LINES), {}, filters)
    titles = index.live.conversation_titles({chunk.path for chunk in chunks.values()})
    hits = []
    for row in latest:
        listed = Scored(chunks[row], NO_WORDS, 1.0, 1.0, None, None, lambda: _LISTED)
        hits.append(replace(_make_hit(listed, windows.open(chunks[row]), index.path, titles), listed=True))
    return hits, len(entries)


# results


def _make_result(selection: Selection, ranking: _Ranking, index_path: str, titles: Mapping[str, str]) -> SearchResult:
    chunks, newer_than, facts = ranking.chunks, ranking.arrangement.newer_than, ranking.facts
    hits: list[Hit] = []
    for best, window in selection.hits:
        further = [(other, (other.chunk,)) for other in selection.further.get(best.chunk.row, ())]
        passages: list[Hit] = []
        for scored, lines in [(best, window), *further]:
            row = scored.chunk.row
            passage = _make_hit(scored, lines, index_path, titles)
            passage = facts.complete(passage, row) if facts else passage
            also_in = tuple(map(_occurrence, selection.also_in.get(row, ())))
            older = tuple(_occurrence(chunks[other]) for other in newer_than.get(row, ()) if other in selection.rows)
            passages.append(replace(passage, also_in=also_in, newer_than=older) if also_in or older else passage)
        hits.append(replace(passages[0], further=tuple(passages[1:])) if further else passages[0])
    left_out: list[tuple[ChunkRow, float, DropReason]] = [
        *((scored.chunk, scored.score, reason) for scored, reason in selection.dropped),
        *((scored.chunk, scored.score, "later than as_of") for scored in (facts.later if facts else ())),
        *((chunks[row], 0.0, "asks the same") for row in sorted(ranking.questions)),
    ]
    dropped = tuple(Dropped(chunk.citation, score, reason) for chunk, score, reason in left_out)
    return SearchResult(tuple(hits), ranking.degraded, dropped=dropped)


def _occurrence(chunk: ChunkRow) -> Occurrence:
    when = time_from_ms(chunk.timestamp_ms).isoformat(timespec="seconds")
    return Occurrence(chunk.path, chunk.start_line, chunk.end_line, chunk.source, when)


def _make_hit(scored: Scored, window: Sequence[ChunkRow], index_path: str, titles: Mapping[str, str]) -> Hit:
    """Return a hit. Raise `StoreDamaged` if a shown text is not the one that was indexed."""
    for shown in window:
        if text_hash(shown.text) != shown.hash:
            raise StoreDamaged(f"{index_path}: the index is damaged (a chunk does not match its hash).")
    chunk, text = scored.chunk, "\n".join(shown.text for shown in window)
    snippet_of = make_message_snippet if chunk.source == "sessions" else make_snippet
    return Hit(
        path=chunk.path,
        start_line=window[0].start_line,
        end_line=window[-1].end_line,
        score=scored.score,
        vector_score=scored.vector,
        text_score=scored.text,
        snippet=snippet_of(text, scored.evidence.found_words),
        source=chunk.source,
        timestamp=time_from_ms(chunk.timestamp_ms),
        heading=chunk.heading,
        parts=scored.parts(),
        grade=grade_of(scored.relevance),
        session_key=chunk.session_key,
        channel=chunk.channel,
        project=project_of_path(chunk.path),
        title=titles.get(chunk.path),
        other_words=scored.evidence.other_words,
    )
