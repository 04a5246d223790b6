"""Commits changes of notes with the `git` program, if the workspace is in a repository.

Only the note itself is committed (`git commit --only`), so what the user has staged stays staged. A failure is a
reason in the result, never an error: the note and the history are written already.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kept.errors import UsageError
from kept.history.note_change import NoteChange
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


class GitFailed(Exception):
    """A call of git failed. The text is its last line."""


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
    changes = _changes_by_path(history, set(paths)) if paths else {}
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
    lines = [f"{_VERBS.get(kind, 'Change')} {_one_line(path)}", ""]
    if changes and changes[0].why:
        lines += [_one_line(changes[0].why), ""]
    for change in reversed(changes):
        by = change.by
        names = {"agent": by.agent, "tool": by.tool, "person": by.person, "client": by.client, "session": by.session}
        author = ", ".join(f"{name} {_one_line(value)}" for name, value in names.items() if value)
        lines += [f"Kept-Change: {change.id}", f"Kept-By: {author or 'another program'}"]
    return "\n".join(lines)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _differing(root: str) -> list[str]:
    """Return the files below a folder that differ from the last commit, relative to the folder."""
    output = _git(root, "status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--", ".")
    prefix = _git(root, "rev-parse", "--show-prefix").rstrip("\n")
    names = [entry[3:] for entry in output.split("\0") if len(entry) > 3]
    return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]


def _changes_by_path(history: NoteHistory, paths: set[str]) -> dict[str, list[NoteChange]]:
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
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true", "LC_ALL": "C"}
    command = ["git", "--literal-pathspecs", *arguments]
    try:
        process = subprocess.run(
            command, cwd=root, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S
        )
    except OSError as exc:
        raise GitFailed(f"git cannot be run ({exc.strerror})") from exc
    except subprocess.TimeoutExpired as exc:
        raise GitFailed(f"git took longer than {_TIMEOUT_S:.0f} seconds") from exc
    if process.returncode:
        message = (process.stderr or process.stdout).decode("utf-8", "replace").strip()
        raise GitFailed(message.rpartition("\n")[2] or f"exit code {process.returncode}")
    return process.stdout.decode("utf-8", "surrogateescape")
