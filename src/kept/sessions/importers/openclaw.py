"""Transcripts of pi, and of OpenClaw, whose format it is too: records → drafts."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import apsw

from kept.base.limits import as_dict, count_or_zero
from kept.errors import SessionKeyInvalid
from kept.sessions.entries import (
    MODEL,
    TITLE,
    Body,
    CompactionEntry,
    Message,
    StateEntry,
    TokenUsage,
)
from kept.sessions.importers.draft import (
    Draft,
    DraftBuilder,
    as_text,
    key_for,
    read_blocks,
    result_blocks,
    short_text,
)
from kept.sessions.importers.reader import LineReader, Said
from kept.sessions.importers.source import Record, Source, load_json, open_regular
from kept.sessions.session_key import DEFAULT_ACCOUNT, DEFAULT_CHAT_TYPE, SessionKey


class PiReader(LineReader):
    """Reader of pi: a header, then a tree of entries by id and parentId. All branches are kept, in the order of the
    file, with their parents. An entry without an id follows the previous one."""

    channel = "pi"
    header = "session"
    kinds = ("message", "compaction", "model_change", "thinking_level_change", "custom_message", "branch_summary")
    kept_fields = ("cwd", "parentSession", "branchedFrom")

    def begin(self, source: Source, record: Record) -> DraftBuilder | None:
        builder = super().begin(source, record)
        if (
            builder is not None
            and record.tree.get("type") == self.header
            and isinstance(record.tree.get("modelId"), str)
        ):
            builder.metadata[MODEL] = record.tree["modelId"]
        return builder

    def read_record(self, builder: DraftBuilder, record: Record) -> Said:
        return Said(_body(record), record.tree.get("parentId", ""))


def _body(record: Record) -> Body | None:
    tree = record.tree
    match tree.get("type"):
        case "message":
            return _message(as_dict(tree.get("message")), record)
        case "custom_message":
            return Message("system", read_blocks(tree.get("content"), record.place))
        case "branch_summary" if isinstance(tree.get("summary"), str):
            return Message.of("system", tree["summary"])
        case "compaction" if isinstance(tree.get("summary"), str):
            before = count_or_zero(tree.get("tokensBefore")) or None
            return CompactionEntry(tree["summary"], as_text(tree.get("firstKeptEntryId")), before, source="model")
        case "model_change" if isinstance(tree.get("modelId"), str):
            provider = short_text(tree.get("provider"))
            return StateEntry(MODEL, f"{provider}/{tree['modelId']}" if provider else tree["modelId"])
        case "session_info" if isinstance(tree.get("name"), str):
            return StateEntry(TITLE, tree["name"])
        case _:
            return None


def _message(message: dict[str, Any], record: Record) -> Message | None:
    content = read_blocks(message.get("content"), record.place)
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
    tokens_in = sum(count_or_zero(usage.get(name)) for name in ("input", "cacheRead", "cacheWrite"))
    tokens_out = count_or_zero(usage.get("output"))
    return TokenUsage(tokens_in, tokens_out, count_or_zero(usage.get("totalTokens")) or tokens_in + tokens_out)


OPENCLAW = "openclaw"
LIST_NAME = "sessions.json"
_LARGEST_LIST = 256_000_000
_CHAT_TYPES = {"dm": "direct", "direct": "direct", "group": "group", "channel": "channel"}
_ARCHIVED = ".jsonl.reset."
_DATABASES = (".sqlite", ".sqlite3", ".db")
_MAGIC = b"SQLite format 3\0"
_LISTS = (
    ("session_windows", "session_id", "session_key", "NULL"),
    ("session_nodes", "current_session_id", "session_key", "entry_json"),
    ("session_entries", "session_id", "session_key", "entry_json"),
)


Listed = Mapping[str, tuple[str, dict[str, Any]]]
"""Key of a session and OpenClaw's record of it, by the session's id."""


class OpenClawReader(PiReader):
    """Reader of OpenClaw: transcripts in files or in SQLite, and a list with the key of each."""

    channel = OPENCLAW

    def __init__(self, agent_id: str) -> None:
        super().__init__(agent_id)
        self._lists: dict[str, tuple[Listed, str | None]] = {}
        """Lists beside transcripts, by their paths."""
        self._listed: Listed = {}
        """List for the source that is being read."""

    def is_wanted(self, path: str, root: str) -> bool:
        """Return whether a file may have conversations. Those of other agents than this one are left out."""
        folders = os.path.relpath(path, root).split(os.sep)[:-1]
        if any(folder == "agents" and name != self.agent_id for folder, name in pairwise(folders)):
            return False
        return super().is_wanted(path, root) or _ARCHIVED in os.path.basename(path) or path.endswith(_DATABASES)

    def read(self, path: str) -> Iterator[tuple[Source, Draft | None]]:
        if path.endswith(_DATABASES):
            yield from self._read_database(path)
            return
        list_path = os.path.join(os.path.dirname(path), LIST_NAME)
        if list_path not in self._lists:
            self._lists[list_path] = read_list(list_path)
        self._listed, problem = self._lists[list_path]
        for source, draft in super().read(path):
            if problem:
                source.report(problem)
            yield source, draft

    def finish(self, builder: DraftBuilder) -> Draft:
        key, entry = self._listed.get(builder.original_id, ("", {}))
        titles = (short_text(entry.get(name)) for name in ("label", "subject", "displayName"))
        builder.title = builder.title or next(filter(None, titles), None)
        model = as_text(entry.get("modelOverride"))
        return builder.finish(
            to_key(key, self.agent_id) if key else key_for(self.agent_id, OPENCLAW, builder.id),
            state={MODEL: model} if model else {},
            metadata={OPENCLAW: {"sessionKey": key}} if key else None,
        )

    def _read_database(self, path: str) -> Iterator[tuple[Source, Draft | None]]:
        """Read the sessions in a database. It is copied with its log and read there: reading it in place would write to
        OpenClaw's folder."""
        whole = Source(path)
        yield whole, None
        try:
            with open(path, "rb") as file:
                if file.read(len(_MAGIC)) != _MAGIC:
                    return
            with tempfile.TemporaryDirectory(prefix="kept-") as folder:
                db = apsw.Connection(_copy(path, folder))
                try:
                    if {"session_id", "seq", "event_json"} <= _columns(db, "transcript_events"):
                        self._listed = _read_lists(db)
                        for (session_id,) in db.execute("SELECT DISTINCT session_id FROM transcript_events ORDER BY 1"):
                            source = _DatabaseRows(path, session_id, db)
                            yield source, self.read_source(source)
                finally:
                    db.close()
        except (apsw.Error, OSError, UnicodeError) as exc:
            whole.is_unreadable = True
            whole.report(f"cannot be read ({exc})")


