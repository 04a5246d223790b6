"""The repository of a workspace: whether a sync may use it, its refs and commits, and its remote.

Kept has refs of its own in the repository, beside the branch:

    refs/kept/fetched    the branch of the remote, as last fetched
    refs/kept/remote     the commit of the remote that was merged last
    refs/kept/merge      a merge that is being written into the workspace
    refs/kept/index      the commit that Kept last set the index of git to
    refs/kept/new        the last commit that Kept wrote

`transcript_exchange` lists those for conversations.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from functools import cached_property

from kept.config.schema import GitSyncSettings
from kept.errors import GitSyncFailed, GitSyncRefused
from kept.git_command import GitFailed, read_git, run_git
from kept.git_sync.git_objects import CommitWriter, FileReader, TreeEntry, failed, parse_tree, without_credentials

FETCHED, REMOTE, MERGE, INDEX = (f"refs/kept/{name}" for name in ("fetched", "remote", "merge", "index"))
OPTIONS = tuple(
    part
    for setting in (
        "core.hooksPath=/dev/null",
        "core.fsmonitor=false",
        "core.fsync=committed,reference",
        "core.filesRefLockTimeout=3000",
        "core.packedRefsTimeout=3000",
        "core.quotePath=false",
        "credential.interactive=false",
        "fetch.recurseSubmodules=false",
        "gc.auto=0",
        "maintenance.auto=false",
        "push.gpgSign=false",
        "submodule.recurse=false",
        "transfer.fsckObjects=true",
    )
    for part in ("-c", setting)
)
_VARIABLES = {
    "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PROTOCOL_FROM_USER": "1",
}
_LOCAL_TIMEOUT_S = 300.0
_MAX_LISTING_BYTES = 64_000_000
"""A few small objects can name billions of files. Nothing else of a commit is read before its files are counted."""
_STALE_LOCK_S = 60.0
"""Git holds the lock of a ref for milliseconds."""
_FETCH_FACTOR = 40
"""A fetch may bring as many of the largest files as this."""
_UNFINISHED = {
    "MERGE_HEAD": "A merge",
    "rebase-merge": "A rebase",
    "rebase-apply": "A rebase",
    "CHERRY_PICK_HEAD": "A cherry-pick",
    "REVERT_HEAD": "A revert",
    "BISECT_LOG": "A bisection",
}
_LOST_RACE = (
    "fetch first",
    "non-fast-forward",
    "stale info",
    "cannot lock ref",
    "failed to update ref",
    "incorrect old",
)


class SyncRepository:
    """A repository whose top is the workspace. Callers hold the lock of the sync."""

    def __init__(self, root: str, settings: GitSyncSettings) -> None:
        self.root = root
        self.settings = settings
        self.git_folder = os.path.join(root, ".git")
        self._variables = _VARIABLES | {"GIT_CEILING_DIRECTORIES": os.path.dirname(root)}
        self._index_state: tuple[int, ...] | None = None
        self._refs: dict[str, str] | None = None
        """Refs as they were read last. A change of another process is noticed when the branch is moved."""

    # running git

    def run(
        self, *arguments: str, timeout_s: float = _LOCAL_TIMEOUT_S, stdin: bytes = b"", codes: tuple[int, ...] = (0,)
    ) -> bytes:
        try:
            return run_git(
                self.root,
                *OPTIONS,
                *arguments,
                timeout_s=timeout_s,
                stdin=stdin,
                variables=self._variables,
                good_codes=codes,
            )
        except GitFailed as exc:
            raise failed(exc) from exc

    def find(self, *arguments: str) -> str:
        """Return the output of a command, or nothing if it has none or fails."""
        try:
            return self.run(*arguments).decode("utf-8", "surrogateescape").strip()
        except GitSyncFailed:
            return ""

    def reader(self) -> FileReader:
        return FileReader(self.root, OPTIONS, self._variables)

    def writer(self) -> CommitWriter:
        return CommitWriter(self.root, OPTIONS, self._variables)

    # whether it may be used

    def exists(self) -> bool:
        try:
            return stat.S_ISDIR(os.lstat(self.git_folder).st_mode)
        except OSError:
            return False

    def require_ready(self) -> None:
        """Raise GitSyncRefused if somebody is working in the repository. Change nothing of theirs."""
        self._refs = None
        self._remove_stale_locks()
        if not self.exists():
            if os.path.lexists(self.git_folder):
                raise GitSyncRefused(f"{self.root} is a linked working tree of git, which cannot be synchronised.")
            raise GitSyncRefused(
                f"{self.root} is no git repository.", hint="Connect it to one with 'kept sync --init URL'."
            )
        for name, what in _UNFINISHED.items():
            if os.path.lexists(os.path.join(self.git_folder, name)):
                hint = "Finish or abort it with git, then synchronise. Nothing was changed."
                raise GitSyncRefused(f"{what} is under way in {self.root}.", hint=hint)
        self._require_branch()
        if self.find("config", "--type=bool", "core.sparseCheckout") == "true":
            raise GitSyncRefused("The repository has a sparse checkout, so files that are not here look deleted.")
        self._require_clean_index()

    def _remove_stale_locks(self) -> None:
        """Remove locks of refs of Kept's own that a git which was killed left. We hold the lock of the sync."""
        for folder, _, names in os.walk(os.path.join(self.git_folder, "refs", "kept")):
            for path in (os.path.join(folder, name) for name in names if name.endswith(".lock")):
                if time.time() - os.lstat(path).st_mtime > _STALE_LOCK_S:
                    os.unlink(path)

    def _require_branch(self) -> None:
        head = self.run("symbolic-ref", "--quiet", "HEAD", codes=(0, 1)).decode("utf-8", "replace").strip()
        if head != self.branch_ref:
            where = f"on the branch '{head.removeprefix('refs/heads/')}'" if head else "at a commit without a branch"
            hint = f"Run 'git switch {self.settings.branch}', or set sync.git.branch. Nothing was changed."
            raise GitSyncRefused(f"The repository is {where}, not on '{self.settings.branch}'.", hint=hint)

    def _require_clean_index(self) -> None:
        if os.path.lexists(os.path.join(self.git_folder, "index.lock")):
            raise GitSyncRefused(
                "Another git process is using the repository (.git/index.lock).",
                hint="Wait for it. If none runs, delete that file.",
            )
        self._index_state = self._read_index_state()
        if self._index_state is None:
            return
        head = self.head()
        staged = self.run("diff-index", "--cached", "--name-only", "-z", head or self._empty_tree())
        if not staged:
            if head is not None and self.find_ref(INDEX) != head:
                self.update_refs(f"update {INDEX} {head}")
            return
        own = self.find_ref(INDEX) or self._empty_tree()
        if not self.run("diff-index", "--cached", "--name-only", "-z", own):
            return  # a process was killed before it could renew the index
        count = staged.count(b"\0")
        first = staged.split(b"\0")[0].decode("utf-8", "replace")
        raise GitSyncRefused(
            f"{first}{f' and {count - 1} more' if count > 1 else ''} is staged for a commit of yours.",
            hint="Commit it, or unstage it with 'git restore --staged .'. Nothing was changed.",
        )

    def _empty_tree(self) -> str:
        return self.run("hash-object", "-t", "tree", "--stdin", "-w").decode().strip()

    def _read_index_state(self) -> tuple[int, ...] | None:
        try:
            state = os.lstat(os.path.join(self.git_folder, "index"))
        except OSError:
            return None
        return state.st_ino, state.st_size, state.st_mtime_ns

    # commits and refs

    @property
    def branch_ref(self) -> str:
        return f"refs/heads/{self.settings.branch}"

    @cached_property
    def algorithm(self) -> str:
        return self.run("rev-parse", "--show-object-format").decode().strip()

    def head(self) -> str | None:
        return self.find_ref(self.branch_ref)

    def find_ref(self, name: str) -> str | None:
        """Return the commit of the branch or of a ref of Kept's own."""
        if self._refs is None:
            output = self.run("for-each-ref", "--format=%(refname) %(objectname)", "refs/kept/", self.branch_ref)
            lines = output.decode("utf-8", "surrogateescape").split("\n")  # others may name refs in any encoding
            self._refs = dict(line.split(" ", 1) for line in lines if line)
        return self._refs.get(name)

    def tree(self, commit: str | None) -> dict[str, TreeEntry]:
        if commit is None:
            return {}
        try:
            output = read_git(
                self.root,
                *(*OPTIONS, "ls-tree", "-r", "-l", "-z", "--full-tree", commit),
                max_output=_MAX_LISTING_BYTES,
                variables=self._variables,
            )
        except GitFailed as exc:
            raise failed(exc) from exc
        if output is None:
            raise GitSyncRefused(f"The commit {commit[:12]} has more files than any team writes.")
        return parse_tree(output)

    def merge_base(self, ours: str, theirs: str) -> str | None:
        bases = self.run("merge-base", "--all", ours, theirs, codes=(0, 1)).decode().split()
        return bases[0] if bases else None

    def is_ancestor(self, older: str, newer: str) -> bool:
        return self.merge_base(older, newer) == older

    def update_refs(self, *updates: str) -> None:
        """Update refs in one transaction, each given as a line of `git update-ref --stdin`."""
        known: dict[str, str] | None = self._refs
        self._refs = None
        lines = ["start", *updates, "prepare", "commit"]
        self.run("update-ref", "--stdin", stdin="".join(f"{line}\n" for line in lines).encode())
        if known is None:
            return
        for update in updates:
            action, name, *oids = update.split(" ")
            known.pop(name, None) if action == "delete" else known.update({name: oids[0]})
        self._refs = known

    def move_branch(self, commit: str, *, done: str = "") -> None:
        """Move the branch to a commit. ``done`` is a further line of the transaction."""
        old = self.head() or "0" * len(commit)
        self.update_refs(f"update {self.branch_ref} {commit} {old}", *([done] if done else []))

    def renew_index(self, commit: str) -> None:
        """Let the index of git show nothing as staged, unless somebody used it meanwhile. The next sync tries again."""
        temporary = os.path.join(self.git_folder, "kept-index")
        for leftover in (temporary, f"{temporary}.lock"):  # of a process that was killed
            with suppress(FileNotFoundError):
                os.unlink(leftover)
        variables = self._variables | {"GIT_INDEX_FILE": temporary}
        try:
            run_git(self.root, *OPTIONS, "read-tree", commit, timeout_s=_LOCAL_TIMEOUT_S, variables=variables)
        except GitFailed as exc:
            raise failed(exc) from exc
        is_locked = os.path.lexists(os.path.join(self.git_folder, "index.lock"))
        if is_locked or self._read_index_state() != self._index_state:
            os.unlink(temporary)
            return
        os.replace(temporary, os.path.join(self.git_folder, "index"))
        self._index_state = self._read_index_state()
        self.update_refs(f"update {INDEX} {commit}")

    def find_renames(self, older: str, newer: str) -> dict[str, str]:
        """Return the files that were renamed between two commits: old path → new path."""
        output = self.run("diff-tree", "-r", "-z", "-M", "-l2000", "--diff-filter=R", "--name-status", older, newer)
        fields = output.decode("utf-8", "surrogateescape").split("\0")
        return {fields[at + 1]: fields[at + 2] for at in range(0, len(fields) - 2, 3)}

    def is_shallow(self) -> bool:
        return os.path.exists(os.path.join(self.git_folder, "shallow"))

    # the remote

    def remote_address(self) -> str:
        """Return the address of the remote, for people: without a password. Raise GitSyncRefused if there is none."""
        remote = self.settings.remote
        if remote.startswith("-"):
            raise GitSyncRefused(f"'{remote}' cannot be a remote.", hint="Set sync.git.remote to a name or an address.")
        is_address = ":" in remote or "/" in remote
        address = remote if is_address else self.find("remote", "get-url", remote)
        if not address:
            hint = "Add one with 'kept sync --init URL'."
            raise GitSyncRefused(f"The repository has no remote '{remote}'.", hint=hint)
        return without_credentials(address)

    def fetch(self) -> str | None:
        """Fetch the branch of the remote, and return its commit; None if the remote has no such branch."""
        if not self._fetch(f"+{self.branch_ref}:{FETCHED}"):
            self.update_refs(f"delete {FETCHED}")
            return None
        return self.find_ref(FETCHED)

    def fetch_refs(self, prefix: str, local_prefix: str) -> None:
        """Fetch all refs of the remote that begin so, under another beginning, and drop those that are gone there."""
        self._fetch("--prune", f"+{prefix}*:{local_prefix}*")

    def list_refs(self, prefix: str) -> list[str]:
        """Return the names of refs of Kept's own that begin so, without that."""
        self.find_ref(prefix)
        return sorted(name.removeprefix(prefix) for name in self._refs or () if name.startswith(prefix))

    def _fetch(self, *what: str) -> bool:
        """Fetch refs. Return False if the remote has no such ref."""
        self._refs = None
        *options, refs = what
        limit = _FETCH_FACTOR * self.settings.max_file_bytes
        try:
            run_git(
                self.root,
                *OPTIONS,
                *("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"),
                *("--no-auto-maintenance", *options, "--", self.settings.remote, refs),
                timeout_s=self.settings.timeout_s,
                variables=self._variables,
                max_file_bytes=limit,
            )
        except GitFailed as exc:
            if exc.is_too_large:
                hint = "If that is right, raise sync.git.max_file_bytes."
                raise GitSyncFailed(f"The remote sends more than {limit:,} bytes.", hint=hint) from exc
            if "couldn't find remote ref" not in exc.output:
                raise self._unreachable(str(exc)) from exc
            return False
        return True

    def push(self, commit: str) -> bool:
        """Push a commit. Return False if another machine pushed first."""
        try:
            run_git(
                self.root,
                *OPTIONS,
                *("push", "--porcelain", "--no-verify", "--no-follow-tags", "--recurse-submodules=no", "--"),
                *(self.settings.remote, f"{commit}:{self.branch_ref}"),
                timeout_s=self.settings.timeout_s,
                variables=self._variables,
            )
        except GitFailed as exc:
            rejected = next((line for line in exc.output.split("\n") if line.startswith("!\t")), "")
            if any(reason in rejected for reason in _LOST_RACE):
                return False
            raise self._unreachable(rejected.rpartition("\t")[2] or str(exc)) from exc
        self.update_refs(f"update {REMOTE} {commit}", f"update {FETCHED} {commit}")
        return True

    def push_own_ref(self, commit: str, ref: str, *, replacing: str | None) -> None:
        """Let a ref of the remote that only this machine writes be a commit, if it is still the one to replace."""
        try:
            run_git(
                self.root,
                *OPTIONS,
                *("push", "--porcelain", "--no-verify", "--no-follow-tags", "--recurse-submodules=no"),
                *(f"--force-with-lease={ref}:{replacing or ''}", "--", self.settings.remote, f"{commit}:{ref}"),
                timeout_s=self.settings.timeout_s,
                variables=self._variables,
            )
        except GitFailed as exc:
            rejected = next((line for line in exc.output.split("\n") if line.startswith("!\t")), "")
            raise self._unreachable(rejected.rpartition("\t")[2] or str(exc)) from exc

    def _unreachable(self, reason: str) -> GitSyncFailed:
        return GitSyncFailed(
            f"{self.remote_address()}: {without_credentials(reason)}.",
            hint="What was written here stays, and is sent by the next sync.",
        )

    def tidy_objects(self) -> None:
        """Let git pack its objects if there are many."""
        self.find("-c", "gc.auto=2000", "gc", "--auto", "--quiet")
