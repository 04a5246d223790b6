"""OpenClaw's sessions: transcripts as pi writes them, in files or in SQLite, and a list of whose each one is."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

from kept.errors import SessionKeyInvalid
from kept.records import Problem
from kept.sessions.entries import FLUSH, MODEL, THINKING, Entry, StateEntry
from kept.sessions.importers.draft import (
    Draft,
    Drafting,
    as_count,
    as_dict,
    as_text,
    given,
    key_for,
    read_time,
    short_text,
)
from kept.sessions.importers.openclaw_sqlite import Database
from kept.sessions.importers.pi import draft_records
from kept.sessions.importers.source import Source, load_json, open_regular, shown
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
"""By the id of a session: its key, and what OpenClaw has noted about it."""


def read(source: Source, agent_id: str) -> list[Draft]:
    """A transcript in a file. The list beside it says whose it is."""
    listed, problem = read_list(os.path.join(os.path.dirname(source.path), LIST_NAME))
    if problem:
        source.say(problem)
    drafting = draft_records(source, FORMAT)
    return [] if drafting is None else [_finish(drafting, listed, agent_id)]


def read_database(database: Database, agent_id: str) -> Iterator[tuple[Source, Draft | None]]:
    """The transcripts in a database, one after the other."""
    for source in database.sources():
        drafting = draft_records(source, FORMAT)
        yield source, None if drafting is None else _finish(drafting, database.listed, agent_id)


def read_list(path: str) -> tuple[Listed, str | None]:
    """`sessions.json`, and what is wrong with it. That there is none is no problem."""
    return _read_list(path, FileState.of(path))


@lru_cache(maxsize=1)
def _read_list(path: str, state: FileState | None) -> tuple[Listed, str | None]:
    """Once for all the transcripts beside it, as long as it stays as it was."""
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


def _finish(drafting: Drafting, listed: Listed, agent_id: str) -> Draft:
    key, entry = listed.get(drafting.original_id, ("", {}))
    state = {
        MODEL: as_text(entry.get("modelOverride")),
        THINKING: as_text(entry.get("thinkingLevel")),
    }
    return drafting.finish(
        to_key(key, agent_id) if key else key_for(agent_id, FORMAT, None),
        state={name: value for name, value in state.items() if value},
        compactions=as_count(entry.get("compactionCount")),
        metadata={FORMAT: {"sessionKey": key, **given(entry, *_COUNTERS)}} if key else None,
        added=_flush(drafting, entry),
    )


def _flush(drafting: Drafting, entry: dict[str, Any]) -> tuple[Entry, ...]:
    when = read_time(entry.get("memoryFlushAt"))
    if when is None:
        return ()
    told = StateEntry(FLUSH, given(entry, "memoryFlushCompactionCount") or None)
    return (Entry(f"{drafting.id}{FLUSH_ENDING}", drafting.last_id, when, told),)


def to_key(text: str, agent_id: str) -> SessionKey:
    """OpenClaw's key as one of ours: channel, account, kind of chat and person where it names them."""
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
    """Whose transcript a file below OpenClaw's folder is, when it is another agent's than the one asked for."""
    parts = os.path.relpath(path, root).split(os.sep)
    for folder, name in pairwise(parts[:-1]):
        if folder == "agents":
            return None if name == agent_id else name
    return None


def describe_other_agents(found: Mapping[str, int], root: str) -> list[Problem]:
    return [
        Problem(
            shown(os.path.join(root, "agents", name)),
            f"belongs to the agent '{shown(name)}' ({count:,} files); bring it in with --agent {shown(name)}",
        )
        for name, count in sorted(found.items())
    ]