def read_list(path: str) -> tuple[Listed, str | None]:
    """Return the content of `sessions.json`, and what is wrong with it. A missing file is not a problem."""
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


def to_key(text: str, agent_id: str) -> SessionKey:
    """Convert a key of OpenClaw, with channel, account, chat type and user as far as it has them."""
    parts = text.split(":")
    rest = parts[2:] if parts[0] == "agent" and len(parts) > 2 else parts
    at = next((at for at, part in enumerate(rest[:-1][:3]) if part in _CHAT_TYPES), None)
    try:
        if at is None:  # cron:ID, subagent:ID, or an id alone
            kind, _, peer = ":".join(rest).partition(":")
            return key_for(agent_id, OPENCLAW, short_text(peer or kind), chat_type=kind if peer else DEFAULT_CHAT_TYPE)
        channel, account = (*rest[:at], OPENCLAW)[0], rest[1] if at == 2 else DEFAULT_ACCOUNT
        return SessionKey(agent_id, channel, account, _CHAT_TYPES[rest[at]], ":".join(rest[at + 1 :]))
    except SessionKeyInvalid:
        return key_for(agent_id, OPENCLAW, short_text(text))


# the database


def _copy(path: str, folder: str) -> str:
    """Copy a database and its log into a folder. Raise OSError if it changes meanwhile."""
    copy = os.path.join(folder, "copy.sqlite")
    names = [path, *filter(os.path.exists, [f"{path}-wal"])]
    before = [_state_of(name) for name in names]
    for name in names:
        shutil.copyfile(name, copy + name.removeprefix(path))
    if [_state_of(name) for name in names] != before:
        raise OSError(0, "it is being written to; try again when OpenClaw is not running")
    return copy


def _state_of(path: str) -> tuple[int, int, int]:
    state = os.stat(path)
    return state.st_ino, state.st_size, state.st_mtime_ns


def _columns(db: apsw.Connection, table: str) -> set[str]:
    return {str(name) for (name,) in db.execute("SELECT name FROM pragma_table_info(?)", (table,))}


def _read_lists(db: apsw.Connection) -> Listed:
    listed: dict[str, tuple[str, dict[str, Any]]] = {}
    for table, session_column, key_column, entry_column in _LISTS:
        if not {session_column, key_column} <= _columns(db, table):
            continue
        for session_id, key, entry in db.execute(f"SELECT {session_column}, {key_column}, {entry_column} FROM {table}"):
            if isinstance(session_id, str) and isinstance(key, str):
                fields = as_dict(load_json(entry.encode("utf-8", "replace"))) if isinstance(entry, str) else {}
                listed[session_id] = (key, fields or listed.get(session_id, ("", {}))[1])
    return listed


class _DatabaseRows(Source):
    """Rows of one session."""

    def __init__(self, path: str, session_id: Any, db: apsw.Connection) -> None:
        super().__init__(path)
        self.session_id = session_id
        self._db = db

    def records(self) -> Iterator[Record]:
        query = "SELECT seq, event_json FROM transcript_events WHERE session_id = ? ORDER BY seq"
        try:
            for seq, text in self._db.execute(query, (self.session_id,)):
                raw = text.encode("utf-8", "replace") if isinstance(text, str) else text
                number = seq if isinstance(seq, int) else 0
                if isinstance(raw, bytes):
                    yield from self.parse(raw.strip(), number)
                else:  # compressed by OpenClaw, for instance: the session would have holes, so it is not imported
                    self.is_whole = False
                    self.report("the row holds no record that can be read", line=number)
        except (apsw.Error, UnicodeError) as exc:
            self.is_whole = False
            self.report(f"session {self.session_id} cannot be read to its end ({exc})")
