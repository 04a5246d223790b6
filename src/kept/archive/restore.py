"""Restores an archive.

The archive is checked to its end before anything is changed. Files are then written beside their places, synced to disk
together, and renamed, so a restore that is killed leaves whole files, and the same command continues it. A file that is
here with another content stays, unless replacing was requested. Settings come last.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext, suppress
from dataclasses import replace
from typing import Any, Literal, get_args

from kept.archive.archive_file import (
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
from kept.archive.restore_places import RestorePlaces, SettingsPlan, plan_places
from kept.config.agent_paths import AgentPaths
from kept.config.layers import (
    find_user_file,
)
from kept.config.settings_file import MAX_BYTES
from kept.durable import create_file, make_private_folder
from kept.errors import ArchiveDamaged, LockBusy, WriteFailed
from kept.file_lock import claimed, locked
from kept.limits import utf8_safe
from kept.records import Problem, Progress
from kept.sessions.blanking import blank_tree
from kept.sessions.deleted import DeletedSessions
from kept.sessions.forgotten_text import ForgottenText
from kept.sessions.transcript_paths import is_transcript, parse_transcript_name
from kept.values import frozen
from kept.workspace.opened import FolderTree, decode

LOCK_FILE = "restore.lock"
Action = Literal["new", "same", "newer", "differs", "deleted", "forgotten", "blocked"]
"""new      it is not here
same     it is here
newer    a record that is here, with more at its end
differs  it is here with another content
deleted  a conversation that was deleted here
forgotten  it has something that was forgotten here
blocked  something that is not a file is in its place"""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LARGEST_TEXT = 1 << 28
_BATCH_FILES = 1_000
_BATCH_BYTES = 256_000_000
_LOCK_WAIT_S = 10.0


@frozen
class RestoreReport:
    created: str
    agents: tuple[ArchivedAgent, ...]
    workspaces: dict[str, str]
    """Folder of the notes of each agent."""
    counts: dict[str, int]
    """Number of files by action."""
    replaced: int
    """Files that differed and were replaced on request."""
    kept: tuple[Problem, ...]
    """Files here that a restore leaves although they are not those of the archive."""
    settings: str
    """'restored', 'same', 'kept' if there were other settings here, 'refused' or 'none'."""
    settings_problem: str
    removed_settings: tuple[str, ...]
    """Secret settings that the archive does not have. Set these again."""
    is_check: bool
    """True if nothing was written."""


@frozen
class _FileAction:
    record: FileRecord
    folder: str
    parts: tuple[str, ...]
    member: MemberPath
    action: Action
    reason: str = ""

    @property
    def path(self) -> str:
        return os.path.join(self.folder, *self.parts)


def restore_archive(
    path: str,
    *,
    home: str,
    agent: str | None = None,
    workspace: str | None = None,
    same_folders: bool = False,
    with_settings: bool = True,
    overwrite: bool = False,
    check: bool = False,
    progress: Progress | None = None,
) -> RestoreReport:
    """Restore an archive into a home and its workspaces, and return what was done.

    With ``check``, the archive is read and compared, and nothing is written. ``agent`` restores that agent only;
    ``workspace`` is the folder for its notes, or for those of the main agent.
    """
    path = os.path.abspath(os.path.expanduser(path))
    hunt = _ForgottenHunt(home)
    manifest = check_archive(path, inspect=hunt.inspect, inspect_bytes=_LARGEST_TEXT, progress=progress)
    user_file = find_user_file(home, None, {}).path
    places = plan_places(manifest, home, user_file, agent, workspace, same_folders=same_folders)
    forgotten = hunt.find_reasons(manifest)
    actions = {
        name: replace(item, action="forgotten", reason=forgotten[name])
        if name in forgotten and item.action in ("new", "differs")
        else item
        for name, item in _compare_files(manifest, places)
    }
    settings = SettingsPlan.of(hunt.settings if with_settings else None, places, user_file)
    wanted = ("new", "differs") if overwrite else ("new",)
    writes = {name: item for name, item in actions.items() if item.action in wanted}
    if not check:
        make_private_folder(home)
        with claimed(os.path.join(home, LOCK_FILE)) as is_ours:
            if not is_ours:
                raise LockBusy("Another restore is running.", path=home)
            with _Writer() as writer:
                writer.write_all(path, writes, progress)
            settings.apply(user_file)
    left = [item for name, item in actions.items() if name not in writes]
    counts = Counter(item.action for item in actions.values())
    return RestoreReport(
        created=manifest.created,
        agents=places.agents,
        workspaces={known.name: places.workspaces[known.notes] for known in places.agents},
        counts={action: counts[action] for action in get_args(Action)},
        replaced=sum(item.action == "differs" for item in writes.values()),
        kept=tuple(Problem(utf8_safe(item.path), item.reason) for item in left if item.reason and item.action in _KEPT),
        settings=settings.outcome,
        settings_problem=settings.problem,
        removed_settings=manifest.removed_settings if settings.outcome == "restored" else (),
        is_check=check,
    )


_KEPT = ("differs", "blocked", "forgotten")

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
    if forgotten.matches(f"{name}\n{text}"):
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
    deleted = {agent.name: _deleted_here(manifest, places.home, agent.name) for agent in places.agents}
    trees: dict[str, FolderTree] = {}
    with ExitStack() as stack:
        for name, record in manifest.files.items():
            member = parse_member_name(name)
            folder = places.find(member)
            if folder is None:
                continue
            if folder not in trees:
                trees[folder] = stack.enter_context(closing(FolderTree(folder, follow=True)))
            action, reason = _compare(trees[folder], member, record)
            if action == "new" and _session_id(member) in deleted.get(member.agent, ()):
                action = "deleted"
            yield name, _FileAction(record, folder, member.parts, member, action, reason)


def _compare(tree: FolderTree, member: MemberPath, record: FileRecord) -> tuple[Action, str]:
    try:
        handle = os.open(member.parts[-1], _READ, dir_fd=tree.open(member.parts[:-1]))
    except FileNotFoundError:
        return "new", ""
    except OSError as exc:
        is_link = exc.errno == errno.ELOOP
        return "blocked", "a symbolic link is in its place" if is_link else f"cannot be read here ({exc.strerror})"
    with open(handle, "rb") as file:
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode):
            return "blocked", "something that is not a file is in its place"
        if state.st_size >= record.size and _hash(file, record.size) == record.sha256:
            if state.st_size == record.size:
                return "same", ""
            if member.grows:
                return "newer", "has more at its end here"
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


def _deleted_here(manifest: Manifest, home: str, agent: str) -> frozenset[str]:
    """Return the ids of conversations that were deleted here after the archive was made."""
    paths = AgentPaths(os.path.join(home, AGENTS, agent))
    archived = manifest.files.get(f"{AGENTS}/{agent}/{os.path.basename(paths.deleted_sessions)}")
    if not os.path.isfile(paths.deleted_sessions):
        return frozenset()
    if archived is not None and _hash_file(paths.deleted_sessions) == archived.sha256:
        return frozenset()  # the same list: the archive has the conversations in spite of it
    return frozenset(session.id for session in DeletedSessions(paths.deleted_sessions, paths.sessions).all())


# writing


class _Writer(AbstractContextManager["_Writer"]):
    """Writes files beside their places, and renames many at once: one sync takes as long as one for a single file."""

    def __init__(self) -> None:
        self._files: list[tuple[_FileAction, str]] = []
        """Files that are written but not in their places yet, each with its temporary name."""
        self._size = 0
        self._trees: dict[str, FolderTree] = {}

    def __exit__(self, *_: Any) -> None:
        """Remove what is not in its place, after an error."""
        for item, temporary in self._files:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=self._folder(item))
        for tree in self._trees.values():
            tree.close()

    def write_all(self, path: str, writes: Mapping[str, _FileAction], progress: Progress | None) -> None:
        left = set(writes)
        for member in iter_members(path, progress) if left else ():
            if member.name in left:
                left.remove(member.name)
                self._add(writes[member.name], member)
        if left:
            raise ArchiveDamaged(f"{path}: it changed while it was read.", hint="Run the same command again.")
        self._commit()

    def _add(self, item: _FileAction, member: ArchiveMember) -> None:
        # The name is the same in each attempt, so a restore that continues one that was killed leaves no rest of it.
        temporary = f".kept-restore-{hashlib.sha256(item.parts[-1].encode()).hexdigest()[:16]}.tmp"
        digest = hashlib.sha256()
        try:
            folder = self._folder(item, create=True)
            self._files.append((item, temporary))
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
            with create_file(temporary, folder) as out:
                for block in member.blocks():
                    digest.update(block)
                    out.write(block)
                out.flush()
                os.utime(out.fileno(), ns=(item.record.mtime_ns, item.record.mtime_ns))
        except OSError as exc:
            raise WriteFailed(f"{item.path}: could not be written ({exc.strerror}).") from exc
        if digest.hexdigest() != item.record.sha256:
            raise ArchiveDamaged(f"{member.name}: changed while the archive was read.", hint="Run it again.")
        self._size += member.size
        if len(self._files) >= _BATCH_FILES or self._size >= _BATCH_BYTES:
            self._commit()

    def _commit(self) -> None:
        """Put the files into their places, and return when that is on disk."""
        os.sync()  # the contents before their names: a name must never lead to half a file
        while self._files:
            item, temporary = self._files[-1]
            try:
                self._put(item, temporary)
            except OSError as exc:
                raise WriteFailed(f"{item.path}: could not be written ({exc.strerror}).") from exc
            self._files.pop()
        os.sync()
        self._size = 0

    def _put(self, item: _FileAction, temporary: str) -> None:
        with _locked(item):
            folder, name = self._folder(item), item.parts[-1]
            try:
                mode = stat.S_IMODE(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode) & 0o777
            except FileNotFoundError:
                os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
                return
            if item.action == "new":  # created meanwhile: it stays
                os.unlink(temporary, dir_fd=folder)
                return
            os.chmod(temporary, mode, dir_fd=folder)  # a note may be shared on purpose
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)

    def _folder(self, item: _FileAction, *, create: bool = False) -> int:
        tree = self._trees.setdefault(item.folder, FolderTree(item.folder, follow=True))
        return tree.open(item.parts[:-1], create=create)


def _locked(item: _FileAction) -> AbstractContextManager[object]:
    """Return the lock of a file that is replaced, so that nothing is appended to the old one meanwhile."""
    if item.action == "new":
        return nullcontext()
    is_record = item.member.root != NOTES
    path = item.path if is_record else item.folder
    return locked(path, wait_s=_LOCK_WAIT_S, purpose="writing here", create=not is_record)
