"""Sessions of OpenClaw: transcripts in the format of pi, in files or in SQLite, and a list with the key of each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

from kept.errors import SessionKeyInvalid
from kept.limits import as_dict, utf8_path
from kept.records import Problem
from kept.sessions.entries import FLUSH, MODEL, THINKING, Entry, StateEntry
from kept.sessions.importers.draft import (
    Draft,
    DraftBuilder,
    as_count,
    as_text,
    key_for,
    present_fields,
    read_time,
    short_text,
)
from kept.sessions.importers.openclaw_sqlite import OpenClawDatabase
from kept.sessions.importers.pi import draft_records
from kept.sessions.importers.source import Source, load_json, open_regular
from kept.sessions.session_key import DEFAULT_ACCOUNT, SessionKey
from kept.sessions.transcript import FileState

FORMAT = "openclaw"
LIST_NAME = "sessions.json"
FLUSH_ENDING = "-flush"
_LARGEST_LIST = 256_000_000
_CHAT_TYPES = {"dm": "direct", "direct": "direct", "group": "group", "channel": "channel"}
_COUNTERS = (
    "updatedAt",
    "inputTokens",
    "outputTokens",
    "totalTokens",
    "contextTokens",
    "compactionCount",
    "memoryFlushAt",
    "memoryFlushCompactionCount",
    "displayName",
    "subject",
    "label",
    "spawnedBy",
)

Listed = Mapping[str, tuple[str, dict[str, Any]]]
"""Key of a session and OpenClaw's record of it, by the session's id."""


def read(source: Source, agent_id: str) -> list[Draft]:
    """Read a transcript from a file. The list beside it has its key."""
    listed, problem = read_list(os.path.join(os.path.dirname(source.path), LIST_NAME))
    if problem:
        source.report(problem)
    builder = draft_records(source, FORMAT)
    return [] if builder is None else [_finish(builder, listed, agent_id)]


def read_database(database: OpenClawDatabase, agent_id: str) -> Iterator[tuple[Source, Draft | None]]:
    """Read the transcripts in a database, one at a time."""
    for source in database.sources():
        builder = draft_records(source, FORMAT)
        yield source, None if builder is None else _finish(builder, database.listed, agent_id)


def read_list(path: str) -> tuple[Listed, str | None]:
    """Return the content of `sessions.json`, and what is wrong with it. A missing file is not a problem."""
    return _read_list(path, FileState.of(path))


@lru_cache(maxsize=1)
def _read_list(path: str, state: FileState | None) -> tuple[Listed, str | None]:
    """Read the list once for all transcripts beside it, until its state changes."""
    try:
        with open_regular(path) as file:
            tree = load_json(file.read(_LARGEST_LIST))
    except FileNotFoundError:
        return {}, None
    except OSError as exc:
        return {}, f"{LIST_NAME} beside it cannot be read ({exc.strerror}), so its key is not known"
    if not isinstance(tree, dict):
        return {}, f"{LIST_NAME} beside it is damaged, so its key is not known"
    entries = ((key, as_dict(entry)) for key, entry in tree.items())
    return {entry["sessionId"]: (key, entry) for key, entry in entries if isinstance(entry.get("sessionId"), str)}, None


def _finish(builder: DraftBuilder, listed: Listed, agent_id: str) -> Draft:
    key, entry = listed.get(builder.original_id, ("", {}))
    builder.title = builder.title or _title(entry)
    state = {
        MODEL: as_text(entry.get("modelOverride")),
        THINKING: as_text(entry.get("thinkingLevel")),
    }
    return builder.finish(
        to_key(key, agent_id) if key else key_for(agent_id, FORMAT, builder.id),
        state={name: value for name, value in state.items() if value},
        compactions=as_count(entry.get("compactionCount")),
        metadata={FORMAT: {"sessionKey": key, **present_fields(entry, *_COUNTERS)}} if key else None,
        added=_flush(builder, entry),
    )


def _title(entry: dict[str, Any]) -> str | None:
    names = (short_text(entry.get(name)) for name in ("label", "subject", "displayName"))
    return next((name for name in names if name), None)


def _flush(builder: DraftBuilder, entry: dict[str, Any]) -> tuple[Entry, ...]:
    when = read_time(entry.get("memoryFlushAt"))
    if when is None:
        return ()
    flush = StateEntry(FLUSH, present_fields(entry, "memoryFlushCompactionCount") or None)
    return (Entry(f"{builder.id}{FLUSH_ENDING}", builder.last_id, when, flush),)


def to_key(text: str, agent_id: str) -> SessionKey:
    """Convert a key of OpenClaw, with channel, account, chat type and user as far as it has them."""
    parts = text.split(":")
    rest = parts[2:] if parts[0] == "agent" and len(parts) > 2 else parts
    try:
        match rest:
            case [kind, *peer] if kind in _CHAT_TYPES and peer:
                return key_for(agent_id, FORMAT, ":".join(peer), chat_type=_CHAT_TYPES[kind])
            case [channel, kind, *peer] if kind in _CHAT_TYPES and peer:
                return SessionKey(agent_id, channel, DEFAULT_ACCOUNT, _CHAT_TYPES[kind], ":".join(peer))
            case [channel, account, kind, *peer] if kind in _CHAT_TYPES and peer:
                return SessionKey(agent_id, channel, account, _CHAT_TYPES[kind], ":".join(peer))
            case [kind, *peer] if peer:  # cron, subagent, hook
                return key_for(agent_id, FORMAT, ":".join(peer), chat_type=kind)
            case _:
                return key_for(agent_id, FORMAT, short_text(":".join(rest)))
    except SessionKeyInvalid:
        return key_for(agent_id, FORMAT, short_text(text))


def other_agent(path: str, root: str, agent_id: str) -> str | None:
    """Return the agent of a file below OpenClaw's folder, if it is not the agent to import."""
    parts = os.path.relpath(path, root).split(os.sep)
    for folder, name in pairwise(parts[:-1]):
        if folder == "agents":
            return None if name == agent_id else name
    return None


def describe_other_agents(file_counts: Mapping[str, int], root: str) -> list[Problem]:
    return [
        Problem(
            utf8_path(os.path.join(root, "agents", name)),
            f"belongs to the agent '{utf8_path(name)}' ({count:,} files); import it with --agent {utf8_path(name)}",
        )
        for name, count in sorted(file_counts.items())
    ]
