"""The SQL condition of a filter on `chunks c`."""

from __future__ import annotations

from typing import Any

from kept.base.records import Filter
from kept.base.visibility import PRIVATE_FOLDER, PROJECTS_FOLDER, KeyPattern, ProjectScope, Viewer

# A condition and its values.
Condition = tuple[str, list[Any]]

_HAS_TAG = (
    "(c.source = 'memory' AND EXISTS (SELECT 1 FROM note_tags t WHERE t.key = ? AND t.path = c.path"
    " AND c.start_line BETWEEN t.first_line AND t.last_line))"
)
_WRITTEN_BEFORE = (
    "(c.timestamp < ? OR (c.source = 'memory'"
    " AND NOT EXISTS (SELECT 1 FROM notes n WHERE n.path = c.path AND n.dated)))"
)


def filter_sql(filters: Filter, *, key: str = "c.session_key") -> Condition:
    """Return a condition on `chunks c` and its values. ``key`` is the SQL for the key of a conversation."""
    conditions: list[Condition] = []
    if filters.sources:
        conditions.append((f"c.source IN ({', '.join('?' * len(filters.sources))})", [*filters.sources]))
    if filters.path and any(character in filters.path for character in "*?["):
        conditions.append(("c.path GLOB ?", [filters.path]))
    elif filters.path:
        folder = filters.path.rstrip("/")
        conditions.append(("(c.path = ? OR substr(c.path, 1, ?) = ?)", [folder, len(folder) + 1, folder + "/"]))
    comparisons = (
        ("c.path = ?", filters.transcript),
        ("c.session_key = ?", filters.session_key),
        ("c.channel = ?", filters.channel),
        ("c.timestamp >= ?", filters.since_ms),
        ("c.timestamp < ?", filters.until_ms),
        (_WRITTEN_BEFORE, filters.as_of_ms),
        *((_HAS_TAG, tag) for tag in filters.tags),
    )
    conditions += [(clause, [value]) for clause, value in comparisons if value is not None]
    conditions += [scope_sql(filters.scope)] if filters.scope is not None else []
    conditions += [viewer_sql(filters.viewer, key)] if filters.viewer is not None else []
    return _all_of(conditions)


def _all_of(conditions: list[Condition]) -> Condition:
    clauses = " AND ".join(clause for clause, _ in conditions) or "1"
    return clauses, [value for _, values in conditions for value in values]


def viewer_sql(viewer: Viewer, key: str) -> Condition:
    """Return a condition on `c` and its values: shared notes, and notes and conversations of the viewer.

    Each part of it is a range of an index, so that no other rows are read.
    """
    notes, values = _notes_sql(viewer)
    parts = [f"(c.source = 'memory' AND {notes})"]
    for pattern in viewer.keys:
        clause, more = _key_sql(pattern, key)
        parts.append(clause)
        values += more
    return f"({' OR '.join(parts)})", values


def _key_sql(pattern: KeyPattern, key: str) -> Condition:
    """Return a condition on the key of a conversation and its values. Only conversations have one.

    A pattern leaves the account open, so its accounts are looked up first: there are few, and each is one step in the
    index.
    """
    start, upper = pattern.start, f"{pattern.start[:-1]};"  # ';' follows ':'
    if not pattern.end and not pattern.inside:
        return f"({key} >= ? AND {key} < ?)", [start, upper]
    length = len(start)
    prefix = f"substr(k, 1, {length - 1} + instr(substr(k, {length + 1}), ':'))"
    accounts = (
        "WITH RECURSIVE a(k) AS (SELECT min(session_key) FROM chunks WHERE session_key >= ? UNION ALL"
        f" SELECT (SELECT min(session_key) FROM chunks WHERE session_key >= {prefix} || ';') FROM a WHERE k < ?)"
    )
    if pattern.end:
        select = f"{accounts} SELECT {prefix} || ? FROM a WHERE k < ?"
        return f"{key} IN ({select})", [start, upper, pattern.end, upper]
    select = (
        f"{accounts} SELECT t.session_key FROM a JOIN chunks t ON t.session_key >= {prefix} || ?"
        f" AND t.session_key < {prefix} || ? WHERE k < ?"
    )
    return f"{key} IN ({select})", [start, upper, pattern.inside, f"{pattern.inside}\U0010ffff", upper]


def _notes_sql(viewer: Viewer) -> Condition:
    """Return a condition on the path of a note and its values: it is shared, or the viewer's."""
    start = len(PRIVATE_FOLDER) + 2
    folder = f"substr(lower(c.path), {start}, max(0, instr(substr(c.path, {start}), '/') - 1))"
    clause = f"(substr(lower(c.path), 1, {start - 1}) <> '{PRIVATE_FOLDER}/'"
    if viewer.folders:
        clause += f" OR {folder} IN ({', '.join('?' * len(viewer.folders))})"
    return f"{clause})", sorted(viewer.folders)


def hidden_notes_sql(filters: Filter) -> Condition:
    """Return a condition on the path of a note and its values, for what a project and a viewer do not see."""
    conditions = [scope_sql(filters.scope)] if filters.scope is not None else []
    conditions += [_notes_sql(filters.viewer)] if filters.viewer is not None else []
    return _all_of(conditions)


def scope_sql(scope: ProjectScope) -> Condition:
    """Return a condition on the path of `c` and its values: nothing of another project."""
    start = len(PROJECTS_FOLDER) + 2
    clause = (
        f"(substr(lower(c.path), 1, {start - 1}) <> '{PROJECTS_FOLDER}/' OR instr(substr(c.path, {start}), '/') = 0"
        f" OR substr(c.path, {start}, ?) = ?)"
    )
    values: list[Any] = [len(scope.name) + 1, f"{scope.name}/"]
    if scope.hidden_transcripts:
        import json

        clause += " AND c.path NOT IN (SELECT value FROM json_each(?))"
        values.append(json.dumps(sorted(scope.hidden_transcripts)))
    return clause, values
