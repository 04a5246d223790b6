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
from collections.abc import Iterator, Mapping
from contextlib import suppress
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
    MemberPath,
    check_archive,
    iter_members,
    parse_member_name,
)
from kept.config.agent_paths import AgentPaths
from kept.config.change_settings import locked_settings, put_entry
from kept.config.layers import (
    MAIN_AGENT,
    check_agent_id,
    expand,
    fold_layers,
    is_same_folder,
    resolve_workspace,
    user_layers,
)
from kept.config.read import MAX_BYTES, read_settings
from kept.errors import (
    ArchiveDamaged,
    ArchiveRefused,
    ConfigError,
    DocumentNotFound,
    PathRefused,
    StorageConflict,
    WorkspaceError,
)
from kept.notes.note_text import decode
from kept.notes.workspace import find_arrival_fault
from kept.sessions.deleted import list_deleted
from kept.sessions.forgotten_text import FORGOTTEN_HASHES, ForgottenText, blank_tree
from kept.sessions.transcript import Transcripts
from kept.sessions.transcript_paths import is_transcript, parse_transcript_name
from kept.storage.contract import ABSENT, START, Append, Change, Storage, Write, is_log
from kept.storage.files.file_storage import FileStorage
from kept.storage.open import open_agent_named

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
class _FileAction:
    record: FileRecord
    folder: str
    member: MemberPath
    action: Action
    reason: str = ""


def restore_archive(
    path: str, *, home: str, workspace: str | None = None, with_settings: bool = True, check: bool = False
) -> RestoreReport:
    """Restore an archive into a home and its workspaces, and return what was done.

    With ``check``, the archive is read and compared, and nothing is written. ``workspace`` is the folder for the notes
    of the main agent.
    """
    path = os.path.abspath(os.path.expanduser(path))
    hunt = _ForgottenHunt(home)
    manifest = check_archive(path, hunt.inspect)
    user_file = os.path.join(home, "config.yaml")
    workspaces = _plan_workspaces(manifest, home, user_file, workspace)
    actions = dict(_compare_files(manifest, home, workspaces, hunt.find_reasons(manifest)))
    before, archived = read_settings(user_file), hunt.settings if with_settings else None
    outcome = "none" if archived is None else "kept" if before else "restored"
    settings = (archived or b"") if outcome == "restored" else before or b""
    try:
        settings = _with_entries(settings, user_file, manifest, home, workspaces)
    except (ConfigError, UnicodeDecodeError) as exc:
        if outcome != "restored":
            raise
        hint = "Leave them out: kept restore --no-settings"
        raise ArchiveRefused(f"The settings of the archive cannot be used here ({exc}).", hint=hint) from exc
    if not check:
        with FileStorage(home).lease(LEASE, wait_s=0.0):
            _write_files(path, {name: item for name, item in actions.items() if item.action == "new"})
            _write_settings(user_file, before, settings)
    counts = Counter(item.action for item in actions.values())
    left = [item for item in actions.values() if item.action in ("differs", "forgotten")]
    return RestoreReport(
        check=check,
        created=manifest.created,
        agents=tuple(RestoredAgent(known.name, workspaces[known.notes]) for known in manifest.agents),
        counts={action: counts[action] for action in get_args(Action)},
        kept=tuple(Problem(utf8_safe(os.path.join(item.folder, item.member.path)), item.reason) for item in left),
        settings=outcome,
        removed_settings=manifest.removed_settings if outcome == "restored" else (),
    )


# places and settings


def _plan_workspaces(manifest: Manifest, home: str, user_file: str, workspace: str | None) -> dict[str, str]:
    """Return where notes go: to ``workspace``, else where the settings here put those of the agent, else to its
    default folder. An archive, which may be a stranger's, does not choose."""
    workspaces: dict[str, str] = {}
    for known in sorted(manifest.agents, key=lambda known: known.name != known.notes):  # the owner of notes first
        try:
            check_agent_id(known.name)
        except ConfigError as exc:
            raise ArchiveRefused(f"The archive has an agent that cannot exist: {exc.message}") from exc
        if workspace and known.name == MAIN_AGENT:
            workspaces[known.notes] = expand(workspace)
        elif known.notes not in workspaces:
            tree, _ = fold_layers(user_layers(user_file, read_settings(user_file), known.name, []), known.name)
            workspaces[known.notes] = resolve_workspace(home, known.name, tree)
    return workspaces


