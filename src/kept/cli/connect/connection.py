"""Connecting a client: plan the changes to its files, apply them, undo them.

Before a settings file is changed, a copy of it is kept in Kept's home. Undoing removes our entry, and nothing else.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from typing import Any, Literal

from kept.agent.recent_context import Sent
from kept.base.clock import SystemClock
from kept.base.digest import digest_bytes
from kept.base.durable import make_private_folder, sync_folder, write_atomic
from kept.base.file_lock import locked
from kept.base.values import frozen
from kept.cli.connect.clients import (
    FOLDER,
    NAME,
    Client,
    ClientEnvironment,
    Scope,
    entry_for,
    locate,
    plugin_files,
    settings_entries,
)
from kept.cli.connect.settings_editor import edit_json, edit_toml
from kept.config.layers import read_settings
from kept.errors import ConfigError, LockBusy, WriteFailed
from kept.gateway.app import ServerCommand

Kind = Literal["created", "changed", "unchanged", "removed"]
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
        sides = (self.before, self.after)
        before, after = (os.devnull if raw is None else self.path for raw in sides)
        old, new = ((raw or b"").decode("utf-8", "replace").splitlines() for raw in sides)
        return difflib.unified_diff(old, new, before, after, lineterm="")


class Connection:
    """One client in one scope, with copies of the settings that were changed."""

    def __init__(self, client: Client, scope: Scope, environment: ClientEnvironment, *, kept_home: str) -> None:
        self.client = client
        self.scope: Scope = scope
        self.plugin_folder = os.path.join(kept_home, FOLDER)
        self.settings_path = locate(client, scope, environment)
        self.folder = os.path.join(kept_home, "connect")

    @property
    def with_plugin(self) -> bool:
        """True if the client gets hooks too, which send notes to its model."""
        return self.client.name == "claude-code" and self.scope == "user"

    # planning

    def plan(
        self, command: ServerCommand, *, project: str | None = None, sent: Sent = "memory", undo: bool = False
    ) -> list[Change]:
        """Return the changes that add the server to the client's settings, or with ``undo`` take it out again. ``sent``
        is what its hook sends, if it gets one.

        ``project`` names the project that the entry in a project's own settings is for. An entry for all of them finds
        it by the folder that the client works in.
        """
        entry = entry_for(self.client, command, project if self.scope == "project" else None)
        files = plugin_files(command, sent) if self.with_plugin else {}
        paths = {os.path.join(self.plugin_folder, name): content for name, content in files.items()}
        changes = [Change(path, _read(path), None if undo else content) for path, content in paths.items()]
        path, before = self.settings_path, _read(self.settings_path)
        try:
            text = edited = (before or b"").decode("utf-8")
        except UnicodeDecodeError as exc:
            raise ConfigError(f"{path}: not UTF-8 at byte {exc.start}.", hint="Nothing was changed.") from exc
        entries: list[tuple[tuple[str, ...], Any]] = [((*self.client.keys, NAME), entry)]
        if self.with_plugin:
            entries = settings_entries(self.plugin_folder)
        for keys, value in [] if undo and before is None else entries:
            edit = edit_toml if path.endswith(".toml") else edit_json
            edited = edit(path, edited, keys, None if undo else value)
        return [*changes, Change(path, before, before if edited == text else edited.encode())]

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
                if change.path == self.settings_path and change.before is not None:
                    name = f"{SystemClock().now():%Y%m%dT%H%M%S}-{self.client.name}-{os.path.basename(change.path)}"
                    copy = os.path.join(self.folder, f"{digest_bytes(change.before)[:8]}-{name}")
                    write_atomic(copy, change.before)
                _write(change)
        return copy


def _read(path: str) -> bytes | None:
    return read_settings(path, max_bytes=_MAX_BYTES)


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
