"""Restores an archive.

The archive is checked to its end before anything is changed. Files are then written beside their places, synced to disk
together, and renamed, so a restore that is killed leaves whole files, and the same command continues it. A file that is
here stays, whatever its content. Settings come last.
"""

from __future__ import annotations

import datetime as dt
import errno
import hashlib
import json
import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Literal, get_args

from kept.base.durable import create_file, make_private_folder, write_atomic
from kept.base.file_lock import claimed
from kept.base.limits import utf8_safe
from kept.base.records import Problem
from kept.base.values import frozen
from kept.cli.archive.archive_file import (
    AGENTS,
    CHUNK_BYTES,
    KEPT_FOLDER,
    NOTES,
    SETTINGS,
    ArchivedAgent,
    ArchiveMember,
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
    default_workspace,
    expand,
    find_user_file,
    is_same_folder,
    layers_of_tree,
    user_layers,
)
from kept.config.read import MAX_BYTES, parse_settings, read_settings
from kept.errors import ArchiveDamaged, ArchiveRefused, ConfigError, LockBusy, WriteFailed
from kept.notes.opened import FolderTrees, decode
from kept.notes.workspace import find_arrival_fault
from kept.sessions.deleted import DeletedSessions
from kept.sessions.forgotten_text import ForgottenText, blank_tree
from kept.sessions.transcript_paths import is_transcript, parse_transcript_name

LOCK_FILE = "restore.lock"
Action = Literal["new", "same", "differs", "deleted", "forgotten"]
"""new      it is not here
same     it is here; a record may have more at its end
differs  it is here with another content, something that is not a file is in its place, or it is a note with a name that
         Kept would not give
deleted  a conversation that was deleted here
forgotten  it has something that was forgotten here"""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@frozen
class RestoreReport:
    created: dt.datetime
    agents: tuple[ArchivedAgent, ...]
    workspaces: dict[str, str]
    """Folder of the notes of each agent."""
    counts: dict[str, int]
    """Number of files by action."""
    kept: tuple[Problem, ...]
    """Files here that a restore leaves although they are not those of the archive."""
    settings: str
    """'restored', 'kept' if there were settings here, 'refused' or 'none'."""
    settings_problem: str
    removed_settings: tuple[str, ...]
    """Secret settings that the archive does not have. Set these again."""
    is_check: bool
    """True if nothing was written."""


@frozen
class _FileAction:
    record: FileRecord
    folder: str
    member: MemberPath
    action: Action
    reason: str = ""

    @property
    def path(self) -> str:
        return os.path.join(self.folder, *self.member.parts)


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
    user_file = find_user_file(home, None).path
    places = RestorePlaces(home, manifest.agents, _plan_workspaces(manifest, home, user_file, workspace))
    forgotten = hunt.find_reasons(manifest)
    actions = {
        name: replace(item, action="forgotten", reason=forgotten[name])
        if name in forgotten and item.action in ("new", "differs")
        else item
        for name, item in _compare_files(manifest, places)
    }
    settings = SettingsPlan.of(hunt.settings if with_settings else None, places, user_file)
    if not check:
        make_private_folder(home)
        with claimed(os.path.join(home, LOCK_FILE)) as is_ours:
            if not is_ours:
                raise LockBusy("Another restore is running.", path=home)
            _write_files(path, {name: item for name, item in actions.items() if item.action == "new"})
            settings.apply(user_file)
    counts = Counter(item.action for item in actions.values())
    left = [item for item in actions.values() if item.action in ("differs", "forgotten")]
    return RestoreReport(
        created=manifest.created,
        agents=manifest.agents,
        workspaces={known.name: places.workspaces[known.notes] for known in manifest.agents},
        counts={action: counts[action] for action in get_args(Action)},
        kept=tuple(Problem(utf8_safe(item.path), item.reason) for item in left),
        settings=settings.outcome,
        settings_problem=settings.problem,
        removed_settings=manifest.removed_settings if settings.outcome == "restored" else (),
        is_check=check,
    )


# places and settings


