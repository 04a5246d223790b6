"""What connecting would change, doing it, and undoing it.

Before a file is changed for the first time a copy of it is kept below Kept's home. Undoing puts that back byte for byte
where the file is as it was left; where somebody has changed it since, only what is ours is taken out.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
from collections.abc import Iterator
from typing import Any, Literal

from kept.clock import Clock, SystemClock
from kept.config.settings_file import read_settings
from kept.connect.clients import SERVER, Client, Scope, Surroundings, entry_for, locate
from kept.connect.command import Command
from kept.connect.json_text import refuse, remove_entry, set_entry
from kept.connect.json_tree import Broken, as_read, parse
from kept.connect.plugin import plugin_files, plugin_folder, settings_entries
from kept.connect.toml_text import remove_table, set_table
from kept.durable import make_private_folder, sync_folder, write_atomic
from kept.errors import ConfigError, LockBusy, WriteFailed
from kept.lock import locked
from kept.values import frozen

Kind = Literal["created", "changed", "unchanged", "removed"]
_JOURNAL = "journal.json"
_LOCK_WAIT_S = 10.0
_MAX_BYTES = 2_000_000


@frozen
class Change:
    """One file, before and after. None is a file that is not there."""

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
    """One client, in one scope, and what is kept of how its files were."""

    def __init__(
        self, client: Client, scope: Scope, around: Surroundings, *, kept_home: str, clock: Clock | None = None
    ) -> None:
        self.client = client
        self.scope: Scope = scope
        self.kept_home = kept_home
        self.settings_path = locate(client, scope, around)
        self.folder = os.path.join(kept_home, "connect")
        self.clock = clock or SystemClock()

    @property
    def _with_plugin(self) -> bool:
        return self.client.name == "claude-code" and self.scope == "user"

    # planning

    def plan(self, command: Command) -> list[Change]:
        """What has to change so that the client knows the server."""
        before = _read(self.settings_path)
        text = _decode(self.settings_path, before)
        if self._with_plugin:
            folder = plugin_folder(self.kept_home)
            made = text
            for path, entry in settings_entries(folder):
                made = self._set_json(made, path, entry)
            files = [
                Change(os.path.join(folder, name), _read(os.path.join(folder, name)), content)
                for name, content in plugin_files(command).items()
            ]
        else:
            made, files = self._set(text, entry_for(self.client, command)), []
        after = before if made == text and before is not None else made.encode()
        return [*files, Change(self.settings_path, before, after)]

    def _set(self, text: str, entry: dict[str, Any]) -> str:
        if self.client.format == "toml":
            return set_table(self.settings_path, text, (self.client.keys[0], SERVER), entry)
        return self._set_json(text, (*self.client.keys, SERVER), entry)

    def _set_json(self, text: str, path: tuple[str, ...], entry: Any) -> str:
        dialect = self.client.format
        try:
            made = set_entry(text, path, entry, dialect)
            _check_only_that_changed(text, made, path, entry, dialect)
        except Broken as exc:
            raise refuse(self.settings_path, text, exc) from exc
        return made

    def plan_undo(self) -> list[Change]:
        """What has to change so that the client is as it was."""
        before = _read(self.settings_path)
        files = self._plugin_gone() if self._with_plugin else []
        if before is None:
            return [*files, Change(self.settings_path, None, None)]
        noted = self._journal().get(self.settings_path)
        if noted and noted["after"] == _digest(before):
            return [*files, Change(self.settings_path, before, self._kept_copy(noted))]
        text = _decode(self.settings_path, before)
        made = self._removed(text)
        return [*files, Change(self.settings_path, before, before if made == text else made.encode())]

    def _plugin_gone(self) -> list[Change]:
        folder = plugin_folder(self.kept_home)
        paths = [os.path.join(folder, name) for name in plugin_files(Command("kept", ()))]
        return [Change(path, _read(path), None) for path in paths]

    def _removed(self, text: str) -> str:
        if self.client.format == "toml":
            return remove_table(self.settings_path, text, (self.client.keys[0], SERVER))
        try:
            if self._with_plugin:
                for path, _ in settings_entries(""):
                    text = _remove_json(text, path, self.client.format)
                return text
            return _remove_json(text, (*self.client.keys, SERVER), self.client.format)
        except Broken as exc:
            raise refuse(self.settings_path, text, exc) from exc

    # doing

    def apply(self, changes: list[Change]) -> str | None:
        """Makes the changes, the client's own settings last. Where the copy of what was there is, if one was made."""
        make_private_folder(self.folder)
        with locked(self.folder, wait_s=_LOCK_WAIT_S, purpose="connecting a program"):
            copy = None
            for change in changes:
                if change.kind == "unchanged":
                    continue
                if _read(change.path) != change.before:
                    raise LockBusy(f"{change.path} was changed in the meantime.", hint="Run it again.")
                if change.path == self.settings_path and change.after is not None:
                    copy = self._note(change)
                _write(change)
            return copy

    def apply_undo(self, changes: list[Change]) -> None:
        make_private_folder(self.folder)
        with locked(self.folder, wait_s=_LOCK_WAIT_S, purpose="connecting a program"):
            for change in reversed(changes):
                if change.kind != "unchanged":
                    if _read(change.path) != change.before:
                        raise LockBusy(f"{change.path} was changed in the meantime.", hint="Run it again.")
                    _write(change)
            journal = self._journal()
            if journal.pop(self.settings_path, None) is not None:
                self._write_journal(journal)

    # what was there before

    def _note(self, change: Change) -> str | None:
        """Keeps a copy of a file as it was before it was first changed, and what was made of it."""
        journal = self._journal()
        noted = journal.get(change.path)
        if noted is None or noted["after"] != _digest(change.before or b""):
            place = _digest(os.fsencode(change.path))[:8]  # several projects may have files of one name
            name = f"{self.clock.now():%Y%m%dT%H%M%S}-{self.client.name}-{place}-{os.path.basename(change.path)}"
            copy = None if change.before is None else os.path.join(self.folder, name)
            if copy is not None and change.before is not None:
                write_atomic(copy, change.before)
            noted = {"copy": copy}
        journal[change.path] = {**noted, "after": _digest(change.after or b"")}
        self._write_journal(journal)
        found: str | None = noted["copy"]
        return found

    def _kept_copy(self, noted: dict[str, Any]) -> bytes | None:
        if noted["copy"] is None:
            return None
        kept = _read(noted["copy"])
        if kept is None:
            raise ConfigError(f"{noted['copy']}: the copy of what was there is gone.", hint="Remove the entry by hand.")
        return kept

    def _journal(self) -> dict[str, Any]:
        raw = _read(os.path.join(self.folder, _JOURNAL))
        try:
            tree = json.loads(raw) if raw else {}
        except (ValueError, RecursionError):
            return {}
        return {
            path: noted
            for path, noted in (tree.items() if isinstance(tree, dict) else ())
            if isinstance(noted, dict) and isinstance(noted.get("after"), str) and "copy" in noted
        }

    def _write_journal(self, journal: dict[str, Any]) -> None:
        write_atomic(os.path.join(self.folder, _JOURNAL), (json.dumps(journal, indent=2) + "\n").encode())


