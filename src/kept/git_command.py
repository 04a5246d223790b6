"""Runs the `git` program: without questions, with a time limit, never in another repository than the caller's, and
without hooks, filters or other programs that a repository names. Reads and writes the files of commits."""

from __future__ import annotations

import hashlib
import os
import re
import selectors
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress

from kept.errors import SyncFailed, SyncRefused
from kept.values import frozen

_TIMEOUT_S = 300.0
_MAX_LISTING_BYTES = 64_000_000
"""A few small objects can name billions of files."""
_LOST_RACE = ("fetch first", "non-fast-forward", "cannot lock ref", "failed to update ref", "incorrect old")
_KEPT_VARIABLES = ("GIT_SSH", "GIT_SSL_", "GIT_PROXY_", "GIT_HTTP_", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM")
"""Beginnings of variables that say how to reach a remote. Others may name another repository, as in a hook of git."""
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.fsync=committed,reference",
    "core.quotePath=false",
    "credential.interactive=false",
    "push.gpgSign=false",
    "submodule.recurse=false",
    "transfer.fsckObjects=true",
)
_OPTIONS = [part for setting in _SETTINGS for part in ("-c", setting)]
_VARIABLES = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",  # a program that answers nothing; otherwise a window might ask
    "SSH_ASKPASS": "true",
    "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "LC_ALL": "C",
}


@frozen
class TreeEntry:
    """A file in a commit. ``size`` is -1 for what is no file, such as a submodule."""

    mode: str
    oid: str
    size: int


Tree = Mapping[str, TreeEntry]
Content = TreeEntry | bytes | None
"""A file that the repository has, a new one, or none."""


