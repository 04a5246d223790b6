"""Sessions of OpenClaw and of pi, whose format it uses: records → drafts."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from types import TracebackType
from typing import Any

import apsw

from kept.base.limits import as_dict
from kept.errors import SessionKeyInvalid
from kept.sessions.entries import MODEL, TITLE, Body, CompactionEntry, Message, StateEntry, TokenUsage
from kept.sessions.importers.draft import (
    Draft,
    DraftBuilder,
    as_count,
    as_text,
    key_for,
    present_fields,
    read_blocks,
    read_time,
    result_blocks,
    short_text,
)
from kept.sessions.importers.source import Record, Source, load_json, open_regular
from kept.sessions.session_key import DEFAULT_ACCOUNT, SessionKey

# pi: a header, then a tree of entries by id and parentId. All branches are kept, in the order of the file, with their
# parents. An entry without an id follows the previous one.

PI = "pi"
_KINDS = ("message", "compaction", "model_change", "thinking_level_change", "custom_message", "branch_summary")
_NAMED_FILE = re.compile(r"^[^_]+_(?P<id>.+)$")


def read_pi(source: Source, agent_id: str) -> list[Draft]:
    builder = draft_records(source, PI)
    return [] if builder is None else [builder.finish(key_for(agent_id, PI, builder.id))]


def draft_records(source: Source, format_name: str) -> DraftBuilder | None:
    """Build a session from all records of a source. Return None if it has no header and no entries of this format."""
    builder: DraftBuilder | None = None
    for record in source.records():
        kind = as_text(record.tree.get("type"))
        if builder is None:
            if kind not in ("session", *_KINDS):
                continue
            builder = _begin(source, record, format_name)
            if kind == "session":
                continue
        _add(builder, record)
    return builder


def _begin(source: Source, record: Record, format_name: str) -> DraftBuilder:
    tree = record.tree if record.tree.get("type") == "session" else {}
    session_id = as_text(tree.get("id")) or _id_from_name(source.path)
    builder = DraftBuilder(source, format_name, session_id)
    builder.created = read_time(tree.get("timestamp"))
    builder.metadata = present_fields(tree, "cwd", "parentSession", "branchedFrom")
    if not tree:
        source.report("has no header; the session is named after the file", line=record.line)
    if isinstance(tree.get("modelId"), str):
        builder.metadata[MODEL] = tree["modelId"]
    return builder


def _id_from_name(path: str) -> str:
    stem = os.path.basename(path).partition(".jsonl")[0]
    match = _NAMED_FILE.match(stem)
    return match["id"] if match else stem or "session"


def _add(builder: DraftBuilder, record: Record) -> None:
    tree = record.tree
    own_id, when = tree.get("id"), tree.get("timestamp")
    parent = tree.get("parentId", "")
    if builder.is_repeated(record, own_id):
        return
    when = when if read_time(when) else as_dict(tree.get("message")).get("timestamp")
    body = _body(builder, record)
    if body is None:
        builder.leave_out(own_id, parent)
    else:
        builder.add(record, body, own_id=own_id, parent=parent, when=when)


def _body(builder: DraftBuilder, record: Record) -> Body | None:
    tree = record.tree
    match tree.get("type"):
        case "message":
            return _message(as_dict(tree.get("message")), builder.source, record)
        case "custom_message":
            content = read_blocks(tree.get("content"), builder.source, record)
            return Message("system", content)
        case "branch_summary" if isinstance(tree.get("summary"), str):
            return Message.of("system", tree["summary"])
        case "compaction" if isinstance(tree.get("summary"), str):
            return _compaction(tree)
        case "model_change" if isinstance(tree.get("modelId"), str):
            provider = short_text(tree.get("provider"))
            return StateEntry(MODEL, f"{provider}/{tree['modelId']}" if provider else tree["modelId"])
        case "session_info" if isinstance(tree.get("name"), str):
            return StateEntry(TITLE, tree["name"])
        case _:
            return None


def _compaction(tree: dict[str, Any]) -> CompactionEntry:
    return CompactionEntry(
        tree["summary"],
        first_kept_id=as_text(tree.get("firstKeptEntryId")),
        tokens_before=as_count(tree.get("tokensBefore")) or None,
        source="model",
    )


def _message(message: dict[str, Any], source: Source, record: Record) -> Message | None:
    content = read_blocks(message.get("content"), source, record)
    match message.get("role"):
        case "user":
            return Message("user", content)
        case "assistant":
            return Message("assistant", content, model=as_text(message.get("model")), usage=_usage(message))
        case "toolResult":
            is_error = message.get("isError") is True
            # Its details repeat the result and the arguments.
            return Message("tool", result_blocks(message.get("toolCallId"), message.get("toolName"), is_error, content))
        case "bashExecution":
            text = f"$ {as_text(message.get('command')) or ''}\n{as_text(message.get('output')) or ''}"
            return Message.of("user", text)
        case "branchSummary" | "compactionSummary":
            return Message.of("system", as_text(message.get("summary")) or "")
        case "custom" | "hookMessage" | "system" | "developer":
            return Message("system", content)
        case _:
            return None


def _usage(message: dict[str, Any]) -> TokenUsage | None:
    usage = message.get("usage")
    if not isinstance(usage, dict):
        return None
    tokens_in = sum(as_count(usage.get(name)) for name in ("input", "cacheRead", "cacheWrite"))
    tokens_out = as_count(usage.get("output"))
    return TokenUsage(tokens_in, tokens_out, as_count(usage.get("totalTokens")) or tokens_in + tokens_out)


# OpenClaw: transcripts in files or in SQLite, and a list with the key of each. A database is copied with its log and
# read there: reading it in place would write to OpenClaw's folder.

OPENCLAW = "openclaw"
LIST_NAME = "sessions.json"
_LARGEST_LIST = 256_000_000
_CHAT_TYPES = {"dm": "direct", "direct": "direct", "group": "group", "channel": "channel"}

_State = tuple[int, int, int]
"""Inode, size and time of a file."""
Listed = Mapping[str, tuple[str, dict[str, Any]]]
"""Key of a session and OpenClaw's record of it, by the session's id."""


def read(source: Source, agent_id: str) -> list[Draft]:
    """Read a transcript from a file. The list beside it has its key."""
    listed, problem = read_list(os.path.join(os.path.dirname(source.path), LIST_NAME))
    if problem:
        source.report(problem)
    builder = draft_records(source, OPENCLAW)
    return [] if builder is None else [_finish(builder, listed, agent_id)]


def read_database(database: OpenClawDatabase, agent_id: str) -> Iterator[tuple[Source, Draft | None]]:
    """Read the transcripts in a database, one at a time."""
    for source in database.sources():
        builder = draft_records(source, OPENCLAW)
        yield source, None if builder is None else _finish(builder, database.listed, agent_id)


def read_list(path: str) -> tuple[Listed, str | None]:
    """Return the content of `sessions.json`, and what is wrong with it. A missing file is not a problem."""
    return _read_list(path, _find_state(path))


@lru_cache(maxsize=1)
def _read_list(path: str, state: _State | None) -> tuple[Listed, str | None]:
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
    model = as_text(entry.get("modelOverride"))
    return builder.finish(
        to_key(key, agent_id) if key else key_for(agent_id, OPENCLAW, builder.id),
        state={MODEL: model} if model else {},
        metadata={OPENCLAW: {"sessionKey": key}} if key else None,
    )


def _title(entry: dict[str, Any]) -> str | None:
    names = (short_text(entry.get(name)) for name in ("label", "subject", "displayName"))
    return next((name for name in names if name), None)


def to_key(text: str, agent_id: str) -> SessionKey:
    """Convert a key of OpenClaw, with channel, account, chat type and user as far as it has them."""
    parts = text.split(":")
    rest = parts[2:] if parts[0] == "agent" and len(parts) > 2 else parts
    try:
        match rest:
            case [kind, *peer] if kind in _CHAT_TYPES and peer:
                return key_for(agent_id, OPENCLAW, ":".join(peer), chat_type=_CHAT_TYPES[kind])
            case [channel, kind, *peer] if kind in _CHAT_TYPES and peer:
                return SessionKey(agent_id, channel, DEFAULT_ACCOUNT, _CHAT_TYPES[kind], ":".join(peer))
            case [channel, account, kind, *peer] if kind in _CHAT_TYPES and peer:
                return SessionKey(agent_id, channel, account, _CHAT_TYPES[kind], ":".join(peer))
            case [kind, *peer] if peer:  # cron, subagent, hook
                return key_for(agent_id, OPENCLAW, ":".join(peer), chat_type=kind)
            case _:
                return key_for(agent_id, OPENCLAW, short_text(":".join(rest)))
    except SessionKeyInvalid:
        return key_for(agent_id, OPENCLAW, short_text(text))


def is_of_agent(path: str, root: str, agent_id: str) -> bool:
    """Return whether a file below OpenClaw's folder is not of another agent than this one."""
    folders = os.path.relpath(path, root).split(os.sep)[:-1]
    return all(name == agent_id for folder, name in pairwise(folders) if folder == "agents")


