"""`GitSync`: the same notes on several machines.

Notes that changed are committed before anything is merged, and the branch moves only after everything that arrived is
written. A process that is killed in between leaves notes that are merged already: the next sync commits them and merges
again, which changes nothing twice. The lock of the workspace is held while notes are read and written, not while git
talks to the remote. An editor takes no lock: if a note is no longer as it was committed, the sync begins anew.

    changed on one side               its version
    changed here, removed there       the changed one, whichever side changed it
    changed on both, a daily note     the lines of both
    changed on both, another note     merged by lines; if both changed the same ones, ours stays, and theirs becomes
                                      a conflict copy beside it
"""

from __future__ import annotations

import os
import random
import time
import unicodedata
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kept.durable import erase_file, replacing
from kept.errors import NoteNotFound, PathRefused, SyncFailed, SyncRefused, WorkspaceError
from kept.file_lock import locked
from kept.git_command import Content, Git, Tree, TreeEntry, is_same
from kept.limits import printable_line
from kept.records import Problem
from kept.sessions.forgotten_text import ForgottenText
from kept.visibility import private_folder_of
from kept.workspace.conflict_copies import find_merge_marks, name_copy
from kept.workspace.daily import get_daily_notes
from kept.workspace.opened import OpenWorkspace
from kept.workspace.scan import scan_workspace
from kept.workspace.workspace import Workspace, find_arrival_fault, is_visible

if TYPE_CHECKING:
    from kept.config import Config

