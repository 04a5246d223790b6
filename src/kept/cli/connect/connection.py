"""Connecting a client: plan the changes to its files, apply them, undo them.

Before a settings file is changed for the first time, a copy of it is kept in Kept's home, and a journal records the
hash of the result. Undoing restores the copy byte for byte if the file still has that hash; if it was changed since,
only our entry is removed.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
from collections.abc import Iterator
from typing import Any, Literal

from kept.base.clock import Clock, SystemClock
from kept.base.durable import make_private_folder, sync_folder, write_atomic
from kept.base.file_lock import locked
from kept.base.values import frozen
from kept.cli.connect.clients import (
    SERVER,
    Client,
    ClientEnvironment,
    Scope,
    Sent,
    entry_for,
    locate,
    plugin_files,
    plugin_folder,
    settings_entries,
)
from kept.cli.connect.settings_editor import remove_json_entry, remove_table, set_json_entry, set_table
from kept.config.read import read_settings
from kept.errors import ConfigError, LockBusy, WriteFailed
from kept.gateway.app import ServerCommand

Kind = Literal["created", "changed", "unchanged", "removed"]
JOURNAL = "journal.json"
_LOCK_WAIT_S = 10.0
_MAX_BYTES = 2_000_000


@frozen
class Change:
    """Content of one file before and after. None means that the file does not exist."""

    path: str
    before: bytes | None
    after: bytes | None

    @property
    def kind(self) -> Kind:
        if self.before == self.after:
            return "unchanged"
        return "created" if self.before is None else "removed" if self.after is None else "changed"

    def diff(self) -> Iterator[str]:
        return difflib.unified_diff(
            _lines(self.before),
            _lines(self.after),
            self.path if self.before is not None else os.devnull,
            self.path if self.after is not None else os.devnull,
            lineterm="",
        )


class Connection:
    """One client in one scope, with the copies and the journal that undoing needs."""

    def __init__(
        self,
        client: Client,
        scope: Scope,
        environment: ClientEnvironment,
        *,
        kept_home: str,
        clock: Clock | None = None,
    ) -> None:
        self.client = client
        self.scope: Scope = scope
        self.kept_home = kept_home
        self.settings_path = locate(client, scope, environment)
        self.folder = os.path.join(kept_home, "connect")
        self.clock = clock or SystemClock()

    @property
    def with_plugin(self) -> bool:
        """True if the client gets hooks too, which send notes to its model."""
        return self.client.name == "claude-code" and self.scope == "user"

    # planning

    def plan(self, command: ServerCommand, *, project: str | None = None, sent: Sent = "memory") -> list[Change]:
        """Return the changes that add the server to the client's settings. ``sent`` is what its hook sends, if it gets
        one.

        ``project`` names the project that the entry in a project's own settings is for. An entry for all of them finds
        it by the folder that the client works in.
        """
        before = _read(self.settings_path)
        text = _decode(self.settings_path, before)
        if self.with_plugin:
            folder = plugin_folder(self.kept_home)
            edited = text
            for path, entry in settings_entries(folder):
                edited = set_json_entry(self.settings_path, edited, path, entry)
            files = [
                Change(os.path.join(folder, name), _read(os.path.join(folder, name)), content)
                for name, content in plugin_files(command, sent).items()
            ]
        else:
            named = project if self.scope == "project" else None
            edited, files = self._set(text, entry_for(self.client, command, named)), []
        after = before if edited == text and before is not None else edited.encode()
        return [*files, Change(self.settings_path, before, after)]

    def _set(self, text: str, entry: dict[str, Any]) -> str:
        if self.client.format == "toml":
            return set_table(self.settings_path, text, (self.client.keys[0], SERVER), entry)
        return set_json_entry(self.settings_path, text, (*self.client.keys, SERVER), entry)

    def plan_undo(self) -> list[Change]:
        """Return the changes that remove the server from the client's settings again."""
        before = _read(self.settings_path)
        folder = plugin_folder(self.kept_home)
        names = plugin_files(ServerCommand("kept", ()), "memory") if self.with_plugin else ()
        paths = [os.path.join(folder, name) for name in names]
        files = [Change(path, _read(path), None) for path in paths]
        if before is None:
            return [*files, Change(self.settings_path, None, None)]
        record = self._journal().get(self.settings_path)
        if record and record["after"] == _digest(before):
            return [*files, Change(self.settings_path, before, _read_copy(record))]
        text = _decode(self.settings_path, before)
        edited = self._without_entry(text)
        return [*files, Change(self.settings_path, before, before if edited == text else edited.encode())]

    def _without_entry(self, text: str) -> str:
        if self.client.format == "toml":
            return remove_table(self.settings_path, text, (self.client.keys[0], SERVER))
        paths = [path for path, _ in settings_entries("")] if self.with_plugin else [(*self.client.keys, SERVER)]
        for path in paths:
            text = remove_json_entry(self.settings_path, text, path)
        return text

    # applying

    def apply(self, changes: list[Change], *, undo: bool = False) -> str | None:
        """Write the changes, the client's own settings last, or first to undo them. Return the path of the copy, if
        the settings existed."""
        copy = None
        make_private_folder(self.folder)
        with locked(self.folder, wait_s=_LOCK_WAIT_S, purpose="connecting a program"):
            for change in reversed(changes) if undo else changes:
                if change.kind == "unchanged":
                    continue
                if _read(change.path) != change.before:
                    raise LockBusy(f"{change.path} was changed in the meantime.", hint="Run the command again.")
                if change.path == self.settings_path and not undo:
                    copy = self._record(change)
                _write(change)
            journal = self._journal()
            if undo and journal.pop(self.settings_path, None) is not None:
                self._write_journal(journal)
        return copy

    # copies and journal

    def _record(self, change: Change) -> str | None:
        """Record the hash of the new content, and keep a copy of the old one unless we wrote it. Return the path of the
        copy."""
        journal = self._journal()
        record = journal.get(change.path)
        if record is None or record["after"] != _digest(change.before or b""):
            record = {"copy": self._write_copy(change)}
        journal[change.path] = {**record, "after": _digest(change.after or b"")}
        self._write_journal(journal)
        copy: str | None = record["copy"]
        return copy

    def _write_copy(self, change: Change) -> str | None:
        if change.before is None:
            return None
        key = _digest(os.fsencode(change.path))[:8]  # several projects may have files of the same name
        name = f"{self.clock.now():%Y%m%dT%H%M%S}-{self.client.name}-{key}-{os.path.basename(change.path)}"
        copy = os.path.join(self.folder, name)
        write_atomic(copy, change.before)
        return copy

    def _journal(self) -> dict[str, Any]:
        return read_journal(_read(os.path.join(self.folder, JOURNAL)))[0]

    def _write_journal(self, journal: dict[str, Any]) -> None:
        path = os.path.join(self.folder, JOURNAL)
        before = _read(path)
        if read_journal(before)[1]:
            aside = f"{path}.damaged"
            write_atomic(aside, (_read(aside) or b"") + (before or b""))
        write_atomic(path, (json.dumps(journal, indent=2) + "\n").encode())