def _check_only_that_changed(text: str, made: str, path: tuple[str, ...], entry: Any, dialect: str) -> None:
    """Reads what was made: it has to say what the file said before, and the entry."""
    before: Any = parse(text, dialect).value if text.strip("\ufeff \t\r\n") else {}
    place = before
    for key in path[:-1]:
        place = place.setdefault(key, {})
    wanted = as_read(entry)
    old = place.get(path[-1])
    place[path[-1]] = {**old, **wanted} if isinstance(old, dict) and isinstance(wanted, dict) else wanted
    if parse(made, dialect).value != before:
        raise Broken("it is written in a way that cannot be changed without touching the rest", 0)


def _remove_json(text: str, path: tuple[str, ...], dialect: str) -> str:
    made = remove_entry(text, path, dialect)
    if made != text:
        wanted: Any = parse(text, dialect).value
        place = wanted
        for key in path[:-1]:
            place = place[key]
        del place[path[-1]]
        if parse(made, dialect).value != wanted:
            raise Broken("it is written in a way that cannot be changed without touching the rest", 0)
    return made


def _read(path: str) -> bytes | None:
    return read_settings(path, max_bytes=_MAX_BYTES)


def _decode(path: str, raw: bytes | None) -> str:
    try:
        return (raw or b"").decode("utf-8")
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{path}: not UTF-8 at byte {exc.start}.", hint="Nothing was changed.") from exc


def _write(change: Change) -> None:
    """Through a symbolic link, to the file it stands for: people keep their settings elsewhere and link to them."""
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