_LOCK_WAIT_S = 60.0
_ATTEMPTS, _LONGEST_PAUSE_S = 20, 0.5
_ANY_SIZE, _MANY_REMOVED = 1 << 40, 20
_UNFINISHED = ("MERGE_HEAD", "rebase-merge", "rebase-apply", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG")


class _Repository(Git):
    branch = remote = remote_branch = ""

    def open(self) -> str:
        """Return the folder of the repository. Raise SyncRefused if there is none, or if somebody works in it."""
        if not os.path.lexists(os.path.join(self.root, ".git")):
            hint = "Connect it to one with 'kept sync --init URL'."
            raise SyncRefused(f"{self.root} is no git repository.", hint=hint)
        folder = self.run("rev-parse", "--absolute-git-dir").decode("utf-8", "surrogateescape").rstrip("\n")
        if any(os.path.lexists(os.path.join(folder, name)) for name in _UNFINISHED):
            raise SyncRefused("A merge, a rebase or the like is under way.", hint="Finish or abort it with git first.")
        if self.find("config", "--type=bool", "core.sparseCheckout") == "true":
            raise SyncRefused("The repository has a sparse checkout, so files that are not here look deleted.")
        # A killed process may have left the index as it was at an earlier commit.
        if self.run("ls-files") and self.find("write-tree") not in self.find("log", "-1000", "--format=%T").split():
            hint = "Commit it, or unstage it with 'git restore --staged .'. Nothing was changed."
            raise SyncRefused("Something is staged for a commit of yours.", hint=hint)
        self.branch = self.find("symbolic-ref", "--quiet", "HEAD").removeprefix("refs/heads/")
        if not self.branch:
            raise SyncRefused("The repository is at a commit without a branch.", hint="Run 'git switch BRANCH'.")
        self.remote = self.find("config", f"branch.{self.branch}.remote") or "origin"
        self.remote_branch = self.find("config", f"branch.{self.branch}.merge") or f"refs/heads/{self.branch}"
        if not self.find("remote", "get-url", self.remote):
            hint = "Add one with 'kept sync --init URL'."
            raise SyncRefused(f"The repository has no remote '{self.remote}'.", hint=hint)
        return folder

    def fetch(self) -> str | None:
        """Return the commit of the remote's branch, or None. The ref moves forward only: a rewritten one is noticed."""
        command = ("fetch", "--no-progress", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--")
        try:
            self.run(*command, self.remote, f"{self.remote_branch}:refs/kept/remote")
        except SyncFailed as exc:
            is_gone = "couldn't find remote ref" in exc.output
            if is_gone and not self.find("rev-parse", "--verify", "--quiet", "refs/kept/remote"):
                return None
            if not is_gone and "[rejected]" not in exc.output:
                raise
            hint = "'git update-ref -d refs/kept/remote' allows to send them again. Nothing was changed."
            raise SyncRefused("The remote was rewritten: it lacks commits that this machine has.", hint=hint) from exc
        return self.find("rev-parse", "refs/kept/remote")


@dataclass
class GitSyncReport:
    """Result of a sync. Paths are those of the workspace."""

    committed: list[str] = field(default_factory=list)
    """Notes of this machine that were committed, removed ones included."""
    received: list[str] = field(default_factory=list)
    """Files that were written or removed here."""
    conflicts: list[str] = field(default_factory=list)
    """Conflict copies, with another machine's version."""
    problems: list[Problem] = field(default_factory=list)
    pushed: bool = False


class GitSync:
    """One sync of a workspace."""

    def __init__(self, config: Config) -> None:
        self.workspace = replace(Workspace.of(config), extra_paths=())
        self.repository = _Repository(self.workspace.root)
        self.report = GitSyncReport()
        self._max_bytes = config.memory_search.max_file_bytes
        self._forgotten = ForgottenText(config.paths.forgotten_hashes)

    def run(self) -> GitSyncReport:
        """Raise SyncRefused, SyncFailed or LockBusy. One process at a time synchronises a workspace."""
        self.workspace.require()
        lock = os.path.join(self.repository.open(), "kept-sync.lock")
        with locked(lock, wait_s=_LOCK_WAIT_S, purpose="synchronising this workspace"), closing(self.repository):
            for _ in range(_ATTEMPTS):
                if self._attempt():
                    self.report.problems = list(dict.fromkeys(self.report.problems))
                    self.report.conflicts = list(dict.fromkeys(self.report.conflicts))
                    return self.report
                time.sleep(random.uniform(0, _LONGEST_PAUSE_S))
        raise SyncFailed("Notes changed, here or at the remote, each time that this machine tried.")

    def _attempt(self) -> bool:
        """Do it once. Return False if another program changed a note, or another machine pushed first."""
        theirs = self.repository.fetch()
        with self._writing():
            head = self._commit()
        if theirs is not None:
            try:
                head = self._merge(head, theirs)
            except _ChangedMeanwhile:
                return False
        if head is not None and head != theirs:
            self._require_nothing_private(head, theirs)
            self.report.pushed = self.repository.push(self.repository.remote, head, self.repository.remote_branch)
            return self.report.pushed
        return True

    def _writing(self) -> AbstractContextManager[object]:
        return locked(self.workspace.root, wait_s=_LOCK_WAIT_S, purpose="writing to this workspace")

    # which files travel

    def _find_refusal(self, path: str, entry: Content) -> str:
        """Return why a file is neither sent nor taken, or nothing. Notes travel. Of a vault, whose repository may have
        other files, these are taken as git takes them, and never sent."""
        if fault := find_arrival_fault(self._absolute(path), path):
            return f"has a name that is not allowed: {fault}"
        if _never_travels(path) or not all(map(is_visible, path.split("/"))):
            return "is hidden or private"
        if isinstance(entry, TreeEntry) and not entry.mode.startswith("100"):
            return "is a link or a submodule"
        if isinstance(entry, TreeEntry) and entry.size > self._max_bytes:
            return f"has {entry.size:,} bytes, more than the limit of {self._max_bytes:,}"
        return "" if self.workspace.layout == "vault" or self._is_note(path) else "is no note"

    def _is_note(self, path: str) -> bool:
        return self.workspace.is_own_note(self._absolute(path))

    def _absolute(self, path: str) -> str:
        return os.path.join(self.workspace.root, *path.split("/"))

    def _report_problem(self, path: str, reason: str) -> None:
        self.report.problems.append(Problem(printable_line(path), reason))

    # sending

    def _commit(self) -> str | None:
        """Commit the notes that differ from the last commit. Return the commit; None if there is none yet."""
        head = self.repository.find("rev-parse", "--verify", "--quiet", "HEAD^{commit}") or None
        tree = self.repository.tree(head)
        changes = self._find_changes(tree)
        removed = [path for path, content in changes.items() if content is None]
        if len(removed) > _MANY_REMOVED and len(removed) == sum(map(self._is_note, tree)):
            hint = "If that is right, remove them with 'git rm', commit, and synchronise. Nothing was changed."
            raise SyncRefused(f"All {len(removed):,} notes are gone here, and would be for everybody.", hint=hint)
        if changes:
            head = self.repository.commit(self.repository.branch, "Change notes", [head] if head else [], changes)
            self.report.committed += [path for path in changes if path not in self.report.committed]
        return head

    def _find_changes(self, tree: Tree) -> dict[str, Content]:
        scan = scan_workspace(self.workspace, max_bytes=self._max_bytes)
        self.report.problems += scan.problems
        present = {file.path for file in scan.files}
        if not present <= tree.keys():  # .gitignore may leave out what is new
            listing = self.repository.run("ls-files", "-z", "--cached", "--others", "--exclude-standard")
            present &= {*tree, *listing.decode("utf-8", "surrogateescape").split("\0")}
        changes: dict[str, Content] = {}
        with OpenWorkspace(self.workspace) as opened:
            for path in sorted(present | {path for path in tree if self._is_note(path)}):
                if self._find_refusal(path, tree.get(path)):
                    continue
                try:
                    data = self._read(opened, path)
                except WorkspaceError as exc:
                    self._report_problem(path, f"not sent: {exc.message}")
                    continue
                if is_same(data, tree.get(path)) or (data is not None and path not in present):
                    continue
                if marks := find_merge_marks((data or b"").decode("utf-8", "replace")):
                    self._report_problem(path, f"not sent: {marks}")
                else:
                    changes[path] = data
        return changes

    def _require_nothing_private(self, head: str, theirs: str | None) -> None:
        """Raise SyncRefused if a commit that a person made has what never travels."""
        since = [f"^{theirs}"] if theirs else []
        log = self.repository.run("log", "--format=", "--name-only", "-z", "--diff-filter=d", head, *since, "--")
        if private := next(filter(_never_travels, log.decode("utf-8", "replace").split("\0")), None):
            hint = "Take it out of the commit with git, or push with git. Nothing was sent."
            raise SyncRefused(f"A commit of yours has {printable_line(private)}, which Kept does not send.", hint=hint)

    # receiving

    def _merge(self, ours: str | None, theirs: str) -> str | None:
        """Join our commit with theirs, and write what it brings. Return the commit. Raise _ChangedMeanwhile."""
        repository = self.repository
        base = repository.find("merge-base", ours, theirs) if ours else None
        if base == theirs:
            return ours
        our_tree, their_tree = repository.tree(ours), repository.tree(theirs)
        stamp = repository.find("log", "-1", "--date=format:%Y%m%d-%H%M%S", "--format=%cd", theirs)
        files = self._join(repository.tree(base), our_tree, their_tree, stamp)
        # Removals first: a folder may have to make room for a file.
        for path in sorted(files, key=lambda path: files[path] is not None):
            our, new = our_tree.get(path), files[path]
            if new != our and not self._find_refusal(path, new or our):
                try:
                    self._put(path, our, None if new is None else repository.read(new))
                except PathRefused as exc:
                    self._report_problem(path, f"not written here: {exc.message}")
        changes = {path: content for path, content in files.items() if content != their_tree.get(path)}
        parents = [theirs, *([ours] if ours and ours != base else [])]
        if changes or len(parents) > 1:
            return repository.commit(repository.branch, "Merge notes", parents, changes)
        repository.run("update-ref", f"refs/heads/{repository.branch}", theirs, ours or "0" * len(theirs))
        repository.find("read-tree", theirs)
        return theirs

    def _join(self, base: Tree, ours: Tree, theirs: Tree, stamp: str) -> dict[str, Content]:
        """Return what the merge has at each path at which the two commits differ. ``stamp`` is the time of theirs: on
        every machine, a conflict copy gets the same name."""
        files: dict[str, Content] = {}
        stays = [path for path in ours if path in theirs or ours[path] != base.get(path)]
        taken = {_fold(path) for path in stays}
        folders = {_fold(folder) for path in stays for folder in _folders_of(path)}
        for path in sorted({*base, *ours, *theirs}):
            old, our, their = base.get(path), ours.get(path), theirs.get(path)
            if our == their:
                continue
            if their in (old, None) and our != old:
                files[path] = our
            elif their is None or not self._may_take(path, old, our, their):
                files[path] = their
            else:
                new: Content = their
                blocked = next((folder for folder in _folders_of(path) if _fold(folder) in taken), "")
                if our not in (old, None):
                    new = self._merge_lines(path, old, our, their)
                elif our is None and (blocked or _fold(path) in taken or _fold(path) in folders):
                    new = None  # some file systems could not tell it from what is here
                files[path] = our if new is None else self._clean(path, our, new)
                copy = name_copy(self.workspace, blocked or path, stamp, their.oid)
                if new is None and copy not in ours:
                    files[copy] = self._clean(copy, None, their)
                    self.report.conflicts.append(copy)
                taken.add(_fold(path))
        return files

    def _may_take(self, path: str, old: TreeEntry | None, our: TreeEntry | None, their: TreeEntry) -> bool:
        """Return whether a file of theirs may be written here."""
        refusal = self._find_refusal(path, their)
        if refusal and our not in (old, None):
            hint = "Merge it with 'git pull', then synchronise."
            raise SyncRefused(f"{printable_line(path)} was changed on both sides, and {refusal}.", hint=hint)
        if refusal:
            self._report_problem(path, f"{refusal}; left to git, not written here")
        return not refusal

    def _merge_lines(self, path: str, *sides: TreeEntry | None) -> bytes | None:
        """Return the merged text, or None if both sides changed the same lines of what is no daily note."""
        is_daily = get_daily_notes(self.workspace).find_day(path) is not None
        return self.repository.merge_lines(*map(self.repository.read, sides), union=is_daily)

    def _clean(self, path: str, our: TreeEntry | None, new: TreeEntry | bytes) -> Content:
        """Return what arrives without the lines that were forgotten here, or ours if nothing else is left."""
        if not self._forgotten:
            return new
        data, own = self.repository.read(new), self.repository.read(our)
        rest = self._forgotten.without_forgotten(data, own, path)
        if rest == data:
            return new
        self._report_problem(path, "has text that was forgotten here, which is left out")
        return rest or our

    def _put(self, path: str, expected: TreeEntry | None, new: bytes | None) -> None:
        """Write or remove a file, if it still is as in our commit."""
        absolute = self._absolute(path)
        with self._writing(), OpenWorkspace(self.workspace) as opened:
            current = self._read(opened, path)
            if current == new:
                return
            if not is_same(current, expected):
                if self._is_note(path):
                    raise _ChangedMeanwhile
                self._report_problem(path, "is no note and has changes that are not committed; not written here")
            elif new is None:
                erase_file(absolute, dir_fd=opened.folder_of(absolute))
                with suppress(OSError):  # some are not empty
                    os.removedirs(os.path.dirname(absolute))
            else:
                with replacing(absolute, dir_fd=opened.folder_to_write(absolute)) as file:
                    file.write(new)
                    file.flush()
                    os.fsync(file.fileno())  # here, so that little time passes between the check and the rename
                    if self._read(opened, path) != current:
                        raise _ChangedMeanwhile
        self.report.received.append(path)

    def _read(self, opened: OpenWorkspace, path: str) -> bytes | None:
        try:
            return opened.read(self._absolute(path), max_bytes=_ANY_SIZE).raw
        except NoteNotFound:
            return None


class _ChangedMeanwhile(Exception):
    """A note is no longer what this machine committed."""


def _never_travels(path: str) -> bool:
    """Return whether a file is a machine's own or private, even if a person committed it."""
    is_own = path.lower().startswith(".kept/") or path.lower().endswith((".kept.yaml", ".keptignore"))
    return is_own or private_folder_of(path) is not None


def _fold(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


def _folders_of(path: str) -> list[str]:
    return list(map(str, PurePosixPath(path).parents))
