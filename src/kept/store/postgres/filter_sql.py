"""The SQL condition of a filter on `chunks c`, for PostgreSQL. It means the same as that for SQLite."""

from __future__ import annotations

import re
from typing import Any

from kept.records import Filter
from kept.store.filter_sql import Condition, join_hidden_notes, join_visible
from kept.store.postgres.storable import storable
from kept.visibility import PRIVATE_FOLDER, PROJECTS_FOLDER, KeyPattern, ProjectScope, Viewer

_HAS_TAG = (
    "(c.source = 'memory' AND EXISTS (SELECT 1 FROM note_tags t WHERE t.generation = c.generation"
    " AND left(t.key, 200) = left(%s, 200) AND t.key = %s AND t.path = c.path"
    " AND c.start_line BETWEEN t.first_line AND t.last_line))"
)
_WRITTEN_BEFORE = (
    "(c.timestamp < %s OR (c.source = 'memory' AND NOT EXISTS"
    " (SELECT 1 FROM notes n WHERE n.generation = c.generation AND n.path = c.path AND n.dated)))"
)


def filter_sql(filters: Filter, *, key: str = "c.session_key") -> Condition:
    """Return a condition on `chunks c` and its values. ``key`` is the SQL for the key of a conversation."""
    clauses: list[str] = []
    values: list[Any] = []

    def add(clause: str, *more: Any) -> None:
        clauses.append(clause)
        values.extend(storable(value) if isinstance(value, str) else value for value in more)

    if filters.sources:
        add("c.source = ANY(%s::text[])", [*filters.sources])
    if filters.path:
        add(*_path_sql(filters.path))
    comparisons = (
        ("c.path = %s", filters.transcript),
        ("c.session_key = %s", filters.session_key),
        ("c.channel = %s", filters.channel),
        ("c.timestamp >= %s", filters.since_ms),
        ("c.timestamp < %s", filters.until_ms),
        (_WRITTEN_BEFORE, filters.as_of_ms),
    )
    for clause, value in comparisons:
        if value is not None:
            add(clause, value)
    for tag in filters.tags:
        add(_HAS_TAG, tag, tag)
    if filters.scope is not None:
        clause, more = scope_sql(filters.scope)
        add(clause, *more)
    if filters.viewer is not None:
        clause, more = viewer_sql(filters.viewer, key)
        add(clause, *more)
    return " AND ".join(clauses) or "true", values


def _path_sql(path: str) -> tuple[str, ...]:
    if any(character in path for character in "*?["):
        pattern = glob_to_regex(path)
        return ("false",) if pattern is None else ("c.path ~ %s", pattern)
    folder = path.rstrip("/")
    return "(c.path = %s OR starts_with(c.path, %s))", folder, folder + "/"


def glob_to_regex(glob: str) -> str | None:
    """Return a regular expression of PostgreSQL that means the same as a pattern of SQLite's GLOB, or None if that
    matches nothing."""
    parts: list[str] = []
    at = 0
    while at < len(glob):
        character = glob[at]
        at += 1
        if character == "*":
            parts.append(".*")
        elif character == "?":
            parts.append(".")
        elif character == "[":
            choice, at = _read_choice(glob, at)
            if choice is None:
                return None
            parts.append(choice)
        else:
            parts.append(re.escape(character))
    return f"^{''.join(parts)}$"


def _read_choice(glob: str, at: int) -> tuple[str | None, int]:
    """Return the choice of characters that begins here, or None if nothing fits it, and where it ends."""
    is_inverted = glob[at : at + 1] == "^"
    at += is_inverted
    ranges: list[tuple[str, str]] = []
    if glob[at : at + 1] == "]":  # a bracket that comes first is one of the characters
        ranges.append(("]", "]"))
        at += 1
    before = ""
    while at < len(glob) and glob[at] != "]":
        if glob[at] == "-" and before and at + 1 < len(glob) and glob[at + 1] != "]":
            ranges += [(before, glob[at + 1])] if before <= glob[at + 1] else []
            before = ""
            at += 2
        else:
            before = glob[at]
            ranges.append((before, before))
            at += 1
    if at >= len(glob):
        return None, at
    if not ranges:
        return ("." if is_inverted else None), at + 1
    members = "".join(f"\\U{ord(low):08x}-\\U{ord(high):08x}" for low, high in ranges)
    return f"[{'^' if is_inverted else ''}{members}]", at + 1


def viewer_sql(viewer: Viewer, key: str) -> Condition:
    """Return a condition on `c` and its values: shared notes, and notes and conversations of the viewer."""
    return join_visible(viewer, key, _notes_sql, _key_sql)


def _key_sql(pattern: KeyPattern, key: str) -> Condition:
    """Return a condition on the key of a conversation and its values. A pattern leaves the account open: the text up to
    the next colon."""
    start, upper = pattern.start, f"{pattern.start[:-1]};"  # ';' follows ':'
    within = f"{key} >= %s AND {key} < %s"
    if not pattern.end and not pattern.inside:
        return f"({within})", [start, upper]
    after = f"substr({key}, {len(start) + 1})"
    rest = f"substr({after}, strpos({after}, ':'))"
    condition = f"{rest} = %s" if pattern.end else f"starts_with({rest}, %s)"
    return f"({within} AND strpos({after}, ':') > 0 AND {condition})", [start, upper, pattern.end or pattern.inside]


def _notes_sql(viewer: Viewer) -> Condition:
    """Return a condition on the path of a note and its values: it is shared, or the viewer's."""
    start = len(PRIVATE_FOLDER) + 2
    path = 'lower(c.path COLLATE "C")'
    clause = f"(left({path}, {start - 1}) <> '{PRIVATE_FOLDER}/'"
    if not viewer.folders:
        return f"{clause})", []
    inside = f"substr({path}, {start})"
    clause += f" OR (strpos({inside}, '/') > 0 AND split_part({inside}, '/', 1) = ANY(%s::text[]))"
    return f"{clause})", [sorted(viewer.folders)]


def hidden_notes_sql(filters: Filter) -> Condition:
    """Return a condition on the path of a note and its values, for what a project and a viewer do not see."""
    return join_hidden_notes(filters, scope_sql, _notes_sql)


def scope_sql(scope: ProjectScope) -> Condition:
    """Return a condition on the path of `c` and its values: nothing of another project."""
    start = len(PROJECTS_FOLDER) + 2
    clause = (
        f"(left(lower(c.path COLLATE \"C\"), {start - 1}) <> '{PROJECTS_FOLDER}/'"
        f" OR strpos(substr(c.path, {start}), '/') = 0 OR starts_with(substr(c.path, {start}), %s))"
    )
    values: list[Any] = [f"{scope.name}/"]
    if scope.hidden_transcripts:
        clause += " AND NOT c.path = ANY(%s::text[])"
        values.append(sorted(scope.hidden_transcripts))
    return clause, values