def _with_entries(
    settings: bytes, user_file: str, manifest: Manifest, home: str, workspaces: Mapping[str, str]
) -> bytes:
    """Return settings in which each agent has an entry that names its workspace, if they do not lead there already.
    Raise ConfigError if they cannot be used."""
    for agent in manifest.agents:
        tree, _ = fold_layers(user_layers(user_file, settings, agent.name, []), agent.name)
        chosen = workspaces[agent.notes]
        is_there = is_same_folder(resolve_workspace(home, agent.name, tree), chosen)
        values = {} if is_there else {"workspace": chosen}
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

    def __init__(self, home: str) -> None:
        agents = os.path.join(home, AGENTS)
        storages = {name: open_agent_named(home, name) for name in _list(agents)}
        self._storages = {name: agent for name, agent in storages.items() if agent.logs.find(FORGOTTEN_HASHES)}
        self._texts = {name: ForgottenText(agent) for name, agent in self._storages.items()}
        self._found: dict[str, set[str]] = {name: set() for name in self._texts}
        """Files with something that an agent forgot, by the agent."""
        self.settings: bytes | None = None

    def inspect(self, name: str, content: bytes) -> None:
        if name == SETTINGS and len(content) <= MAX_BYTES:
            self.settings = content
        for agent, forgotten in self._texts.items():
            if len(content) <= _LARGEST_TEXT and _has(forgotten, name, content):
                self._found[agent].add(name)

    def find_reasons(self, manifest: Manifest) -> dict[str, str]:
        """Return the files to leave out, each with the reason."""
        reasons: dict[str, str] = {}
        for agent, storage in self._storages.items():
            own, content = f"{AGENTS}/{agent}/{FORGOTTEN_HASHES}", _read(storage, FORGOTTEN_HASHES) or b""
            if own in manifest.files and digest_bytes(content) == manifest.files[own].sha256:
                continue  # the archive was made after it
            reasons |= dict.fromkeys(self._found[agent], "it has something that you forgot here")
            for name in manifest.files:
                if name.startswith(f"{NOTES}/") and name.split("/")[2:4] == [KEPT_FOLDER, "history"]:
                    reasons[name] = "it is from before you forgot something here"
            reasons[own] = "what was forgotten here stays forgotten"
        return reasons


def _list(folder: str) -> list[str]:
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


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


def _compare_files(
    manifest: Manifest, home: str, workspaces: Mapping[str, str], forgotten: Mapping[str, str]
) -> Iterator[tuple[str, _FileAction]]:
    """Yield what to do with each file of an archive, with its name there. ``forgotten`` has the reasons to leave files
    out."""
    deleted = {agent.name: _deleted_here(home, agent.name) for agent in manifest.agents}
    for name, record in manifest.files.items():
        member = parse_member_name(name)
        if member.root == NOTES:
            folder = workspaces.get(member.agent)
        else:
            folder = os.path.join(home, AGENTS, member.agent) if member.agent in deleted else None
        if folder is None:
            continue
        action, reason = _compare(FileStorage(folder), member, record)
        if name in forgotten and action in ("new", "differs"):
            action, reason = "forgotten", forgotten[name]
        elif action == "new" and _session_id(member) in deleted.get(member.agent, ()):
            action = "deleted"
        yield name, _FileAction(record, folder, member, action, reason)


def _compare(storage: Storage, member: MemberPath, record: FileRecord) -> tuple[Action, str]:
    try:
        content = _read(storage, member.path)
    except PathRefused:
        return "differs", "something that is not a file is in its place"
    except WorkspaceError as exc:
        return "differs", f"cannot be read here ({exc.message.rstrip('.')})"
    if content is None:
        if _is_file_in_the_way(storage, member.path):
            return "differs", "a file is in the place of its folder"
        if member.root == NOTES and (fault := find_arrival_fault(member.path)):
            return "differs", fault
        return "new", ""
    # A log may have more lines here.
    same = content[: record.size] if is_log(member.path) else content
    if len(same) == record.size and digest_bytes(same) == record.sha256:
        return "same", ""
    return "differs", f"{len(content):,} bytes here, {record.size:,} in the archive"


def _read(storage: Storage, path: str) -> bytes | None:
    if is_log(path):
        is_here = storage.logs.find(path) is not None
        return b"".join(line.data + b"\n" for line in storage.logs.read(path)) if is_here else None
    try:
        return storage.documents.read(path).data
    except DocumentNotFound:
        return None


def _is_file_in_the_way(storage: Storage, path: str) -> bool:
    while path := path.rpartition("/")[0]:
        with suppress(PathRefused):  # a folder, as it should be
            if storage.documents.find(path) or storage.logs.find(path):
                return True
    return False


def _session_id(member: MemberPath) -> str | None:
    folder, _, name = member.path.rpartition("/")
    is_session = member.root == AGENTS and folder.split("/")[0] == "sessions" and folder.count("/") <= 1
    return parse_transcript_name(name)[0] if is_session and is_transcript(name) else None


def _deleted_here(home: str, agent: str) -> frozenset[str]:
    """Return the ids of conversations that were deleted here."""
    paths = AgentPaths(os.path.join(home, AGENTS, agent))
    transcripts = Transcripts(open_agent_named(home, agent), paths.transcripts)
    return frozenset(session.id for session in list_deleted(transcripts))


# writing


def _write_files(path: str, writes: dict[str, _FileAction]) -> None:
    """Write each file with a commit of its own, so that what a kill leaves is whole."""
    for name, content in iter_members(path) if writes else ():
        if (item := writes.pop(name, None)) is None:
            continue
        if digest_bytes(content) != item.record.sha256:
            raise ArchiveDamaged(f"{name}: changed while the archive was read.", hint="Run it again.")
        with suppress(StorageConflict):  # created meanwhile: it stays
            FileStorage(item.folder).commit([_to_change(item, content)])
    if writes:
        raise ArchiveDamaged(f"{path}: it changed while it was read.", hint="Run the same command again.")


def _to_change(item: _FileAction, content: bytes) -> Change:
    if is_log(item.member.path):
        return Append(item.member.path, content.removesuffix(b"\n").split(b"\n") if content else [], expected_end=START)
    return Write(item.member.path, content, expected=ABSENT, modified_ns=item.record.mtime_ns)