@frozen
class RestorePlaces:
    home: str
    agents: tuple[ArchivedAgent, ...]
    workspaces: Mapping[str, str]
    """Folder for each set of notes in the archive."""

    def find(self, member: MemberPath) -> str | None:
        """Return the folder that a member belongs below; None if it is not restored as a file."""
        if member.root == NOTES:
            return self.workspaces.get(member.agent)
        is_known = any(agent.name == member.agent for agent in self.agents)
        return os.path.join(self.home, AGENTS, member.agent) if is_known else None


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
            named = _named_workspace(user_layers(user_file, known.name))
            workspaces[known.notes] = named or default_workspace(home, known.name)
    return workspaces


@frozen
class SettingsPlan:
    outcome: str
    before: bytes | None
    content: bytes | None
    """New content of the settings file, or None to leave it."""
    problem: str = ""

    @classmethod
    def of(cls, archived: bytes | None, places: RestorePlaces, user_file: str) -> SettingsPlan:
        here = read_settings(user_file)
        if archived is None or here:
            return cls("none" if archived is None else "kept", here, _plan_entries(places, here or b""))
        try:
            for agent in places.agents:
                layers_of_tree(parse_settings(user_file, archived), user_file, agent.name)
            return cls("restored", here, _plan_entries(places, archived) or archived)
        except (ConfigError, UnicodeDecodeError) as exc:
            problem = exc.message if isinstance(exc, ConfigError) else "not UTF-8"
            return cls("refused", here, _plan_entries(places, b""), problem)

    def apply(self, user_file: str) -> None:
        if self.content is None:
            return
        with locked_settings(user_file) as real_path:
            if read_settings(real_path) != self.before:
                raise ConfigError(f"{user_file}: another program has changed it meanwhile.", hint="Run it again.")
            write_atomic(real_path, self.content)


def _plan_entries(places: RestorePlaces, before: bytes) -> bytes | None:
    """Return settings in which each agent has an entry that names its workspace, or None if they lead there already."""
    content = before
    for agent in places.agents:
        layers = layers_of_tree(parse_settings("", content), "", agent.name)
        chosen, named = places.workspaces[agent.notes], _named_workspace(layers)
        is_there = is_same_folder(named or default_workspace(places.home, agent.name), chosen)
        values = {} if is_there else {"workspace": chosen}
        layouts = [layer.tree["workspace_layout"] for layer in layers if layer.tree.get("workspace_layout")]
        if agent.layout != (layouts[-1] if layouts else "kept") and (values or named is None):
            values["workspace_layout"] = agent.layout
        if values:
            content = put_entry(content.decode("utf-8-sig"), agent.name, values).encode()
    return None if content == before else content


def _named_workspace(layers: Any) -> str | None:
    named = [layer.tree["workspace"] for layer in layers if layer.tree.get("workspace")]
    return expand(str(named[-1])) if named else None


# what was forgotten


class _ForgottenHunt:
    """Finds files of an archive with something that was forgotten here after it was made, while it is checked.

    Old versions of notes name each other, so the history of notes from before a forget is left out as a whole.
    """

    def __init__(self, home: str) -> None:
        agents = os.path.join(home, AGENTS)
        paths = {name: AgentPaths(os.path.join(agents, name)).forgotten_hashes for name in _list(agents)}
        self._texts = {name: ForgottenText(path) for name, path in paths.items() if os.path.exists(path)}
        self._found: dict[str, set[str]] = {name: set() for name in self._texts}
        """Files with something that an agent forgot, by the agent."""
        self.settings: bytes | None = None

    def inspect(self, name: str, content: bytes) -> None:
        if name == SETTINGS and len(content) <= MAX_BYTES:
            self.settings = content
        for agent, forgotten in self._texts.items():
            if _has(forgotten, name, content):
                self._found[agent].add(name)

    def find_reasons(self, manifest: Manifest) -> dict[str, str]:
        """Return the files to leave out, each with the reason."""
        reasons: dict[str, str] = {}
        for agent, forgotten in self._texts.items():
            own = f"{AGENTS}/{agent}/{os.path.basename(forgotten.path)}"
            if own in manifest.files and _hash_file(forgotten.path) == manifest.files[own].sha256:
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


def _compare_files(manifest: Manifest, places: RestorePlaces) -> Iterator[tuple[str, _FileAction]]:
    """Yield what to do with each file of an archive, with its name there."""
    deleted = {agent.name: _deleted_here(places.home, agent.name) for agent in places.agents}
    with FolderTrees() as trees:
        for name, record in manifest.files.items():
            member = parse_member_name(name)
            folder = places.find(member)
            if folder is None:
                continue
            action, reason = _compare(trees, folder, member, record)
            if action == "new" and _session_id(member) in deleted.get(member.agent, ()):
                action = "deleted"
            yield name, _FileAction(record, folder, member, action, reason)


