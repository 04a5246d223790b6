"""kept sync: the same notes on several machines, over git.

Notes that changed are committed before anything is merged, and the branch moves only after everything that arrived is
written. A process that is killed in between leaves notes that are merged already: the next sync commits them and merges
again, which changes nothing twice. An editor takes no lock: if a note changed meanwhile, the sync begins anew.

Git merges. A changed note beats a removed one, and a daily note gets the lines of both. Where both sides changed the
same lines of another note, ours stays, and theirs becomes a conflict copy beside it.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from kept.agent.tools.record_json import to_json
from kept.base.file_lock import locked
from kept.base.limits import printable_line
from kept.base.records import Problem
from kept.base.values import frozen
from kept.base.visibility import private_folder_of
from kept.base.wording import plural
from kept.cli.options import kept_command, option
from kept.cli.output import warn_all
from kept.cli.root import Globals
from kept.config import Config
from kept.errors import DocumentNotFound, StorageConflict, SyncFailed, SyncRefused
from kept.notes.conflict_copies import name_copy
from kept.notes.daily import get_daily_notes
from kept.notes.scan import scan_workspace
from kept.notes.workspace import Workspace, find_arrival_fault, is_visible
from kept.sessions.forgotten_text import ForgottenText
from kept.storage.contract import ABSENT, Erase, Write, version_of
from kept.storage.open import open_agent

_ATTEMPTS, _LONGEST_PAUSE_S, _LOCK_WAIT_S = 20, 0.5, 60.0
_ANY_SIZE, _MANY_REMOVED = 1 << 40, 20
_UNFINISHED = ("MERGE_HEAD", "rebase-merge", "rebase-apply", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG")


@kept_command("sync")
@option("--init", "URL", "Connect the workspace to a git repository, then synchronise.", "url")
def command(options: Globals, url: str | None) -> None:
    """Have the same notes on several machines, over git: commit, pull and push.

    Both versions of what two machines changed at once are kept. Private notes, conversations and settings stay here.
    Nothing of yours is touched: with staged files or during a merge or a rebase, the command refuses.

    \b
    kept sync --init git@example.org:team/notes.git
    kept sync
    """
    sync = GitSync(options.load().config)
    if url is not None:
        sync.connect(url)
    report = sync.run()
    warn_all(f"{problem.path}: {problem.reason}" for problem in report.problems if not options.as_json)
    files = f"{plural(len(report.committed), 'file')} committed, {len(report.received):,} received"
    text = f"{files}{', pushed' if report.pushed else ''} ({sync.remote}, {sync.branch})."
    options.report(to_json(report), text)


@dataclass
class GitSyncReport:
    """Result of a sync: files that were sent, written or removed here, conflict copies, and what was left out."""

    committed: list[str] = field(default_factory=list)
    received: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    pushed: bool = False


class GitSync:
    def __init__(self, config: Config) -> None:
        self.workspace = replace(Workspace.of(config), extra_paths=())
        self.workspace.require()
        self.git = Git(self.workspace.root)
        self.report = GitSyncReport()
        self._max_bytes = config.memory_search.max_file_bytes
        self._forgotten = ForgottenText(open_agent(config))

    def connect(self, url: str) -> None:
        """Add a remote, and create the repository if there is none."""
        if not os.path.lexists(f"{self.git.root}/.git"):
            head = re.match(r"ref: refs/heads/(\S+)\t", self.git.text("ls-remote", "--symref", "--", url, "HEAD"))
            self.git.run("init", "--quiet", "--template=", f"--initial-branch={head[1] if head else 'main'}", ".")
        if self.git.find("remote", "get-url", "origin") != url:
            self.git.run("remote", "add", "--", "origin", url)

    def run(self) -> GitSyncReport:
        """Raise SyncRefused, SyncFailed or LockBusy. One process at a time synchronises a workspace."""
        lock = f"{self._open()}/kept-sync.lock"
        with locked(lock, wait_s=_LOCK_WAIT_S, purpose="synchronising"), self.git.scratch() as self._scratch:
            for _ in range(_ATTEMPTS):
                if self._attempt():
                    self.report.problems = list(dict.fromkeys(self.report.problems))
                    return self.report
                time.sleep(random.uniform(0, _LONGEST_PAUSE_S))
        raise SyncFailed("Notes changed, here or at the remote, each time that this machine tried.")

    def _open(self) -> str:
        """Return the folder of the repository. Raise SyncRefused if there is none, or if somebody works in it."""
        git = self.git
        if not os.path.lexists(f"{git.root}/.git"):
            raise SyncRefused(f"{git.root} is no git repository.", hint="Connect it with 'kept sync --init URL'.")
        folder = git.text("rev-parse", "--absolute-git-dir")
        if any(os.path.lexists(f"{folder}/{name}") for name in _UNFINISHED):
            raise SyncRefused("A merge, a rebase or the like is under way.", hint="Finish or abort it with git first.")
        if git.find("config", "--type=bool", "core.sparseCheckout") == "true":
            raise SyncRefused("The repository has a sparse checkout, so files that are not here look deleted.")
        # A killed process may have left the index as it was at an earlier commit.
        if git.run("ls-files") and git.find("write-tree") not in git.find("log", "-1000", "--format=%T").split():
            raise SyncRefused("Something is staged for a commit of yours.", hint="Commit it, or unstage it with git.")
        self.branch = git.text("symbolic-ref", "--short", "HEAD")
        self.remote = git.find("config", f"branch.{self.branch}.remote") or "origin"
        self._remote_branch = git.find("config", f"branch.{self.branch}.merge") or f"refs/heads/{self.branch}"
        return folder

    def _attempt(self) -> bool:
        """Do it once. Return False if another program changed a note, or another machine pushed first."""
        theirs = self._fetch()
        with locked(self.workspace.root, wait_s=_LOCK_WAIT_S, purpose="writing to this workspace"):
            head = self._commit()
            merged = self._merge(head, theirs)
        return merged is not None and (merged in ("", theirs) or self._push(merged, theirs))

    def _fetch(self) -> str:
        """Return the head of the remote, or nothing. Its ref moves forward only: a rewritten one is noticed."""
        command = ("fetch", "--no-progress", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--")
        try:
            self.git.run(*command, self.remote, f"{self._remote_branch}:refs/kept/remote")
        except SyncFailed as exc:
            if "couldn't find remote ref" in exc.output:
                return ""
            if "[rejected]" not in exc.output:
                raise
            hint = "'git update-ref -d refs/kept/remote' allows to send them again. Nothing was changed."
            raise SyncRefused("The remote was rewritten: it lacks commits that this machine has.", hint=hint) from exc
        return self.git.text("rev-parse", "refs/kept/remote")

    def _push(self, head: str, theirs: str) -> bool:
        """Return False if another machine pushed first. Raise SyncRefused for a person's commit of what is private."""
        log = ("log", "--format=", "--name-only", "-z", "--diff-filter=d", head)
        names = self.git.text(*log, *([f"^{theirs}"] if theirs else []), "--").split("\0")
        if private := next(filter(_never_travels, names), None):
            hint = "Take it out of the commit with git, or push with git. Nothing was sent."
            raise SyncRefused(f"A commit of yours has {printable_line(private)}, which Kept does not send.", hint=hint)
        command = ("push", "--porcelain", "--no-verify", "--no-follow-tags", "--recurse-submodules=no", "--")
        try:
            self.git.run(*command, self.remote, f"{head}:{self._remote_branch}")
        except SyncFailed as exc:
            if re.search("fetch first|non-fast-forward|cannot lock ref|failed to update ref|incorrect old", exc.output):
                return False
            raise
        self.report.pushed = True
        return True

    def _find_refusal(self, path: str, entry: TreeEntry | None = None) -> str:
        """Return why a file is neither sent nor taken, or nothing. Other files of a vault are taken, and never sent."""
        if fault := find_arrival_fault(path):
            return f"has a name that is not allowed: {fault}"
        if _never_travels(path) or not all(map(is_visible, path.split("/"))):
            return "is hidden or private"
        if entry and (not entry.mode.startswith("100") or entry.size > self._max_bytes):
            return f"is a link, a submodule, or larger than {self._max_bytes:,} bytes"
        return "" if self.workspace.layout == "vault" or self.workspace.is_own_note(path) else "is no note"

    def _report(self, path: str, reason: str) -> None:
        self.report.problems.append(Problem(printable_line(path), reason))

    def _commit(self) -> str:
        """Commit the notes that differ from the last commit. Return the commit; nothing if there is none yet."""
        head = self.git.find("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        tree = self._scratch.tree(head)
        scan = scan_workspace(self.workspace, max_bytes=self._max_bytes)
        self.report.problems += scan.problems
        listing = self.git.text("ls-files", "-z", "--cached", "--others", "--exclude-standard")  # see .gitignore
        present = {file.path for file in scan.files} & {*tree, *listing.split("\0")}
        paths = sorted(path for path in present if not self._find_refusal(path))
        names = "\n".join(f"{self.git.root}/{path}" for path in paths)
        notes = zip(paths, self._scratch.store("--stdin-paths", stdin=os.fsencode(names)), strict=True)
        changed = {path: TreeEntry("100644", oid) for path, oid in notes if path not in tree or oid != tree[path].oid}
        own = [path for path in tree if self.workspace.is_own_note(path) and not self._find_refusal(path, tree[path])]
        removed = {path for path in own if not os.path.lexists(f"{self.git.root}/{path}")}
        if len(removed) > _MANY_REMOVED and not tree.keys() & paths:
            raise SyncRefused(f"All {len(removed):,} notes are gone here.", hint="If that is right, use 'git rm'.")
        if not changed and not removed:
            return head
        self.report.committed += sorted({*changed, *removed} - {*self.report.committed})
        files = {path: entry for path, entry in tree.items() if path not in removed} | changed
        return self._move(head, self._save("Change notes", files, head))

    def _save(self, message: str, files: dict[str, TreeEntry], *parents: str) -> str:
        options = [f"-p{parent}" for parent in parents if parent]
        return self.git.text("commit-tree", "-m", message, *options, self._scratch.write_tree(files))

    def _move(self, old: str, commit: str) -> str:
        self.git.run("update-ref", f"refs/heads/{self.branch}", commit, old or "0" * len(commit))
        self.git.find("read-tree", commit)  # if another git uses the index, the next sync tries again
        return commit

    def _merge(self, ours: str, theirs: str) -> str | None:
        """Join our commit with theirs, and write what it brings. Return the commit, or None if a note has changed."""
        base = self.git.find("merge-base", ours, theirs) if ours and theirs else ""
        if base == theirs:
            return ours
        our_tree, their_tree = self._scratch.tree(ours), self._scratch.tree(theirs)
        files = self._join(ours, theirs) if ours else dict(their_tree)
        changed = [path for path in sorted({*our_tree, *files}) if files.get(path) != our_tree.get(path)]
        # Copies come first: a note may give way to a folder. Then come removals: a folder may give way to a note.
        for path in sorted(changed, key=lambda path: (path not in self.report.conflicts, path in files)):
            if refusal := self._find_refusal(path, files.get(path) or our_tree[path]):
                self._report(path, f"{refusal}; left to git, not written here")
                continue
            own, text = self._scratch.read(our_tree.get(path)), self._scratch.read(files.get(path))
            rest = text and self._forgotten.without_forgotten(text, own or b"", path)
            if rest != text:
                self._report(path, "has text that was forgotten here, which is left out")
                text = rest or own
                del files[path]
                if text is not None:
                    files[path] = TreeEntry("100644", self._scratch.store("--stdin", stdin=text)[0])
            if not self._put(path, own, text):
                return None
        is_new = base != ours or files != their_tree
        return self._move(ours, self._save("Merge notes", files, theirs, ours) if is_new else theirs)

    def _join(self, ours: str, theirs: str) -> dict[str, TreeEntry]:
        """Return the files of both commits. On every machine, a conflict copy gets the same name."""
        our_tree, their_tree = self._scratch.tree(ours), self._scratch.tree(theirs)
        both = our_tree.keys() & their_tree
        files, conflicts = self._scratch.merge(ours, theirs, filter(get_daily_notes(self.workspace).find_day, both))
        copies = {}
        for path in conflicts:
            if path in both:
                files[path], copies[path] = our_tree[path], their_tree[path]
                our, their = (self._scratch.read(entry) or b"" for entry in (our_tree[path], their_tree[path]))
                if our.strip() in their or their.strip() in our:  # such as a note that `kept init` has just made
                    files[path] = max(copies.pop(path), our_tree[path], key=lambda entry: entry.size)
            elif path not in our_tree and path not in their_tree:
                copies[path.rpartition("~")[0]] = files.pop(path)
        taken = {
            path.casefold() for path in our_tree if path in files
        }  # some file systems cannot tell these names apart
        for path in [path for path in files if path not in our_tree and path.casefold() in taken]:
            copies[path] = files.pop(path)
        stamp = self.git.text("log", "-1", "--date=format:%Y%m%d-%H%M%S", "--format=%cd", theirs)
        for path, entry in copies.items():
            copy = name_copy(self.workspace, path, stamp, entry.oid)
            files[copy] = entry
            self.report.conflicts.append(copy)
            self._report(copy, "another machine's version of a note that both changed. Merge and delete it")
        return files

    def _put(self, path: str, expected: bytes | None, new: bytes | None) -> bool:
        """Write or remove a file. Return False if it is no longer as in our commit."""
        documents, current = self.workspace.storage.documents, None
        with suppress(DocumentNotFound):
            current = documents.read(path).data
        if current == new:
            return True
        if current != expected and self.workspace.is_own_note(path):
            return False
        if current != expected:
            self._report(path, "is no note and has changes that are not committed; not written here")
            return True
        version = ABSENT if current is None else version_of(current)
        try:
            self.workspace.storage.commit([Erase(path, version) if new is None else Write(path, new, version)])
        except StorageConflict:
            return False
        if new is None:
            with suppress(OSError):  # some are not empty
                os.removedirs(os.path.dirname(f"{self.git.root}/{path}"))
        self.report.received.append(path)
        return True


def _never_travels(path: str) -> bool:
    """Return whether a file is a machine's own or private, even if a person committed it."""
    return "/.kept" in f"/{path.lower()}" or private_folder_of(path) is not None


# git: without questions, with a time limit, never in another repository than the caller's, and without hooks, filters
# or merge drivers that a repository names

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
