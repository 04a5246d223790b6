"""Restores an archive.

The archive is checked to its end before anything is changed. Then each document and each log is written with one
commit, so a restore that is killed leaves whole files, and the same command continues it. A file that is here stays,
whatever its content. Settings come last.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Literal, get_args

from kept.base.digest import digest_bytes
from kept.base.durable import write_atomic
from kept.base.limits import utf8_safe
from kept.base.records import Problem
from kept.base.values import frozen
from kept.cli.archive.archive_file import (
    AGENTS,
    KEPT_FOLDER,
    NOTES,
    SETTINGS,
    FileRecord,
    Manifest,
    check_archive,
    iter_members,
    read_stored,
)
from kept.config import Config
from kept.config.change_settings import locked_settings, put_entry
from kept.config.layers import (
    MAIN_AGENT,
    MAX_BYTES,
    agent_names,
    check_agent_id,
    is_same_folder,
    read_settings,
    resolve_workspace,
    user_settings,
)
from kept.errors import ArchiveDamaged, ArchiveRefused, ConfigError, PathRefused, StorageConflict, WorkspaceError
from kept.notes.workspace import decode, find_arrival_fault
from kept.sessions.deleted import list_deleted
from kept.sessions.forgotten_text import FORGOTTEN_HASHES, ForgottenText, blank_tree
from kept.sessions.transcript import Transcripts
from kept.sessions.transcript_paths import is_transcript, parse_transcript_name
from kept.storage.contract import ABSENT, START, Append, Change, Storage, Write, is_log
from kept.storage.open import open_agent, open_home, open_workspace

LEASE = "restore"
_LARGEST_TEXT = 1 << 28
Action = Literal["new", "same", "differs", "deleted", "forgotten"]
"""new      it is not here
same     it is here; a record may have more at its end
differs  it is here with another content, something that is not a file is in its place, or it is a note with a name that
         Kept would not give
deleted  a conversation that was deleted here
forgotten  it has something that was forgotten here"""


@frozen
class RestoredAgent:
    name: str
    workspace: str
    """Folder of its notes."""


@frozen
class RestoreReport:
    check: bool
    """True if nothing was written."""
    created: dt.datetime
    agents: tuple[RestoredAgent, ...]
    counts: dict[str, int]
    """Number of files by action."""
    kept: tuple[Problem, ...]
    """Files here that a restore leaves although they are not those of the archive."""
    settings: str
    """'restored', 'kept' if there were settings here, or 'none'."""
    removed_settings: tuple[str, ...]
    """Secret settings that the archive does not have. Set these again."""


@frozen
class _Place:
    """Where the members with a prefix belong."""

    prefix: str
    storage: Storage
    folder: str
    """Its path, for messages."""
    exists: bool
    deleted: frozenset[str] = frozenset()
    """Ids of conversations that were deleted here."""


@frozen
class _FileAction:
    name: str
    record: FileRecord
    place: _Place
    action: Action
    reason: str = ""

    @property
    def path(self) -> str:
        return self.name.removeprefix(self.place.prefix)


def restore_archive(
    path: str, config: Config, *, workspace: str | None = None, with_settings: bool = True, check: bool = False
) -> RestoreReport:
    """Restore an archive into a home and its workspaces, and return what was done.

    With ``check``, the archive is read and compared, and nothing is written. ``workspace`` is the folder for the notes
    of the main agent.
    """
    path = os.path.abspath(os.path.expanduser(path))
    user_file = os.path.join(config.home, SETTINGS)
    hunt = _ForgottenHunt(config, user_file)
    manifest = check_archive(path, hunt.inspect)
    workspaces = _plan_workspaces(manifest, config.home, user_file, workspace)
    forgotten = hunt.find_reasons(manifest)
    actions = [
        action for place in _places(manifest, config, workspaces) for action in _compare(place, manifest, forgotten)
    ]
    before, archived = read_settings(user_file), hunt.settings if with_settings else None
    outcome = "none" if archived is None else "kept" if before else "restored"
    settings = (archived or b"") if outcome == "restored" else before or b""
    try:
        settings = _with_entries(settings, user_file, manifest, config, workspaces)
    except (ConfigError, UnicodeDecodeError) as exc:
        if outcome != "restored":
            raise
        hint = "Leave them out: kept restore --no-settings"
        raise ArchiveRefused(f"The settings of the archive cannot be used here ({exc}).", hint=hint) from exc
    if not check:
        with open_home(config).lease(LEASE, wait_s=0.0):
            _write_files(path, [item for item in actions if item.action == "new"])
            _write_settings(user_file, before, settings)
    counts = Counter(item.action for item in actions)
    left = [item for item in actions if item.action in ("differs", "forgotten")]
    return RestoreReport(
        check=check,
        created=manifest.created,
        agents=tuple(RestoredAgent(known.name, workspaces[known.name]) for known in manifest.agents),
        counts={action: counts[action] for action in get_args(Action)},
        kept=tuple(Problem(utf8_safe(os.path.join(item.place.folder, item.path)), item.reason) for item in left),
        settings=outcome,
        removed_settings=manifest.removed_settings if outcome == "restored" else (),
    )


# places and settings


def _plan_workspaces(manifest: Manifest, home: str, user_file: str, workspace: str | None) -> dict[str, str]:
    """Return the workspace of each agent: ``workspace``, else the one that the settings here name for it, else its
    default folder. Agents that shared one share it again. An archive, which may be a stranger's, does not choose."""
    workspaces: dict[str, str] = {}
    for known in sorted(manifest.agents, key=lambda known: known.name != known.notes):  # the owner of notes first
        try:
            check_agent_id(known.name)
        except ConfigError as exc:
            raise ArchiveRefused(f"The archive has an agent that cannot exist: {exc.message}") from exc
        tree, _ = user_settings(user_file, read_settings(user_file), known.name, [])
        named = {"workspace": workspace} if workspace and known.name == MAIN_AGENT else tree
        own = resolve_workspace(home, known.name, named)
        workspaces[known.name] = workspaces.get(known.notes, own)
    return workspaces


