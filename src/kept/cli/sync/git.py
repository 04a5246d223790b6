"""Runs the `git` program: without questions, with a time limit, never in another repository than the caller's, and
without hooks, filters or merge drivers that a repository names."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from kept.base.values import frozen
from kept.errors import SyncFailed, SyncRefused

_TIMEOUT_S = 300.0
_SETTINGS = ("core.fsmonitor=false", "core.fsync=all", "core.hooksPath=/dev/null", "merge.renames=false")
# "true" is a program that answers nothing; otherwise a window or a terminal might ask.
_VARIABLES = {"GIT_ASKPASS": "true", "SSH_ASKPASS": "true", "SSH_ASKPASS_REQUIRE": "force", "LC_ALL": "C"}


@frozen
class TreeEntry:
    """A file in a commit."""

    mode: str
    oid: str
    size: int = 0


class Git:
    """Git in a folder that is, or becomes, the top of a repository."""

    def __init__(self, root: str, **variables: str) -> None:
        self.root = root
        # In a hook of git, variables name another repository.
        own = {name: text for name, text in os.environ.items() if not re.match("GIT_(?!SSH|CONFIG_GLOBAL$)", name)}
        ceiling = {"GIT_CEILING_DIRECTORIES": os.path.dirname(os.path.realpath(root))}
        self._environment = {"EMAIL": "kept@localhost"} | own | _VARIABLES | ceiling | variables

    def run(self, *arguments: str, stdin: bytes = b"", accept: Sequence[int] = (0,)) -> bytes:
        """Return the output of a command. Raise SyncFailed with all that git said, or SyncRefused without git."""
        command = ["git", *(part for setting in _SETTINGS for part in ("-c", setting)), *arguments]
        try:
            done = subprocess.run(
                command, cwd=self.root, env=self._environment, input=stdin, capture_output=True, timeout=_TIMEOUT_S
            )
        except OSError as exc:
            raise SyncRefused(f"git cannot be run ({exc.strerror}).", hint="Install git.") from exc
        except subprocess.TimeoutExpired:
            raise SyncFailed(f"git {arguments[0]} took longer than {_TIMEOUT_S:.0f} seconds.") from None
        if done.returncode not in accept:
            output = (done.stderr + done.stdout).decode("utf-8", "replace").strip()
            output = re.sub(r"://[^/@\s]*@", "://", output)  # names and passwords in addresses
            reason = re.search(r"^(?:fatal|error): .*", output, re.MULTILINE) or re.search(r".*\Z", output)
            raise SyncFailed(f"git {arguments[0]} failed: {reason[0] if reason else ''}.", output=output)
        return done.stdout

    def text(self, *arguments: str, stdin: bytes = b"", accept: Sequence[int] = (0,)) -> str:
        return os.fsdecode(self.run(*arguments, stdin=stdin, accept=accept)).strip()

    def find(self, *arguments: str) -> str:
        """Return the output of a command as text, or nothing if it fails."""
        return self.text(*arguments, accept=range(256))

    @contextmanager
    def scratch(self) -> Iterator[Git]:
        """Yield a repository with the objects of this one, without its settings, attributes and index."""
        objects = self.text("rev-parse", "--path-format=absolute", "--git-path", "objects")
        with tempfile.TemporaryDirectory(prefix="kept-sync-") as folder:
            git = Git(folder, GIT_DIR=folder, GIT_OBJECT_DIRECTORY=objects, GIT_SHALLOW_FILE=f"{objects}/../shallow")
            git.run("init", "--quiet", "--bare", "--template=")
            os.mkdir(f"{folder}/info")
            yield git

    def tree(self, commit: str) -> dict[str, TreeEntry]:
        """Return all files of a commit, which may be missing, by their paths."""
        tree = {}
        for record in self.text("ls-tree", "-r", "-l", "-z", commit).split("\0")[:-1] if commit else ():
            mode, _, oid, rest = record.split(maxsplit=3)
            size, _, path = rest.partition("\t")
            tree[path] = TreeEntry(mode, oid, int(size.replace("-", "0")))
        return tree

    def read(self, entry: TreeEntry | None) -> bytes | None:
        return self.run("cat-file", "blob", entry.oid) if entry else None

    def store(self, *options: str, stdin: bytes) -> list[str]:
        return self.text("hash-object", "-w", "--no-filters", *options, stdin=stdin).split()

    def merge(self, ours: str, theirs: str, union: Iterable[str]) -> tuple[dict[str, TreeEntry], list[str]]:
        """Return the files of two commits, those of ``union`` with the lines of both, and the paths of conflicts.
        A file where the other side has a folder is at NAME~COMMIT."""
        names = (re.sub(rb"[^\w./-]", b"?", os.fsencode(path)) for path in union)  # "?" stands for any byte
        with open(f"{self.root}/info/attributes", "wb") as file:
            file.writelines(b"/%b merge=union\n" % name for name in names)
        options = ("--write-tree", "-z", "--name-only", "--no-messages", "--allow-unrelated-histories")
        tree, *conflicts = self.text("merge-tree", *options, ours, theirs, accept=(0, 1)).split("\0")[:-1]
        return self.tree(tree), conflicts

    def write_tree(self, files: Mapping[str, TreeEntry]) -> str:
        self.run("read-tree", "--empty")
        lines = "".join(f"{entry.mode} {entry.oid}\t{path}\0" for path, entry in files.items())
        self.run("update-index", "-z", "--index-info", stdin=os.fsencode(lines))
        return self.text("write-tree")
