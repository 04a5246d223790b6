"""Commits changes of notes with the `git` program, if the workspace is in a repository.

Only the note itself is committed (`git commit --only`), so what the user has staged stays staged. A failure is a
reason in the result, never an error: the note and the history are written already.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kept.errors import UsageError
from kept.git_command import GitFailed, run_git
from kept.history.note_change import NoteChange
from kept.limits import one_line
from kept.values import frozen

if TYPE_CHECKING:
    from kept.history.note_history import NoteHistory

_TIMEOUT_S = 15.0
_VERBS = {"add": "Add to", "edit": "Edit", "remove": "Remove from", "import": "Import", "undo": "Undo in"}


@frozen
class CommitResult:
    commits: tuple[str, ...] = ()
    """Notes that were committed."""
    degraded: tuple[str, ...] = ()


def is_repository(root: str) -> bool:
    """Return whether a folder is in a git repository, without running git."""
    folder = os.path.abspath(root)
    while True:
        if os.path.exists(os.path.join(folder, ".git")):
            return True
        parent = os.path.dirname(folder)
        if parent == folder:
            return False
        folder = parent


def commit_changes(history: NoteHistory) -> CommitResult:
    """Commit every note that differs from the last commit, with the changes that the history has for it."""
    root = history.workspace.root
    if not is_repository(root):
        raise UsageError(f"{root} is not in a git repository.", hint=f"Create one with: git init '{root}'")
    try:
        paths = [path for path in _differing(root) if history.workspace.is_own_note(os.path.join(root, path))]
    except GitFailed as exc:
        return CommitResult(degraded=(f"git failed: {exc}",))
    changes = changes_by_path(history, set(paths)) if paths else {}
    commits: list[str] = []
    degraded: list[str] = []
    for path in paths:
        reason = commit_note(root, path, changes.get(path, []))
        if reason is None:
            commits.append(path)
        else:
            degraded.append(reason)
    return CommitResult(tuple(commits), tuple(degraded))


def commit_note(root: str, path: str, changes: Sequence[NoteChange]) -> str | None:
    """Commit one note. Return the reason if that failed."""
    try:
        if os.path.exists(os.path.join(root, path)):
            _git(root, "add", "--intent-to-add", "--", path)  # --only takes no file that git does not know
        _git(
            root,
            *(
                "-c",
                "commit.gpgsign=false",
                "commit",
                "--quiet",
                "--no-verify",
                "--only",
                "-m",
                _message(path, changes),
            ),
            *("--", path),
        )
    except GitFailed as exc:
        return f"{path} was not committed: {exc}"
    return None


def _message(path: str, changes: Sequence[NoteChange]) -> str:
    kind = changes[0].kind if changes else ""
    lines = [f"{_VERBS.get(kind, 'Change')} {one_line(path)}", ""]
    if changes and changes[0].why:
        lines += [one_line(changes[0].why), ""]
    for change in reversed(changes):
        lines += [f"Kept-Change: {change.id}", f"Kept-By: {author_line(change)}"]
    return "\n".join(lines)


def author_line(change: NoteChange) -> str:
    """Return who made a change, for a line of a commit."""
    by = change.by
    names = {"agent": by.agent, "tool": by.tool, "person": by.person, "client": by.client, "session": by.session}
    return ", ".join(f"{name} {one_line(value)}" for name, value in names.items() if value) or "another program"


def _differing(root: str) -> list[str]:
    """Return the files below a folder that differ from the last commit, relative to the folder."""
    output = _git(root, "status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--", ".")
    prefix = _git(root, "rev-parse", "--show-prefix").rstrip("\n")
    names = [entry[3:] for entry in output.split("\0") if len(entry) > 3]
    return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]


def changes_by_path(history: NoteHistory, paths: set[str]) -> dict[str, list[NoteChange]]:
    """Return the changes of each note since its last commit, as far as the commit names them, newest first."""
    committed = _committed_ids(history.workspace.root)
    changes: dict[str, list[NoteChange]] = {}
    for change in history.iter_changes():
        if change.id in committed:
            paths = paths - {change.path}
        if not paths:
            break
        if change.path in paths:
            changes.setdefault(change.path, []).append(change)
    return changes


def _committed_ids(root: str) -> set[str]:
    try:
        output = _git(root, "log", "--max-count=2000", "--format=%(trailers:key=Kept-Change,valueonly)")
    except GitFailed:
        return set()  # no commit yet
    return set(output.split())


def _git(root: str, *arguments: str) -> str:
    return run_git(root, "--literal-pathspecs", *arguments, timeout_s=_TIMEOUT_S).decode("utf-8", "surrogateescape")