def _compare(trees: FolderTrees, folder: str, member: MemberPath, record: FileRecord) -> tuple[Action, str]:
    try:
        handle = os.open(member.parts[-1], _READ, dir_fd=trees.open(folder, member.parts[:-1]))
    except FileNotFoundError:
        name = "/".join(member.parts)
        if member.root == NOTES and (fault := find_arrival_fault(os.path.join(folder, name), name)):
            return "differs", fault
        return "new", ""
    except OSError as exc:
        is_link = exc.errno == errno.ELOOP
        return "differs", "a symbolic link is in its place" if is_link else f"cannot be read here ({exc.strerror})"
    with open(handle, "rb") as file:
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode):
            return "differs", "something that is not a file is in its place"
        is_as_long = state.st_size == record.size or (state.st_size > record.size and member.grows)
        if is_as_long and _hash(file, record.size) == record.sha256:
            return "same", ""
        return "differs", f"{state.st_size:,} bytes here, {record.size:,} in the archive"


def _hash(file: Any, size: int) -> str:
    digest = hashlib.sha256()
    while size and (block := file.read(min(CHUNK_BYTES, size))):
        digest.update(block)
        size -= len(block)
    return digest.hexdigest()


def _hash_file(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _session_id(member: MemberPath) -> str | None:
    is_session = member.root == AGENTS and len(member.parts) in (2, 3) and member.parts[0] == "sessions"
    return parse_transcript_name(member.parts[-1])[0] if is_session and is_transcript(member.parts[-1]) else None


def _deleted_here(home: str, agent: str) -> frozenset[str]:
    """Return the ids of conversations that were deleted here."""
    sessions = AgentPaths(os.path.join(home, AGENTS, agent)).sessions
    return frozenset(session.id for session in DeletedSessions(sessions).all())


# writing


def _write_files(path: str, writes: Mapping[str, _FileAction]) -> None:
    """Write files beside their places and rename all at once: one sync takes as long as one for a single file."""
    waiting: dict[str, _FileAction] = {}
    with FolderTrees() as trees:
        try:
            for member in iter_members(path) if writes else ():
                if item := writes.get(member.name):
                    waiting[member.name] = item
                    _write_beside(trees, item, member)
            if len(waiting) < len(writes):
                raise ArchiveDamaged(f"{path}: it changed while it was read.", hint="Run the same command again.")
            os.sync()  # the contents before their names: a name must never lead to half a file
            for name, item in writes.items():
                with _translating(item):
                    _put(trees, item)
                del waiting[name]
            os.sync()
        finally:  # after an error, remove what is not in its place
            for item in waiting.values():
                with suppress(OSError):
                    os.unlink(_temporary_name(item), dir_fd=trees.open(item.folder, item.member.parts[:-1]))


def _temporary_name(item: _FileAction) -> str:
    """Return a name that is the same in each attempt, so that a restore leaves no rest of one that was killed."""
    return f".kept-restore-{hashlib.sha256(item.member.parts[-1].encode()).hexdigest()[:16]}.tmp"


def _write_beside(trees: FolderTrees, item: _FileAction, member: ArchiveMember) -> None:
    temporary, digest = _temporary_name(item), hashlib.sha256()
    with _translating(item):
        folder = trees.open(item.folder, item.member.parts[:-1], create=True)
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        with create_file(temporary, folder) as out:
            for block in member.blocks():
                digest.update(block)
                out.write(block)
            out.flush()
            os.utime(out.fileno(), ns=(item.record.mtime_ns, item.record.mtime_ns))
    if digest.hexdigest() != item.record.sha256:
        raise ArchiveDamaged(f"{member.name}: changed while the archive was read.", hint="Run it again.")


def _put(trees: FolderTrees, item: _FileAction) -> None:
    folder = trees.open(item.folder, item.member.parts[:-1])
    temporary, name = _temporary_name(item), item.member.parts[-1]
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    else:  # created meanwhile: it stays
        os.unlink(temporary, dir_fd=folder)


@contextmanager
def _translating(item: _FileAction) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise WriteFailed(f"{item.path}: could not be written ({exc.strerror}).") from exc
