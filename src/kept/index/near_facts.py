"""Lines in any note that a new fact repeats or seems to change.

The word index tells which notes share words with the fact; vectors are not read, and no embedder is opened, so that
adding a line stays quick. The index is used as it is: a note that was written since the last search is not compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from kept.base.records import Filter, NearFact, is_fact_list
from kept.errors import KeptError
from kept.notes.daily import get_daily_notes
from kept.notes.fact_match import find_near_facts, may_be_fact, sort_near
from kept.notes.opened import OpenWorkspace
from kept.notes.workspace import Workspace

if TYPE_CHECKING:
    from kept.config.agent_paths import AgentPaths

_COMPARED_PASSAGES = 6


def find_indexed_near(
    paths: AgentPaths, workspace: Workspace, text: str, filters: Filter, *, max_bytes: int
) -> list[NearFact]:
    """Return the lines that a new fact repeats or seems to change. A problem with the index means that there are none:
    it is no reason not to write."""
    if not may_be_fact(text) or not text.strip():
        return []
    from kept.base.words.stopwords import content_words
    from kept.index.sqlite.quick_reads import find_notes

    filters = replace(filters, sources=("memory",))
    try:
        with_words = find_notes(paths, workspace.root, content_words(text), filters, limit=_COMPARED_PASSAGES)
    except KeptError:
        return []
    return match_notes(workspace, text, with_words, max_bytes=max_bytes)


def match_notes(workspace: Workspace, text: str, paths: Iterable[str], *, max_bytes: int) -> list[NearFact]:
    """Return the lines of some notes that a fact repeats or seems to change, as they read now."""
    daily = get_daily_notes(workspace)
    near: list[NearFact] = []
    with OpenWorkspace(workspace) as opened:
        for path in dict.fromkeys(paths):
            try:
                note = opened.read(workspace.locate(path), max_bytes=max_bytes).text
            except KeptError:
                continue
            is_log = daily.find_day(path) is not None
            near += find_near_facts(text, note, path, is_log=is_log, is_own=is_fact_list(path))
    return sort_near(near)