def read_journal(raw: bytes | None) -> tuple[dict[str, Any], list[str]]:
    """Return the readable records by path, and a description of every part that cannot be read."""
    try:
        tree = json.loads(raw) if raw else {}
    except (ValueError, RecursionError):
        return {}, ["it is not JSON"]
    if not isinstance(tree, dict):
        return {}, ["it is not an object"]
    records = {path: record for path, record in tree.items() if _is_record(record)}
    return records, [f"the record of {path} cannot be read" for path in tree if path not in records]


def _is_record(record: Any) -> bool:
    is_copied = isinstance(record, dict) and isinstance(record.get("copy", 0), str | None)
    return is_copied and isinstance(record.get("after"), str)


def _read_copy(record: dict[str, Any]) -> bytes | None:
    if record["copy"] is None:
        return None
    copy = _read(record["copy"])
    if copy is None:
        raise ConfigError(f"{record['copy']}: the copy of the old settings is gone.", hint="Remove the entry by hand.")
    return copy


def _read(path: str) -> bytes | None:
    return read_settings(path, max_bytes=_MAX_BYTES)


def _decode(path: str, raw: bytes | None) -> str:
    try:
        return (raw or b"").decode("utf-8")
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{path}: not UTF-8 at byte {exc.start}.", hint="Nothing was changed.") from exc


def _write(change: Change) -> None:
    """Write the target of a symbolic link, not the link: people keep their settings elsewhere and link to them."""
    path = os.path.realpath(change.path)
    if change.after is not None:
        write_atomic(path, change.after)
        return
    try:
        os.unlink(path)
        sync_folder(os.path.dirname(path))
    except OSError as exc:
        raise WriteFailed(f"{path}: could not be removed ({exc.strerror}).", hint="Check its permissions.") from exc


def _lines(raw: bytes | None) -> list[str]:
    return (raw or b"").decode("utf-8", "replace").splitlines()


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