ENDINGS = (".sqlite", ".sqlite3", ".db")
_MAGIC = b"SQLite format 3\0"
_LISTS = (
    ("session_windows", "session_id", "session_key", "NULL"),
    ("session_nodes", "current_session_id", "session_key", "entry_json"),
    ("session_entries", "session_id", "session_key", "entry_json"),
)


class DatabaseUnreadable(Exception):
    """A database cannot be read. The message is the reason, without the path: the caller knows that."""


def is_database(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


class OpenClawDatabase:
    """An open database. Raises DatabaseUnreadable if it is damaged or is not OpenClaw's."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.listed: dict[str, tuple[str, dict[str, Any]]] = {}
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        try:
            self._db = self._open()
            self._columns = self._columns_of("transcript_events")
            self._read_lists()
        except (apsw.Error, OSError, UnicodeError) as exc:
            self.close()
            raise DatabaseUnreadable(f"cannot be read ({exc})") from exc

    def __enter__(self) -> OpenClawDatabase:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if hasattr(self, "_db"):
            self._db.close()
        if self._copy is not None:
            self._copy.cleanup()

    def _open(self) -> apsw.Connection:
        """Open a copy. Raise OSError if the database changes meanwhile."""
        self._copy = tempfile.TemporaryDirectory(prefix="kept-")
        copy = os.path.join(self._copy.name, "copy.sqlite")
        before = _states(self.path)
        for ending, _ in before:
            shutil.copyfile(f"{self.path}{ending}", f"{copy}{ending}")
        if _states(self.path) != before:
            raise OSError(0, "it is being written to; try again when OpenClaw is not running")
        return apsw.Connection(copy)

    @property
    def has_transcripts(self) -> bool:
        return {"session_id", "seq", "event_json"} <= self._columns

    def _columns_of(self, table: str) -> set[str]:
        return {str(name) for (name,) in self._db.execute("SELECT name FROM pragma_table_info(?)", (table,))}

    def _read_lists(self) -> None:
        for table, session_id, key, entry in _LISTS:
            if {session_id, key} <= self._columns_of(table):
                for row in self._db.execute(f"SELECT {session_id}, {key}, {entry} FROM {table}"):
                    self._add_listed(*row)

    def _add_listed(self, session_id: Any, key: Any, entry: Any) -> None:
        if isinstance(session_id, str) and isinstance(key, str):
            fields = as_dict(load_json(entry.encode("utf-8", "replace"))) if isinstance(entry, str) else {}
            self.listed[session_id] = (key, fields or self.listed.get(session_id, ("", {}))[1])

    def sources(self) -> Iterator[Source]:
        try:
            query = "SELECT DISTINCT session_id FROM transcript_events ORDER BY session_id"
            for session_id in [value for (value,) in self._db.execute(query) if isinstance(value, str)]:
                yield _DatabaseRows(self.path, session_id, self._rows)
        except (apsw.Error, UnicodeError) as exc:
            raise DatabaseUnreadable(f"cannot be read to its end ({exc})") from exc

    def _rows(self, session_id: str) -> Iterator[tuple[Any, Any]]:
        query = "SELECT seq, event_json FROM transcript_events WHERE session_id = ? ORDER BY seq"
        yield from self._db.execute(query, (session_id,))


class _DatabaseRows(Source):
    """Rows of one session."""

    def __init__(self, path: str, session_id: str, rows: Callable[[str], Iterator[tuple[Any, Any]]]) -> None:
        super().__init__(path)
        self.session_id = session_id
        self.is_whole = True
        self._iter_rows = rows

    def records(self) -> Iterator[Record]:
        try:
            for seq, text in self._iter_rows(self.session_id):
                raw = text.encode("utf-8", "replace") if isinstance(text, str) else text
                if isinstance(raw, bytes):
                    yield from self.parse(raw.strip(), seq if isinstance(seq, int) else 0)
                else:  # compressed by OpenClaw, for instance: the session would have holes, so it is not imported
                    self.is_whole = False
                    self.report("the row holds no record that can be read", line=seq if isinstance(seq, int) else None)
        except (apsw.Error, UnicodeError) as exc:
            self.is_whole = False
            self.report(f"session {self.session_id} cannot be read to its end ({exc})")


def _states(path: str) -> list[tuple[str, _State]]:
    states = ((ending, _find_state(f"{path}{ending}")) for ending in ("", "-wal"))
    return [(ending, state) for ending, state in states if state is not None]


def _find_state(path: str) -> _State | None:
    try:
        state = os.stat(path)
    except OSError:
        return None
    return state.st_ino, state.st_size, state.st_mtime_ns