def is_same(data: bytes | None, entry: TreeEntry | None) -> bool:
    if data is None or entry is None:
        return data is None and entry is None
    name = "sha1" if len(entry.oid) == 40 else "sha256"
    return hashlib.new(name, b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest() == entry.oid


class Git:
    """Git in a folder that is, or becomes, the top of a repository."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._reader: subprocess.Popen[bytes] | None = None

    def run(self, *arguments: str, stdin: bytes = b"", max_output: int | None = None) -> bytes:
        """Return the output of a command. Raise SyncFailed with all that git said, or SyncRefused without git.

        It fails as soon as there is more output than ``max_output`` bytes. Its input and its warnings are files, so a
        full pipe cannot stop it.
        """
        deadline = time.monotonic() + _TIMEOUT_S
        with tempfile.TemporaryFile() as input_file, tempfile.TemporaryFile() as warnings:
            input_file.write(stdin)
            input_file.seek(0)
            try:
                process = subprocess.Popen(
                    ["git", *_OPTIONS, *arguments],
                    cwd=self.root,
                    env=_environment(self.root),
                    stdin=input_file,
                    stdout=subprocess.PIPE,
                    stderr=warnings,
                    start_new_session=True,  # a group of its own, so that `_stop` also ends what it started
                )
            except OSError as exc:
                raise SyncRefused(f"git cannot be run ({exc.strerror}).", hint="Install git.") from exc
            try:
                output = _read(process, deadline, max_output)
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise SyncFailed(f"git {arguments[0]} took longer than {_TIMEOUT_S:.0f} seconds.") from None
            finally:
                _stop(process)
            if process.returncode:
                warnings.seek(0)
                raise _failure_of(arguments[0], process.returncode, warnings.read(), output)
        return output

    def find(self, *arguments: str) -> str:
        """Return the output of a command as text, or nothing if it fails."""
        try:
            return self.run(*arguments).decode("utf-8", "surrogateescape").strip()
        except SyncFailed:
            return ""

    def tree(self, commit: str | None) -> dict[str, TreeEntry]:
        """Return all files of a commit by their paths."""
        listing = b""
        if commit:
            listing = self.run("ls-tree", "-r", "-l", "-z", "--full-tree", commit, max_output=_MAX_LISTING_BYTES)
        tree = {}
        for record in listing.decode("utf-8", "surrogateescape").split("\0")[:-1]:
            about, _, path = record.partition("\t")
            mode, kind, oid, size = about.split()
            tree[path] = TreeEntry(mode, oid, int(size) if kind == "blob" else -1)
        return tree

    def read(self, content: Content) -> bytes:
        """Return the bytes of a file, through one process for all. Raise SyncFailed if the repository is damaged."""
        if not isinstance(content, TreeEntry):
            return content or b""
        if self._reader is None:
            self._reader = subprocess.Popen(
                ["git", *_OPTIONS, "cat-file", "--batch"],
                cwd=self.root,
                env=_environment(self.root),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        assert self._reader.stdin is not None
        assert self._reader.stdout is not None
        self._reader.stdin.write(f"{content.oid}\n".encode())
        self._reader.stdin.flush()
        header = self._reader.stdout.readline().split()
        if header[1:] != [b"blob", str(content.size).encode()]:
            raise SyncFailed(f"The repository lacks the object {content.oid}.", hint="Check it with 'git fsck'.")
        return self._reader.stdout.read(content.size + 1)[:-1]

    def close(self) -> None:
        if self._reader is not None:
            _stop(self._reader)
        self._reader = None

    def merge_lines(self, base: bytes, ours: bytes, theirs: bytes, *, union: bool) -> bytes | None:
        """Return the merged text, or None if both sides changed the same lines, or if it is no text."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("ours", ours), ("base", base), ("theirs", theirs)):
                with open(os.path.join(folder, name), "wb") as file:
                    file.write(text)
            try:
                joined = Git(folder).run("merge-file", "-p", "-q", *["--union"] * union, "ours", "base", "theirs")
            except SyncFailed:
                return None
        return _without_repeats(joined, ours, theirs) if union else joined

    def commit(self, branch: str, message: str, parents: Sequence[str], changes: Mapping[str, Content]) -> str:
        """Commit to the branch the files of the first parent with some changes. No filter changes them."""
        author = self.find("var", "GIT_COMMITTER_IDENT") or f"Kept <kept@localhost> {time.time():.0f} +0000"
        lines = [f"commit refs/heads/{branch}\nmark :1\ncommitter {author}\ndata {len(message)}\n{message}\n"]
        lines += [f"{'merge' if at else 'from'} {parent}\n" for at, parent in enumerate(parents)]
        stream = "".join(lines).encode()
        # Removals first: a folder may have taken the name of a file.
        for path, content in sorted(changes.items(), key=lambda item: item[1] is not None):
            name = re.sub(rb'(["\\])', rb"\\\1", path.encode("utf-8", "surrogateescape")).replace(b"\n", b"\\n")
            if content is None:
                stream += b'D "%b"\n' % name
            elif isinstance(content, TreeEntry):
                stream += b'M %b %b "%b"\n' % (content.mode.encode(), content.oid.encode(), name)
            else:
                stream += b'M 100644 inline "%b"\ndata %d\n%b\n' % (name, len(content), content)
        stream += b"\nget-mark :1\ndone\n"
        commit = self.run("fast-import", "--quiet", "--done", "--date-format=raw", stdin=stream).decode().strip()
        self.find("read-tree", commit)  # if another git uses the index, the next sync tries again
        return commit

    def push(self, remote: str, commit: str, ref: str) -> bool:
        """Push a commit. Return False if another machine pushed first."""
        command = ("push", "--porcelain", "--no-verify", "--no-follow-tags", "--recurse-submodules=no", "--")
        try:
            self.run(*command, remote, f"{commit}:{ref}")
        except SyncFailed as exc:
            if any(reason in exc.output for reason in _LOST_RACE):
                return False
            raise
        return True

    def connect(self, url: str) -> None:
        """Add a remote, and create the repository if there is none."""
        if not os.path.lexists(os.path.join(self.root, ".git")):
            head = self.run("ls-remote", "--symref", "--", url, "HEAD").decode("utf-8", "replace")
            branch = re.match(r"ref: refs/heads/(\S+)\t", head)
            self.run("init", "--quiet", "--template=", f"--initial-branch={branch[1] if branch else 'main'}", ".")
        known = self.find("remote", "get-url", "origin")
        if known and known != url:
            hint = "Change it with 'git remote set-url origin URL'."
            raise SyncRefused("The remote 'origin' of the repository is another one.", hint=hint)
        if not known:
            self.run("remote", "add", "--", "origin", url)


def _environment(root: str) -> dict[str, str]:
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith(_KEPT_VARIABLES)
    }
    return own | _VARIABLES | {"GIT_CEILING_DIRECTORIES": os.path.dirname(os.path.realpath(root))}


def _read(process: subprocess.Popen[bytes], deadline: float, max_output: int | None) -> bytes:
    assert process.stdout is not None
    pieces: list[bytes] = []
    size = 0
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while selector.select(max(0.0, deadline - time.monotonic())):
            piece = os.read(process.stdout.fileno(), 1 << 20)
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)
            size += len(piece)
            if max_output is not None and size > max_output:
                raise SyncFailed(f"git printed more than {max_output:,} bytes.")
    raise subprocess.TimeoutExpired("git", 0)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End git and what it started, unless it has ended."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _without_repeats(joined: bytes, ours: bytes, theirs: bytes) -> bytes:
    """Return the lines of two texts without those that one merge after another would repeat."""
    most = Counter(ours.splitlines()) | Counter(theirs.splitlines())
    lines = []
    for line in joined.splitlines(keepends=True):
        text = line.rstrip(b"\r\n")
        most[text] -= 1
        if most[text] >= 0 or not text.strip():
            lines.append(line)
    return b"".join(lines)


def _failure_of(command: str, code: int, warnings: bytes, output: bytes) -> SyncFailed:
    text = "\n".join(part.decode("utf-8", "replace").strip() for part in (warnings, output) if part)
    text = re.sub(r"://[^/@\s]*@", "://", text)  # names and passwords in addresses
    lines = [line for line in text.split("\n") if line.strip() and not line.startswith("hint:")]
    reason = next((line for line in lines if line.startswith(("fatal: ", "error: "))), lines[-1] if lines else "")
    return SyncFailed(f"git {command} failed: {reason or f'exit code {code}'}.", output=text)