def _places(manifest: Manifest, config: Config, workspaces: Mapping[str, str]) -> Iterator[_Place]:
    """Yield the storages of all agents. A folder that several share comes once. In a database, each has its own."""
    seen: set[str] = set()
    for known in manifest.agents:
        workspace, notes = workspaces[known.name], f"{NOTES}/{known.notes}/"
        own = replace(config, agent_id=known.name, workspace=workspace, conversations="agent")
        records, storage = open_agent(own), open_workspace(own)
        deleted = list_deleted(Transcripts(records, own.paths.transcripts)) if records.exists() else ()
        ids = frozenset(session.id for session in deleted)
        yield _Place(f"{AGENTS}/{known.name}/", records, own.paths.folder, records.exists(), ids)
        if config.database or notes not in seen:
            seen.add(notes)
            yield _Place(notes, storage, workspace, storage.exists())


def _with_entries(
    settings: bytes, user_file: str, manifest: Manifest, config: Config, workspaces: Mapping[str, str]
) -> bytes:
    """Return settings in which each agent has an entry that names its workspace, if they do not lead there already. An
    agent in a database has no folder that tells that it exists, so it gets one too.

    Raise ConfigError if they cannot be used."""
    for agent in manifest.agents:
        tree, _ = user_settings(user_file, settings, agent.name, [])
        chosen = workspaces[agent.name]
        is_there = is_same_folder(resolve_workspace(config.home, agent.name, tree), chosen)
        is_known = not config.database or agent.name == MAIN_AGENT
        values = {} if is_there and is_known else {"workspace": chosen}
        if agent.layout != tree.get("workspace_layout", "kept") and (values or not tree.get("workspace")):
            values["workspace_layout"] = agent.layout
        if values:
            settings = put_entry(settings.decode("utf-8-sig"), agent.name, values).encode()
    return settings


def _write_settings(user_file: str, before: bytes | None, settings: bytes) -> None:
    if settings == (before or b""):
        return
    with locked_settings(user_file) as real_path:
        if read_settings(real_path) != before:
            raise ConfigError(f"{user_file}: another program has changed it meanwhile.", hint="Run it again.")
        write_atomic(real_path, settings)


# what was forgotten


