"""Lines in any note that a new fact repeats or seems to change, found by words and vectors of the index.

For processes that have the index open: opening it takes longer than adding a line. No model is called, and the index is
used as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kept.errors import KeptError
from kept.records import Filter, Hit, NearFact
from kept.workspace.daily import get_daily_notes
from kept.workspace.fact_match import match_statements, may_be_fact, sort_near
from kept.workspace.opened import OpenWorkspace
from kept.workspace.statements import read_statements
from kept.workspace.workspace import Workspace

if TYPE_CHECKING:
    from kept.indexing.service import IndexService
    from kept.search.candidates import QueryVector

_COMPARED_HITS = 8
_NEAR_FROM = 0.8
"""Score of the meaning from which two facts are near."""
_LOCAL_PROVIDERS = ("local",)
"""Embedders that answer at once and cost nothing."""


def find_indexed_near(service: IndexService, text: str, filters: Filter) -> list[NearFact]:
    """Return the lines that a new fact repeats or seems to change. A problem with the index means that there are none:
    it is no reason not to write."""
    if not may_be_fact(text) or not text.strip():
        return []
    from dataclasses import replace

    from kept.search.pipeline import embed_query, search_index
    from kept.search.query import parse_query
    from kept.workspace.validity import read_line

    try:
        query = parse_query(read_line(text).text)
        settings = replace(service.settings.query, max_results=_COMPARED_HITS, min_score=0.0)
        embedder = service.embedder
        vector: QueryVector | None = None
        if embedder is not None and embedder.identity.provider in _LOCAL_PROVIDERS:
            vector, _ = embed_query(embedder, query)
        filters = replace(filters, sources=("memory",))
        with service.inspecting() as (index, _):
            if vector and vector.identity != index.stored_identity():
                vector = None
            now_ms = service.clock.time_ns() // 1_000_000
            hits = search_index(index, vector, query, settings, filters, now_ms=now_ms).hits
    except KeptError:
        return []
    passages = [passage for hit in hits for passage in (hit, *hit.further)]
    return match_hits(service.workspace, text, passages, max_bytes=service.settings.max_file_bytes)


def match_hits(workspace: Workspace, text: str, hits: Iterable[Hit], *, max_bytes: int) -> list[NearFact]:
    """Return the lines among hits that a fact repeats or seems to change, as their notes read now.

    A daily note tells what was so on its day: the same line on another day is not a repetition.
    """
    daily = get_daily_notes(workspace)
    near: list[NearFact] = []
    with OpenWorkspace(workspace) as opened:
        for hit in hits:
            if hit.source != "memory":
                continue
            try:
                note = opened.read(workspace.locate(hit.path), max_bytes=max_bytes).text
            except KeptError:
                continue
            statements = [
                statement
                for statement in read_statements(note)
                if hit.start_line <= statement.first_line and statement.last_line <= hit.end_line
            ]
            is_near = (hit.vector_score or 0.0) >= _NEAR_FROM
            facts = match_statements(text, note, hit.path, statements, is_near=is_near)
            is_log = daily.find_day(hit.path) is not None
            near += [fact for fact in facts if not (is_log and fact.relation == "repeats")]
    return sort_near(list({fact.citation: fact for fact in near}.values()))
