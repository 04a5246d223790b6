"""Trees, files and commits of a repository, read and written as bytes: no filter and no attribute changes them."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import IO, Any

from kept.errors import GitSyncFailed
from kept.git_command import GitFailed, failure_of, start_git, stop_git
from kept.values import frozen

FILE_MODES = ("100644", "100755")
NEW_COMMIT = "refs/kept/new"
"""The last commit that was written, so that git does not collect it before a branch has it."""


@frozen
class TreeEntry:
    """A file in a commit. ``size`` is -1 for what is no file, such as a submodule."""

    mode: str
    oid: str
    size: int


Tree = Mapping[str, TreeEntry]
"""All files of a commit by their paths."""


def failed(exc: GitFailed) -> GitSyncFailed:
    return GitSyncFailed(f"git failed: {without_credentials(str(exc))}.", hint="")


def without_credentials(text: str) -> str:
    """Return a text without the names and passwords in its addresses."""
    return re.sub(r"://[^/@\s]*@", "://", text)


def parse_tree(output: bytes) -> dict[str, TreeEntry]:
    """Return the files of a commit, from the output of `git ls-tree -r -l -z`."""
    tree: dict[str, TreeEntry] = {}
    for record in output.split(b"\0"):
        if record:
            about, _, path = record.partition(b"\t")
            mode, kind, oid, size = about.decode().split()
            number = int(size) if kind == "blob" and size.isdigit() else -1
            tree[path.decode("utf-8", "surrogateescape")] = TreeEntry(mode, oid, number)
    return tree


def object_id(data: bytes, algorithm: str) -> str:
    """Return the name that git gives a file. ``algorithm`` is sha1 or sha256."""
    digest = hashlib.new(algorithm, b"blob %d\0" % len(data), usedforsecurity=False)
    digest.update(data)
    return digest.hexdigest()


class FileReader(AbstractContextManager["FileReader"]):
    """Reads files of commits by their names in git, through one process."""

    def __init__(self, root: str, options: Sequence[str], variables: Mapping[str, str]) -> None:
        self._command = (root, *options, "cat-file", "--batch")
        self._variables = variables
        self._process: Any = None

    def __exit__(self, *_: Any) -> None:
        if self._process is not None:
            stop_git(self._process)

    def read_entry(self, entry: TreeEntry) -> bytes:
        """Return the bytes of a file. Raise GitSyncFailed if the repository is damaged."""
        try:
            return self._read(entry.oid)
        except (GitFailed, OSError, ValueError) as exc:
            raise GitSyncFailed(f"git failed: {exc}.", hint="Check the repository with 'git fsck'.") from exc

    def _read(self, oid: str) -> bytes:
        if self._process is None:
            self._process = start_git(*self._command, variables=self._variables)
        output: IO[bytes] = self._process.stdout
        self._process.stdin.write(f"{oid}\n".encode())
        self._process.stdin.flush()
        header = output.readline().split()
        if len(header) != 3 or header[1] != b"blob":
            raise GitFailed(f"the repository lacks the object {oid[:12]}")
        size = int(header[2])
        data = output.read(size)
        if len(data) != size or output.read(1) != b"\n":
            raise GitFailed(f"the object {oid[:12]} cannot be read")
        return data


@frozen
class CommitText:
    """Message and author of a commit."""

    author: str
    email: str
    message: str
    time: dt.datetime


FileContent = bytes | TreeEntry | None
"""New content of a file: bytes, a file that the repository has, or None to remove it."""


class CommitWriter(AbstractContextManager["CommitWriter"]):
    """Writes files and one commit with them. Nothing points to them until `commit` returns."""

    def __init__(self, root: str, options: Sequence[str], variables: Mapping[str, str]) -> None:
        self._command = (root, *options, "fast-import", "--quiet", "--force", "--done", "--date-format=raw")
        self._variables = variables
        self._process: Any = None
        self._marks = 0
        self._removals: list[bytes] = []
        self._changes: list[bytes] = []

    def __exit__(self, *_: Any) -> None:
        if self._process is not None:
            stop_git(self._process)

    @property
    def is_empty(self) -> bool:
        return not self._changes and not self._removals

    def put(self, path: str, content: FileContent) -> None:
        """Add a file to the commit, replace it or remove it."""
        name = _quote(path)
        if content is None:
            self._removals.append(b"D " + name + b"\n")
        elif isinstance(content, TreeEntry):
            self._changes.append(f"M {content.mode} {content.oid} ".encode() + name + b"\n")
        else:
            self._marks += 1
            self._write(b"blob\nmark :%d\ndata %d\n" % (self._marks, len(content)), content, b"\n")
            self._changes.append(b"M 100644 :%d " % self._marks + name + b"\n")

    def commit(self, text: CommitText, parents: Sequence[str]) -> str:
        """Write the commit and return its name. Its files are those of the first parent, with the changes."""
        mark = self._marks + 1
        stamp = f"{text.author} <{text.email}> {int(text.time.timestamp())} {text.time:%z}".encode()
        message = text.message.encode("utf-8", "replace")
        lines = [
            b"" if parents else f"reset {NEW_COMMIT}\n\n".encode(),
            f"commit {NEW_COMMIT}\nmark :{mark}\n".encode(),
        ]
        lines += [b"author " + stamp + b"\ncommitter " + stamp + b"\ndata %d\n" % len(message) + message + b"\n"]
        lines += [f"{'from' if at == 0 else 'merge'} {parent}\n".encode() for at, parent in enumerate(parents)]
        # Removals first: a folder may have taken the name of a file.
        self._write(*lines, *self._removals, *self._changes, b"\nget-mark :%d\ndone\n" % mark)
        try:
            output, errors = self._process.communicate()
        except BrokenPipeError:
            output, errors = b"", b""
        if self._process.returncode or not output.strip():
            raise failed(failure_of(self._process.returncode, errors))
        oid: str = output.decode().strip()
        return oid

    def _write(self, *pieces: bytes) -> None:
        if self._process is None:
            self._process = start_git(*self._command, variables=self._variables)
        try:
            for piece in pieces:
                self._process.stdin.write(piece)
        except BrokenPipeError:
            _, errors = self._process.communicate()
            raise failed(failure_of(self._process.returncode, errors)) from None


def _quote(path: str) -> bytes:
    name = path.encode("utf-8", "surrogateescape")
    if b"\n" not in name and not name.startswith(b'"'):
        return name
    return b'"' + name.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n") + b'"'
