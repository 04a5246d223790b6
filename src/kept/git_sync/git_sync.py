"""`GitSync`: commits what changed in a workspace, fetches, merges, and pushes."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from kept.clock import Backoff, Clock
from kept.errors import GitSyncFailed, GitSyncRefused, WriteFailed
from kept.file_lock import locked
from kept.git_sync.committed_files import CommittedFiles, StateCache, SyncRules
from kept.git_sync.git_objects import FileReader, Tree, object_id
from kept.git_sync.merge_writer import MergeWriter
from kept.git_sync.repository import FETCHED, MERGE, REMOTE, SyncRepository
from kept.git_sync.sync_commit import LOG_FORMAT, describe_change, describe_merge, parse_hosts
from kept.git_sync.sync_report import GitSyncReport, GitSyncStatus
from kept.git_sync.tree_merge import Ancestry, TreeMerge
from kept.history.git_commits import changes_by_path
from kept.history.note_change import NoteChange
from kept.host_names import host_name
from kept.records import Problem, Progress
from kept.review.review_folder import ReviewFolder
from kept.working_copy.file_placement import MergeHistory
from kept.working_copy.synced_files import PRIVATE_FOLDER, PROPOSALS_FOLDER, FileChange
from kept.workspace.opened import OpenWorkspace
from kept.workspace.workspace import Workspace

if TYPE_CHECKING:
    from kept.config import Config

LOCK_WAIT_S = 60.0
_WORKSPACE_WAIT_S = 30.0
_PAUSE_S = 0.03
"""Longer than the time after which a process that waits for a lock tries again."""
_ATTEMPTS = 20
_MANY_REMOVED = 20
_LARGE_SHARE = 0.5
"""A sync that removes more than so many files, and more than this share of all, needs consent."""


class GitSync:
    """Synchronises one workspace. Several processes and threads may try at once: one at a time does it."""

    def __init__(self, config: Config, workspace: Workspace, clock: Clock) -> None:
        self.settings = config.agent.sync.git
        self.workspace = workspace
        self.clock = clock
        self.host = host_name(self.settings.host)
        self.repository = SyncRepository(workspace.root, self.settings)
        self._config = config
        self._files = CommittedFiles(workspace, self.settings)
        self._workspace_lock = ExitStack()

    # the whole

    def run(
        self,
        *,
        merge_rewritten: bool = False,
        remove_many: bool = False,
        wait_s: float = LOCK_WAIT_S,
        progress: Progress | None = None,
    ) -> GitSyncReport:
        """Commit, fetch, merge and push. Raise GitSyncRefused, GitSyncFailed or LockBusy.

        ``merge_rewritten`` merges although the branch of the remote was rewritten. ``remove_many`` allows to remove a
        large part of the files for everybody.
        """
        with self._exclusive(wait_s):
            report = self._new_report()
            self.repository.require_ready()
            backoff = Backoff(0.05, 0.5)
            for report.attempts in range(1, _ATTEMPTS + 1):
                if self._attempt(report, merge_rewritten, remove_many, progress):
                    break
                time.sleep(backoff.next_s() * random.uniform(0.5, 1.5))
            else:
                raise GitSyncFailed("Other machines pushed first, each time that this one tried.")
            report.problems += self._files.problems
            if self.settings.transcripts:
                self._exchange_transcripts(report)
            if report.pushed or report.conversations_sent:
                self.repository.tidy_objects()
            return report

    def _exchange_transcripts(self, report: GitSyncReport) -> None:
        from kept.git_sync.transcript_exchange import TranscriptExchange

        TranscriptExchange(self.repository, self._config, self.host, self.clock).run(report)

    def require_ready(self) -> None:
        """Raise GitSyncRefused if the repository is not in a state to synchronise."""
        with self._exclusive(LOCK_WAIT_S):
            self.repository.require_ready()

    def _attempt(
        self, report: GitSyncReport, merge_rewritten: bool, remove_many: bool, progress: Progress | None
    ) -> bool:
        """Do it once. Return False if another machine pushed meanwhile."""
        repository = self.repository
        failure, fetched = None, None
        try:
            fetched = repository.fetch()
        except GitSyncFailed as exc:
            failure = exc  # what changed here is committed nevertheless
        with self._writing(fetched):
            start = repository.head()
            try:
                self._finish_merge(report, progress)
                self._follow_rules(report, progress)
                self._commit(report, remove_many)
                if failure is None:
                    self._merge(report, fetched, merge_rewritten, progress)
            finally:
                report.commit = repository.head()
                if report.commit is not None and report.commit != start:
                    repository.renew_index(report.commit)
        if failure is not None:
            raise failure
        if report.commit is not None and report.commit != fetched:
            report.pushed = repository.push(report.commit)
            return report.pushed
        return True

    @contextmanager
    def _exclusive(self, wait_s: float) -> Iterator[None]:
        """Hold the lock of the sync. It is in the repository: those who share that share the lock."""
        self.workspace.require()
        if not self.repository.exists():
            self.repository.require_ready()
        path = os.path.join(self.repository.git_folder, "kept-sync.lock")
        with locked(path, wait_s=wait_s, purpose="synchronising this workspace"):
            try:
                yield
            except OSError as exc:
                raise WriteFailed(f"{exc.filename or self.workspace.root}: {exc.strerror}.", hint="") from exc

    @contextmanager
    def _writing(self, fetched: str | None) -> Iterator[None]:
        """Hold the locks of the review and of the workspace, in this order."""
        has_proposals = os.path.isdir(self._files.absolute(PROPOSALS_FOLDER)) or (
            fetched is not None and self.repository.find("ls-tree", fetched, f"{PROPOSALS_FOLDER}/") != ""
        )
        with ExitStack() as stack:
            if has_proposals:
                stack.enter_context(ReviewFolder(self.workspace).locked())
            stack.enter_context(self._workspace_lock)
            self._lock_workspace()
            yield

    def _lock_workspace(self) -> None:
        self._workspace_lock.enter_context(
            locked(self.workspace.root, wait_s=_WORKSPACE_WAIT_S, purpose="writing to this workspace")
        )

    def _let_others_write(self) -> None:
        """Release the lock of the workspace for a moment. What others write meanwhile is merged."""
        self._workspace_lock.close()
        time.sleep(_PAUSE_S)
        self._lock_workspace()

    def _new_report(self) -> GitSyncReport:
        return GitSyncReport(self.host, self.repository.remote_address(), self.settings.branch)

    # committing

    def _find_changes(self, opened: OpenWorkspace, tree: Tree) -> Iterator[FileChange]:
        cache = StateCache(os.path.join(self.repository.git_folder, "kept-files.json"), self.repository.algorithm)
        yield from self._files.find_changes(opened, tree, cache, self._filter_ignored)
        cache.save()

    def _filter_ignored(self, paths: list[str]) -> set[str]:
        # `kept sync --init` excludes private notes from commits by hand; the setting decides about those of a sync.
        paths = [path for path in paths if not path.startswith(f"{PRIVATE_FOLDER}/")]
        if not paths:
            return set()
        # With './', a name that begins with a colon is not taken for a pattern.
        stdin = b"\0".join(b"./" + path.encode("utf-8", "surrogateescape") for path in paths)
        output = self.repository.run("check-ignore", "-z", "--stdin", "--no-index", stdin=stdin, codes=(0, 1))
        return {path.removeprefix("./") for path in output.decode("utf-8", "surrogateescape").split("\0")}

    def _commit(self, report: GitSyncReport, remove_many: bool) -> None:
        """Commit what differs from the last commit."""
        repository = self.repository
        head = repository.head()
        tree = repository.tree(head)
        changed: list[str] = []
        removed: list[str] = []
        with OpenWorkspace(self._files.workspace) as opened, repository.writer() as writer:
            for change in self._find_changes(opened, tree):
                (removed if change.data is None else changed).append(change.path)
                writer.put(change.path, change.data)
            if writer.is_empty:
                return
            if not remove_many:
                _refuse_many(len(removed), len(tree))
            text = describe_change(
                changed,
                removed,
                self._note_changes({*changed, *removed}),
                agent=self._config.agent_id,
                host=self.host,
                time=self.clock.now(),
            )
            commit = writer.commit(text, [head] if head else [])
        repository.move_branch(commit)
        report.committed += [path for path in (*changed, *removed) if path not in report.committed]

    def _note_changes(self, paths: set[str]) -> list[NoteChange]:
        """Return what the history knows about the changes of files that are not committed."""
        if not self._config.agent.history.enabled:
            return []
        by_path = changes_by_path(self._history(), paths)
        return sorted((change for changes in by_path.values() for change in changes), key=lambda change: change.time)

    def _history(self) -> MergeHistory:
        return MergeHistory(self.workspace, self._config.home, self.clock)

    # merging

    def _merge(
        self, report: GitSyncReport, theirs: str | None, merge_rewritten: bool, progress: Progress | None
    ) -> None:
        """Join our commit with that of the remote, and write what it brings."""
        repository = self.repository
        ours, known = repository.head(), repository.find_ref(REMOTE)
        if not merge_rewritten:
            self._require_not_rewritten(known, theirs)
        if theirs is None or ours == theirs:
            return
        base = repository.merge_base(ours, theirs) if ours else None
        if base != theirs:
            joined = theirs if ours is None or base == ours else self._join(report, base, ours, theirs)
            repository.update_refs(f"update {MERGE} {joined}")
            self._write_merge(report, ours, joined, progress)
        if known != theirs:
            repository.update_refs(f"update {REMOTE} {theirs}")

    def _require_not_rewritten(self, known: str | None, theirs: str | None) -> None:
        if known is None or (theirs is not None and self.repository.is_ancestor(known, theirs)):
            return
        what = "was rewritten" if theirs else "is gone"
        raise GitSyncRefused(
            f"The branch '{self.settings.branch}' of the remote {what}: it lacks commits that this machine has.",
            hint="'kept sync --merge-rewritten' brings them back. Nothing was merged.",
        )

    def _join(self, report: GitSyncReport, base: str | None, ours: str, theirs: str) -> str:
        """Write the commit that joins two others, and return it."""
        repository = self.repository
        if base is None and repository.is_shallow():
            raise GitSyncRefused(
                "The repository is a shallow clone, which lacks the commit that both sides began with.",
                hint="Run 'git fetch --unshallow', then synchronise.",
            )
        our_tree, their_tree = repository.tree(ours), repository.tree(theirs)
        hosts = self._hosts(ours, theirs)
        ancestry = Ancestry(
            repository.tree(base),
            repository.find_renames(base, ours) if base else {},
            repository.find_renames(base, theirs) if base else {},
        )
        with repository.reader() as reader, repository.writer() as writer:
            merge = self._tree_merge(reader, hosts)
            plan = merge.plan(ancestry, our_tree, their_tree)
            for path, content in plan.changes.items():
                writer.put(path, content)
            others = list(dict.fromkeys(host for names in hosts.values() for host in names))
            text = describe_merge(others, agent=self._config.agent_id, host=self.host, time=self.clock.now())
            joined = writer.commit(text, [ours, theirs])
        report.merged += [path for path in plan.merged if path not in report.merged]
        report.conflicts += [path for path in plan.conflicts if path not in report.conflicts]
        return joined

    def _finish_merge(self, report: GitSyncReport, progress: Progress | None) -> None:
        """Go on with a merge that was interrupted while it was written."""
        repository = self.repository
        joined, head = repository.find_ref(MERGE), repository.head()
        if joined is None:
            return
        if joined != head and (head is None or repository.is_ancestor(head, joined)):
            self._write_merge(report, head, joined, progress)
        else:
            repository.update_refs(f"delete {MERGE}")

    def _follow_rules(self, report: GitSyncReport, progress: Progress | None) -> None:
        """Write files of our commit that the settings did not let us take before. Otherwise they would look removed."""
        path = os.path.join(self.repository.git_folder, "kept-rules.json")
        rules, last = SyncRules.of(self.workspace, self.settings), SyncRules.load(path)
        if rules == last:
            return
        head = self.repository.head()
        if last is not None and head is not None:
            earlier = last.files(self.workspace, self.settings)
            tree = self.repository.tree(head)
            new = {name: entry for name, entry in tree.items() if not earlier.accepts(name, entry)}
            self._write_files(report, {}, new, self._hosts(None, head), progress)
        rules.save(path)

    def _write_merge(self, report: GitSyncReport, ours: str | None, joined: str, progress: Progress | None) -> None:
        """Write what a merge brings into the workspace, then move the branch to it."""
        repository = self.repository
        before, after = repository.tree(ours), repository.tree(joined)
        self._files.report_refused(after)
        self._write_files(report, before, after, self._hosts(ours, joined), progress)
        repository.move_branch(joined, done=f"delete {MERGE}")

    def _write_files(
        self,
        report: GitSyncReport,
        before: Tree,
        after: Tree,
        hosts: Mapping[str, list[str]],
        progress: Progress | None,
    ) -> None:
        with self.repository.reader() as reader, OpenWorkspace(self._files.workspace) as opened:
            writer = MergeWriter(
                self._files,
                self._tree_merge(reader, hosts),
                self._history() if self._config.agent.history.enabled else None,
                agent_id=self._config.agent_id,
                our_host=self.host,
                hosts_of=lambda path: hosts.get(path, []),
            )
            writer.write(
                opened, before, after, reader.read_entry, let_others_write=self._let_others_write, progress=progress
            )
        report.pulled += [path for path in writer.written if path not in report.pulled]
        report.problems += [Problem(".kept/history", notice) for notice in dict.fromkeys(writer.notices)]

    def _tree_merge(self, reader: FileReader, hosts: Mapping[str, list[str]]) -> TreeMerge:
        return TreeMerge(
            self._files,
            reader.read_entry,
            our_host=self.host,
            host_of=lambda path: next(iter(hosts.get(path, [])), "remote"),
            today=self.clock.now().date(),
        )

    def _hosts(self, ours: str | None, theirs: str) -> dict[str, list[str]]:
        """Return the machines that changed each file on the other side, the last one first."""
        since = [f"^{ours}"] if ours else []
        log = self.repository.run("log", "-z", "--name-only", "--max-count=5000", LOG_FORMAT, theirs, *since, "--")
        hosts = parse_hosts(log)
        return {path: [name for name in names if name != self.host] or names for path, names in hosts.items()}

    # looking

    def preview(self) -> GitSyncReport:
        """Fetch, and return what a sync would do. Only objects and refs of Kept's own are written."""
        with self._exclusive(LOCK_WAIT_S):
            report = self._new_report()
            report.dry_run = True
            repository = self.repository
            repository.require_ready()
            theirs, ours = repository.fetch(), repository.head()
            tree, remote = repository.tree(ours), repository.tree(theirs)
            own = {path: entry.oid for path, entry in tree.items()}
            with OpenWorkspace(self._files.workspace) as opened:
                for change in self._find_changes(opened, tree):
                    report.committed.append(change.path)
                    own[change.path] = "" if change.data is None else object_id(change.data, repository.algorithm)
            base = repository.tree(repository.merge_base(ours, theirs) if ours and theirs else None)
            incoming = {path for path in {*base, *remote} if theirs and base.get(path) != remote.get(path)}
            report.pulled = sorted(path for path in incoming if _oid(remote, path) != own.get(path, ""))
            report.merged = [path for path in report.pulled if own.get(path, "") != _oid(base, path)]
            report.pushed = bool(report.committed) or (ours is not None and base != tree)
            report.commit = ours
            report.problems = list(self._files.problems)
            return report

    def status(self) -> GitSyncStatus:
        """Return the state of the repository, without a connection to the remote."""
        with self._exclusive(LOCK_WAIT_S):
            repository = self.repository
            head, fetched = repository.head(), repository.find_ref(FETCHED)
            with OpenWorkspace(self._files.workspace) as opened:
                changed = tuple(change.path for change in self._find_changes(opened, repository.tree(head)))
            counts = ["0", "0"]
            if head and fetched:
                counts = repository.find("rev-list", "--left-right", "--count", f"{head}...{fetched}").split() or counts
            elif head:
                counts[0] = repository.find("rev-list", "--count", head)
            return GitSyncStatus(
                self.host,
                repository.remote_address(),
                self.settings.branch,
                head,
                changed,
                int(counts[0]),
                int(counts[1]),
                repository.find_ref(MERGE) is not None,
                self.settings.enabled,
                tuple(self._files.problems),
            )


def _oid(tree: Tree, path: str) -> str:
    return tree[path].oid if path in tree else ""


def _refuse_many(removed: int, total: int) -> None:
    if removed > _MANY_REMOVED and removed > _LARGE_SHARE * total:
        raise GitSyncRefused(
            f"{removed:,} of {total:,} files are gone here, and would be removed for everybody.",
            hint="If that is right, run 'kept sync --remove-many'. Nothing was changed.",
        )
