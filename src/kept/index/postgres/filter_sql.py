"""The SQL condition of a filter on `kept.chunks c`, as `index/sqlite/filter_sql` has it for SQLite."""

from __future__ import annotations

import re
from typing import Any

from kept.base.records import Filter
from kept.base.visibility import PRIVATE_FOLDER, PROJECTS_FOLDER, KeyPattern, ProjectScope, Viewer

# A condition and its values.
Condition = tuple[str, list[Any]]

_HAS_TAG = (
    "(c.source = 'memory' AND EXISTS (SELECT FROM kept.note_tags t WHERE t.space = c.space AND t.key = %s"
    " AND t.path = c.path AND c.start_line BETWEEN t.first_line AND t.last_line))"
)
_WRITTEN_BEFORE = (
    "(c.timestamp < %s OR (c.source = 'memory' AND NOT EXISTS"
    " (SELECT FROM kept.notes n WHERE n.space = c.space AND n.path = c.path AND n.dated)))"
)
_KEY = "c.session_key"


def filter_sql(filters: Filter, *, key: str = _KEY) -> tuple[str, dict[str, Any]]:
    """Return a condition on `c` and its values by name. ``key`` is the SQL for the key of a conversation."""
    conditions: list[Condition] = []
    if filters.sources:
        conditions.append(("c.source = ANY(%s)", [list(filters.sources)]))
    if filters.path and any(character in filters.path for character in "*?["):
        conditions.append(("c.path ~ %s", [glob_pattern(filters.path)]))
    elif filters.path:
        folder = filters.path.rstrip("/")
        conditions.append(("(c.path = %s OR starts_with(c.path, %s))", [folder, f"{folder}/"]))
    comparisons = (
        ("c.path = %s", filters.transcript),
        ("c.session_key = %s", filters.session_key),
        ("c.channel = %s", filters.channel),
        ("c.timestamp >= %s", filters.since_ms),
        ("c.timestamp < %s", filters.until_ms),
        (_WRITTEN_BEFORE, filters.as_of_ms),
        *((_HAS_TAG, tag) for tag in filters.tags),
    )
    conditions += [(clause, [value]) for clause, value in comparisons if value is not None]
    if filters.scope is not None:
        conditions.append(_scope_sql(filters.scope))
    if filters.viewer is not None:
        conditions.append(_viewer_sql(filters.viewer, key))
    return _named(conditions)


def hidden_notes_sql(filters: Filter) -> tuple[str, dict[str, Any]]:
    """Return a condition on the path of a note and its values, for what a project and a viewer do not see."""
    conditions = [_scope_sql(filters.scope)] if filters.scope is not None else []
    conditions += [_notes_sql(filters.viewer)] if filters.viewer is not None else []
    return _named(conditions)


def glob_pattern(glob: str) -> str:
    """Return the regular expression of a glob as SQLite reads it: '*' crosses folders, '[^a]' excludes."""
    parts = re.findall(r"\*|\?|\[\^?\]?[^\]]*\]|.", glob, re.DOTALL)
    return f"^{''.join(map(_glob_part, parts))}$"


def _glob_part(part: str) -> str:
    if part in ("*", "?"):
        return ".*" if part == "*" else "."
    if len(part) == 1:
        return f"\\{part}" if not (part.isalnum() or part == "_" or ord(part) > 127) else part
    return part.replace("\\", "\\\\")


def _named(conditions: list[Condition]) -> tuple[str, dict[str, Any]]:
    """Return all conditions as one, whose values have names."""
    values = [value for _, values in conditions for value in values]
    names = iter(f"f{number}" for number in range(len(values)))
    clauses = " AND ".join(clause for clause, _ in conditions) or "true"
    clause = re.sub("%s", lambda _: f"%({next(names)})s", clauses)
    return clause, {f"f{number}": value for number, value in enumerate(values)}


def _viewer_sql(viewer: Viewer, key: str) -> Condition:
    """Return the condition for shared notes, and notes and conversations of the viewer."""
    notes, values = _notes_sql(viewer)
    parts = [f"(c.source = 'memory' AND {notes})"]
    for pattern in viewer.keys:
        clause, more = _key_sql(pattern, key)
        parts.append(clause)
        values += more
    return f"({' OR '.join(parts)})", values


def _key_sql(pattern: KeyPattern, key: str) -> Condition:
    """Return the condition that a key fits a pattern, which leaves the account between two colons open."""
    start = f"starts_with({key}, %s)"
    if not pattern.end and not pattern.inside:
        return start, [pattern.start]
    account = f"substr({key}, {len(pattern.start) + 1})"
    rest = f"CASE WHEN strpos({account}, ':') > 0 THEN substr({account}, strpos({account}, ':')) ELSE '' END"
    if pattern.end:
        return f"({start} AND {rest} = %s)", [pattern.start, pattern.end]
    return f"({start} AND starts_with({rest}, %s))", [pattern.start, pattern.inside]


def _notes_sql(viewer: Viewer) -> Condition:
    """Return the condition that a note is shared, or the viewer's."""
    start = len(PRIVATE_FOLDER) + 2
    folder = f"substr(lower(c.path), {start}, greatest(0, strpos(substr(c.path, {start}), '/') - 1))"
    return (
        f"(substr(lower(c.path), 1, {start - 1}) <> '{PRIVATE_FOLDER}/' OR {folder} = ANY(%s))",
        [sorted(viewer.folders)],
    )


def _scope_sql(scope: ProjectScope) -> Condition:
    """Return the condition that a path is of no other project."""
    start = len(PROJECTS_FOLDER) + 2
    return (
        f"((substr(lower(c.path), 1, {start - 1}) <> '{PROJECTS_FOLDER}/' OR strpos(substr(c.path, {start}), '/') = 0"
        f" OR starts_with(substr(c.path, {start}), %s)) AND c.path <> ALL(%s))",
        [f"{scope.name}/", sorted(scope.hidden_transcripts)],
    )
