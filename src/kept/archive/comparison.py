"""Compares the files of an archive with those that are here, and decides what a restore does with each."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Mapping
from typing import Literal, get_args

from kept.archive.examination import ArchiveChain
from kept.archive.manifest import FileRecord
from kept.archive.member_names import AGENTS, NOTES, MemberPath, is_log, parse_member_name
from kept.archive.restore_places import RestorePlaces
from kept.archive.tar_stream import CHUNK_BYTES
from kept.config.agent_paths import AgentPaths
from kept.records import Problem, Progress
from kept.sessions.deleted import DeletedSessions
from kept.sessions.transcript_paths import is_transcript, parse_transcript_name
from kept.values import frozen
from kept.workspace.opened import FolderTree

Action = Literal["new", "same", "updated", "newer", "differs", "deleted", "forgotten", "blocked"]
"""new      it is not here
same     it is here
updated  it is here as it was in an earlier archive of the chain
newer    a record that is here, with more at its end
differs  it is here with another content: kept, unless replacing was requested
deleted  a conversation that was deleted here
forgotten  it has something that was forgotten here
blocked  something that is not a file is in its place"""

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@frozen
class FileAction:
    record: FileRecord
    folder: str
    parts: tuple[str, ...]
    is_record: bool
    """False for a file of a workspace."""
    action: Action
    reason: str = ""

    @property
    def path(self) -> str:
        return os.path.join(self.folder, *self.parts)


def compare_files(
    chain: ArchiveChain, places: RestorePlaces, *, progress: Progress | None = None
) -> dict[str, FileAction]:
    """Return what to do with each file of an archive, by its name there. Nothing is changed."""
    deleted = {agent.name: _deleted_here(chain, places, agent.name) for agent in places.agents}
    trees: dict[str, FolderTree] = {}
    actions: dict[str, FileAction] = {}
    try:
        for number, (name, record) in enumerate(chain.newest.records.items()):
            member = parse_member_name(name)
            target = None if isinstance(member, str) else places.find(member)
            if target is None or isinstance(member, str):
                continue
            folder, parts = target
            tree = trees.setdefault(folder, FolderTree(folder, follow=True))
            action, reason = _compare(tree, parts, record, chain, member)
            if action == "new" and _session_id(member) in deleted.get(member.agent, ()):
                action, reason = "deleted", "this conversation was deleted here"
            actions[name] = FileAction(record, folder, parts, member.root != NOTES, action, reason)
            if progress is not None:
                progress(number + 1, len(chain.newest.records), name)
    finally:
        for tree in trees.values():
            tree.close()
    return actions


def _compare(
    tree: FolderTree, parts: tuple[str, ...], record: FileRecord, chain: ArchiveChain, member: MemberPath
) -> tuple[Action, str]:
    try:
        handle = os.open(parts[-1], _READ, dir_fd=tree.open(parts[:-1]))
    except FileNotFoundError:
        return "new", ""
    except OSError as exc:
        is_link = exc.errno == errno.ELOOP
        return "blocked", "a symbolic link is in its place" if is_link else f"cannot be read here ({exc.strerror})"
    try:
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode):
            return "blocked", "something that is not a file is in its place"
        return _compare_content(handle, state.st_size, record, chain, grows=is_log(member.parts, root=member.root))
    except OSError as exc:
        return "blocked", f"cannot be read here ({exc.strerror})"
    finally:
        os.close(handle)


def _compare_content(
    handle: int, size: int, record: FileRecord, chain: ArchiveChain, *, grows: bool
) -> tuple[Action, str]:
    begins_alike = size >= record.size and _hash_start(handle, record.size) == record.sha256
    if begins_alike and size == record.size:
        return "same", ""
    if begins_alike and grows:
        return "newer", "has more at its end here"
    earlier = chain.earlier_hashes(record.path)
    if earlier and _hash_start(handle, size) in earlier:
        return "updated", ""
    return "differs", f"{size:,} bytes here, {record.size:,} in the archive"


def _hash_start(handle: int, size: int) -> str:
    digest = hashlib.sha256()
    done = 0
    while done < size and (block := os.pread(handle, min(CHUNK_BYTES, size - done), done)):
        digest.update(block)
        done += len(block)
    return digest.hexdigest()


# deleted conversations


def _session_id(member: MemberPath) -> str | None:
    is_session = member.root == AGENTS and len(member.parts) in (2, 3) and member.parts[0] == "sessions"
    return parse_transcript_name(member.parts[-1])[0] if is_session and is_transcript(member.parts[-1]) else None


def _deleted_here(chain: ArchiveChain, places: RestorePlaces, agent: str) -> frozenset[str]:
    """Return the ids of conversations that were deleted here after the archive was made."""
    paths = AgentPaths(os.path.join(places.home, "agents", agent))
    if not os.path.isfile(paths.deleted_sessions):
        return frozenset()
    archived = chain.newest.records.get(f"{AGENTS}/{agent}/{os.path.basename(paths.deleted_sessions)}")
    with open(paths.deleted_sessions, "rb") as file:
        if archived is not None and hashlib.sha256(file.read()).hexdigest() == archived.sha256:
            return frozenset()  # the same list: the archive has the conversations in spite of it
    return frozenset(session.id for session in DeletedSessions(paths.deleted_sessions, paths.sessions).all())


def count_actions(actions: Mapping[str, FileAction]) -> dict[str, int]:
    """Return the number of files for each action."""
    counts = dict.fromkeys(get_args(Action), 0)
    for item in actions.values():
        counts[item.action] += 1
    return counts


_REPORTED = ("differs", "blocked", "forgotten")


def list_kept(actions: Mapping[str, FileAction]) -> list[Problem]:
    """Return the files here that a restore leaves although they are not those of the archive."""
    return [Problem(item.path, item.reason) for item in actions.values() if item.action in _REPORTED]