class _ForgottenHunt:
    """Finds files of an archive with something that was forgotten here after it was made, while it is checked.

    Old versions of notes name each other, so the history of notes from before a forget is left out as a whole.
    """

    def __init__(self, config: Config, user_file: str) -> None:
        self.settings: bytes | None = None
        self._agents: list[tuple[str, Storage, ForgottenText, set[str]]] = []
        """Agents that forgot something, and the files that have something of it."""
        for name in agent_names(config.home, user_file):
            agent = open_agent(replace(config, agent_id=name))
            if agent.exists() and agent.logs.find(FORGOTTEN_HASHES):
                self._agents.append((name, agent, ForgottenText(agent), set()))

    def inspect(self, name: str, content: bytes) -> None:
        if name == SETTINGS and len(content) <= MAX_BYTES:
            self.settings = content
        for _, _, forgotten, names in self._agents:
            if len(content) <= _LARGEST_TEXT and _has(forgotten, name, content):
                names.add(name)

    def find_reasons(self, manifest: Manifest) -> dict[str, str]:
        """Return the files to leave out, each with the reason."""
        reasons: dict[str, str] = {}
        for agent, storage, _, names in self._agents:
            own = f"{AGENTS}/{agent}/{FORGOTTEN_HASHES}"
            content, _ = read_stored(storage, FORGOTTEN_HASHES) or (b"", 0)
            if own in manifest.files and digest_bytes(content) == manifest.files[own].sha256:
                continue  # the archive was made after it
            reasons |= dict.fromkeys(names, "it has something that you forgot here")
            for name in manifest.files:
                if name.startswith(f"{NOTES}/") and name.split("/")[2:4] == [KEPT_FOLDER, "history"]:
                    reasons[name] = "it is from before you forgot something here"
            reasons[own] = "what was forgotten here stays forgotten"
        return reasons


def _has(forgotten: ForgottenText, name: str, content: bytes) -> bool:
    """Return whether a file has something that was forgotten, also escaped as in JSON."""
    text = decode(content)[0]
    path = name.split("/", 2)[-1] if name.startswith(f"{NOTES}/") else ""
    if forgotten.matches(f"{name}\n{text}", path):
        return True
    if not name.endswith((".json", ".jsonl")):
        return False
    for line in [text] if name.endswith(".json") else text.split("\n"):
        with suppress(ValueError, RecursionError):
            if "\\" in line and blank_tree(tree := json.loads(line), forgotten.matches) != tree:
                return True
    return False


# comparing


def _compare(place: _Place, manifest: Manifest, forgotten: Mapping[str, str]) -> Iterator[_FileAction]:
    """Yield what to do with each file that belongs to a place. ``forgotten`` has the reasons to leave files out."""
    for name, record in manifest.files.items():
        if not name.startswith(place.prefix):
            continue
        item = _FileAction(name, record, place, "new")
        reason, base = _find_difference(item), os.path.basename(name)
        is_session = item.path.startswith("sessions/") and is_transcript(base)
        if reason is None:
            yield replace(item, action="same")
        elif name in forgotten:
            yield replace(item, action="forgotten", reason=forgotten[name])
        elif not reason and is_session and parse_transcript_name(base)[0] in place.deleted:
            yield replace(item, action="deleted")
        else:
            yield replace(item, action="differs" if reason else "new", reason=reason)


def _find_difference(item: _FileAction) -> str | None:
    """Return why a file cannot be restored, nothing if it can, or None if it is here."""
    storage, path, record = item.place.storage, item.path, item.record
    try:
        stored = read_stored(storage, path) if item.place.exists else None
    except PathRefused:
        return "something that is not a file is in its place"
    except WorkspaceError as exc:
        return f"cannot be read here ({exc.message.rstrip('.')})"
    if stored is None:
        folder = path
        while item.place.exists and (folder := folder.rpartition("/")[0]):
            with suppress(PathRefused):  # a folder, as it should be
                if storage.documents.find(folder) or storage.logs.find(folder):
                    return "a file is in the place of its folder"
        return find_arrival_fault(path) or "" if item.name.startswith(NOTES) else ""
    content = stored[0][: record.size] if is_log(path) else stored[0]  # a log may have more lines here
    if len(content) == record.size and digest_bytes(content) == record.sha256:
        return None
    return f"{len(stored[0]):,} bytes here, {record.size:,} in the archive"


# writing


def _write_files(path: str, items: Sequence[_FileAction]) -> None:
    """Write each file with a commit of its own, so that what a kill leaves is whole."""
    writes: dict[str, list[_FileAction]] = {}
    for item in items:
        writes.setdefault(item.name, []).append(item)
    for name, content in iter_members(path) if writes else ():
        for item in writes.pop(name, ()):
            if digest_bytes(content) != item.record.sha256:
                raise ArchiveDamaged(f"{name}: changed while the archive was read.", hint="Run it again.")
            change: Change = Write(item.path, content, expected=ABSENT, modified_ns=item.record.mtime_ns)
            if is_log(item.path):
                lines = content.removesuffix(b"\n").split(b"\n") if content else []
                change = Append(item.path, lines, expected_end=START)
            with suppress(StorageConflict):  # created meanwhile: it stays
                item.place.storage.commit([change])
    if writes:
        raise ArchiveDamaged(f"{path}: it changed while it was read.", hint="Run the same command again.")
