"""Joins two commits: decides for every file that differs what becomes of it. Reads files only where both sides changed.

A change wins over a removal, and a rename takes the other side's changes along. If both changed a note, its text is
merged (`note_merge`). Of any other file the published version stays, and the version of this machine becomes a conflict
copy beside it, as other programs that synchronise name theirs.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kept.errors import GitSyncRefused
from kept.git_sync.committed_files import CommittedFiles
from kept.git_sync.git_objects import FileContent, Tree, TreeEntry
from kept.limits import printable_line
from kept.values import frozen
from kept.working_copy.file_merge import FileMerge
from kept.working_copy.passage_merge import MergeHosts, Sides
from kept.working_copy.synced_files import PROPOSALS_FOLDER

ReadFile = Callable[[TreeEntry], bytes]


@frozen
class Ancestry:
    """The commit that both sides began with, and the files that each renamed since: old path → new path."""

    tree: Tree
    our_renames: Mapping[str, str]
    their_renames: Mapping[str, str]


@dataclass
class MergePlan:
    """What turns our commit into the joined one."""

    changes: dict[str, FileContent] = field(default_factory=dict)
    merged: list[str] = field(default_factory=list)
    """Files that both sides changed."""
    conflicts: list[str] = field(default_factory=list)
    """Notes of which passages stand in two versions, and copies of other files."""


class TreeMerge(FileMerge):
    def __init__(
        self, files: CommittedFiles, read: ReadFile, *, our_host: str, host_of: Callable[[str], str], today: dt.date
    ) -> None:
        super().__init__(files, our_host=our_host, today=today)
        self._files = files
        self._read = read
        self._host_of = host_of
        """Returns the machine that last changed a file on the other side."""

    def plan(self, ancestry: Ancestry, ours: Tree, theirs: Tree) -> MergePlan:
        """Return the plan. Raise GitSyncRefused if both sides changed a file that is not Kept's to merge."""
        plan = MergePlan()
        done = self._follow_renames(plan, ancestry, ours, theirs)
        for path in sorted({*ours, *theirs} - done):
            our, their, base = ours.get(path), theirs.get(path), ancestry.tree.get(path)
            if our == their or their == base:
                continue
            if our == base or our is None:
                plan.changes[path] = their
            elif their is not None:
                self._merge_file(plan, path, base, our, their)
            elif path.startswith(PROPOSALS_FOLDER):
                plan.changes[path] = None  # decided elsewhere
        _require_places(plan, ours)
        return plan

    def _follow_renames(self, plan: MergePlan, ancestry: Ancestry, ours: Tree, theirs: Tree) -> set[str]:
        """Merge files that one side renamed and the other changed. Return the paths that are decided."""
        done: set[str] = set()
        for old, new in ancestry.their_renames.items():
            base, our, their = ancestry.tree.get(old), ours.get(old), theirs.get(new)
            if None not in (base, our, their) and our != base and new not in ours and old not in theirs:
                self._merge_file(plan, new, base, our, their)
                plan.changes[old] = None
                done |= {old, new}
        for old, new in ancestry.our_renames.items():
            base, our, their = ancestry.tree.get(old), ours.get(new), theirs.get(old)
            if None not in (base, our, their) and their != base and new not in theirs and old not in ours:
                self._merge_file(plan, new, base, our, their)
                done |= {old, new}
            elif new == ancestry.their_renames.get(old) and our != theirs.get(new):
                self._merge_file(plan, new, base, our, theirs.get(new))
                done |= {old, new}
        return done

    def _merge_file(
        self, plan: MergePlan, path: str, base: TreeEntry | None, ours: TreeEntry | None, theirs: TreeEntry | None
    ) -> None:
        if ours is None or theirs is None:
            return
        if ours.oid == theirs.oid or (base is not None and theirs.oid == base.oid):
            plan.changes[path] = ours  # only the mode differs, or the name
            return
        if base is not None and ours.oid == base.oid:
            plan.changes[path] = theirs
            return
        if not all(self._files.accepts(path, entry) for entry in (ours, theirs)):
            shown = printable_line(path)
            raise GitSyncRefused(
                f"{shown} was changed here and in the remote, and Kept does not merge such a file.",
                hint="Merge it with git. Nothing was changed.",
            )
        plan.merged.append(path)
        if path.startswith(PROPOSALS_FOLDER):
            plan.changes[path] = theirs
            return
        merged = self._merge_text(path, base, ours, theirs)
        if merged is None:
            plan.changes[path] = theirs
            copy = self.copy_name(path, plan.changes)
            plan.changes[copy] = ours
            plan.conflicts.append(copy)
            return
        data, has_conflict = merged
        plan.changes[path] = data
        plan.conflicts += [path] if has_conflict else []

    def _merge_text(
        self, path: str, base: TreeEntry | None, ours: TreeEntry, theirs: TreeEntry
    ) -> tuple[bytes, bool] | None:
        can_read = base is not None and self._files.accepts(path, base)
        sides = Sides(self._read(base) if base and can_read else b"", self._read(ours), self._read(theirs))
        return self.merge(path, sides, MergeHosts(self._our_host, self._host_of(path)))


def _require_places(plan: MergePlan, ours: Tree) -> None:
    """Raise GitSyncRefused if a file would stand where a folder has to be."""
    removed = {path for path, content in plan.changes.items() if content is None}
    paths = {*ours, *plan.changes} - removed
    for path in plan.changes.keys() - removed:
        if any(parent in paths for parent in _parents(path)):
            _refuse_place(path)
    for path in paths:
        if any(parent in plan.changes and parent in paths for parent in _parents(path)):
            _refuse_place(path)


def _parents(path: str) -> Iterable[str]:
    parts = path.split("/")
    return ("/".join(parts[:count]) for count in range(1, len(parts)))


def _refuse_place(path: str) -> None:
    raise GitSyncRefused(
        f"{printable_line(path)} is in a folder here whose name is a file in the remote, or the other way round.",
        hint="Rename one of them. Nothing was changed.",
    )
