"""One sync: read, embed and write what differs between files and index, or rebuild the index.

`SyncPlanner` compares, and `SyncRun` acts; every trigger comes through it. Files are read and embedded outside any
transaction; then a batch of files is swapped inside one, so that readers see each file whole, in its old or its new
state. A kill at any point leaves the committed batches and nothing else.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kept.base.records import Problem, Progress
from kept.base.remote_errors import EmbeddingError, EmbeddingFailed
from kept.base.reports import SyncReport
from kept.base.timings import timed
from kept.errors import KeptError, StoreDamaged
from kept.index.note_rows import note_timestamp_ms
from kept.index.sources import FileBatch, SourceReader, SyncTarget, find_copies
from kept.index.sqlite.rows import META_RECIPE, FileWrite, text_hash
from kept.index.sync_planner import SyncPlanner
from kept.index.vectorise import Vectors
from kept.notes.scan import Scan
from kept.notes.workspace import list_names
from kept.storage.contract import LogPosition

if TYPE_CHECKING:
    from kept.index.batches import BatchRunner
    from kept.index.sqlite.index import Index
    from kept.notes.history.unseen_changes import UnseenChanges

META_SYNCED = "last_sync"
# Time at which the index got vectors of another embedder. A process with older settings does not undo that.
META_EMBEDDER_SINCE = "embedder_since_ns"

# Name of this machine and the place in its log up to which lines were compared with the notes, once every note that the
# index has is in the history. After a failure, _INCOMPLETE or, if there was no name, _NEVER: then all notes are
# compared with the history by the next sync that has anything to do.
META_HISTORY = "history"
_CHANGES = ".kept/history/changes/"  # not imported: a search does not need `kept.notes.history`
_INCOMPLETE = ""
_NEVER = False


class _SizeChanged(Exception):
    """The embedder's vectors have another size than those of the live tables."""


@dataclass
class SyncRun:
    """One sync of the index that a planner reads. ``run`` is called once. Only one process per index writes at a time.

    ``in_search`` is a sync before a search: a provider's batch is started, but not waited for. ``growing`` is the
    path of a transcript whose growth alone is not worth a sync.
    """

    planner: SyncPlanner
    scan: Scan
    batch_runner: BatchRunner | None = None
    force: bool = False
    in_search: bool = False
    growing: str | None = None
    progress: Progress | None = None
    indexed: int = 0
    removed: int = 0
    changed_chunks: int = 0
    embedded: int = 0
    cached: int = 0
    rebuilt: str | None = None
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.index = self.planner.index
        self.reader = self.planner.reader
        self.vectors = self.planner.vectors
        self.history = HistorySync(self.index, self.reader)
        self.problems = list(self.scan.problems)

    def run(self, *, wait_s: float) -> SyncReport:
        """Bring the index up to date. Raise LockBusy if another process is still indexing after ``wait_s``."""
        started = time.perf_counter()
        is_unbuilt = self.force or bool(self.planner.why_rebuild()) or self.index.get_meta(META_RECIPE) is None
        # Looked up before the lock is taken: most searches find nothing to do, and should not wait for a writer.
        has_work = is_unbuilt or self.planner.has_changes(self.scan, growing=self.growing) or self.history.is_due()
        if has_work and (reason := self.index.why_read_only):
            if is_unbuilt or self.planner.count_changed(self.scan):
                raise reason
        elif has_work:
            with timed("sync") as measured:
                with self.index.indexing(wait_s=wait_s):
                    self._run_locked(is_unbuilt=is_unbuilt)
                measured["failed"] = bool(self.failures)
        files, chunks, vectors = len(self.scan.files), 0, 0
        if not self.in_search:  # which shows no counts, and need not take the time to count
            with self.index.reading():
                chunks = self.index.live.count_chunks()
                vectors = self.index.live.vectors.count() if self.vectors is not None else chunks
        return SyncReport(
            files=files,
            indexed=self.indexed,
            removed=self.removed,
            unchanged=max(0, files - self.indexed),
            chunks=chunks,
            embedded=self.embedded,
            cached=max(0, self.cached),
            pending=chunks - vectors,
            rebuilt=self.rebuilt,
            # A search does not report conflict copies, so it need not look for them.
            problems=(*self.problems, *(() if self.in_search else find_copies(self.scan))),
            failures=tuple(self.failures),
            took_ms=(time.perf_counter() - started) * 1000,
        )

    def _run_locked(self, *, is_unbuilt: bool) -> None:
        if not self.index.is_current():  # writing to an index that was moved away would be lost
            raise StoreDamaged(f"{self.index.path}: the index was replaced while this process waited.")
        # Another process may have done the work while this one waited, so the plan is made under the lock.
        if self.force and not self.reader.config.memory_search.cache.enabled:
            self.index.cache.evict(0)
        self.index.drop_leftovers()  # of a rebuild that was killed
        # Before the first file: vectors are only added to an index that is known to hold those of this embedder.
        if is_unbuilt and self.index.get_meta(META_RECIPE) is None:
            with self.index.writing():
                self.index.put_meta(META_RECIPE, self.planner.recipe().fingerprint())
        self.scan = self.history.begin(self.scan)
        self.problems = list(self.scan.problems)
        reason = "it was asked for" if self.force else self.planner.why_rebuild()
        if reason is None or not self._rebuild(reason):
            try:
                self._update()
            except _SizeChanged as exc:
                self.indexed = 0
                if not self._rebuild(str(exc)):
                    self._update()  # by word: the embedder has failed
        # A sync that embedded nothing leaves the cache alone.
        cache = self.reader.config.memory_search.cache
        is_kept_out = cache.enabled and self.vectors and self.vectors.is_cheap  # whose vectors are not in it
        if (self.embedded or self.cached) and not is_kept_out:
            self.index.cache.evict(cache.max_entries if cache.enabled else 0)

    def _update(self) -> None:
        """Bring the changes since the last sync into the live tables."""
        target = self.planner.plan_update(self.scan)
        if target.removed:
            # A file that was created and indexed by another process after this scan looks removed, too.
            self._scan_again()
            target = self.planner.plan_update(self.scan)
        if target.files or target.removed:
            self._index_files(target)
        if target.files or target.removed or self.history.is_due():
            with self.index.writing():
                self._finish()

    def _scan_again(self) -> None:
        self.scan = self.reader.scan()
        self.problems = list(self.scan.problems)

    def _rebuild(self, reason: str) -> bool:
        """Build a new generation beside the live one and switch to it. Return False if that failed: the live one
        stays in use."""
        self._scan_again()  # the caller may have looked at single files, or have waited long for the lock
        if self.vectors is not None:
            self.vectors.learn_dims()
        building = self.index.begin_generation()
        recipe = self.planner.recipe()
        # An old index with vectors is better than a new one without: then a failure of the embedder ends the rebuild.
        has_old_chunks = self.index.live.count_chunks() > 0
        target = SyncTarget(building, self.scan.files, (), {}, recipe, needs_vectors=has_old_chunks)
        try:
            self._index_files(target)
        except EmbeddingError as exc:
            self.failures.append(f"{exc.message} The old index is still in use.")
            self.index.drop_leftovers()
            return False
        with self.index.writing():
            self.index.switch_to(building)
            if self.index.stored_identity() != recipe.identity:
                self.index.put_meta(META_EMBEDDER_SINCE, self.reader.clock.time_ns())
            self.index.put_meta(META_RECIPE, recipe.fingerprint())
            self._finish()
        self.index.drop_leftovers()  # of a database, where the old generation is not dropped by the switch
        self.rebuilt = reason
        return True

    def _finish(self) -> None:
        """Tidy the live tables, inside the caller's transaction."""
        self.index.live.optimise(changed_chunks=self.changed_chunks)
        self.index.put_meta(META_SYNCED, self.reader.clock.now().isoformat(timespec="seconds"))
        self.history.finish()
        self.problems += self.history.problems

    # reading, embedding and writing

    def _index_files(self, target: SyncTarget) -> None:
        if self.batch_runner is not None and self._may_embed(target):
            self._fetch_batches(self.batch_runner, target)
        for batch in self.reader.iter_batches(target):
            self.problems += batch.problems
            self.indexed += batch.indexed
            vectors = self._embed(batch.writes, target)
            # Before the index has it: if the process is killed in between, the next sync finds the change recorded.
            self.history.note_batch(batch)
            generation, daily = target.generation, target.recipe.daily
            with self.index.writing():
                self.changed_chunks += sum(generation.remove_file(source, path) for source, path in batch.removed)
                for row in batch.touched:
                    is_note = row.source == "memory"
                    generation.touch_file(row, note_timestamp_ms(row.path, row.mtime_ns, daily) if is_note else None)
                find_code = vectors.codes.get if vectors else None
                self.changed_chunks += generation.replace_files(batch.writes, find_code)
            self.removed += len(batch.removed)
            if self.progress:
                self.progress(batch.completed, len(target.files), batch.label)

    def _fetch_batches(self, batch_runner: BatchRunner, target: SyncTarget) -> None:
        """Fetch missing vectors into the cache through the provider's batch API, if many are missing."""
        vectors = self.vectors
        if vectors is None:
            return
        missing: dict[bytes, str] = {}
        for batch in self.reader.iter_batches(target):  # which reads them again for indexing: problems wait
            missing |= vectors.find_missing(_embed_texts(batch.writes))
        batch_runner.fetch(missing, vectors.store, self.progress)
        vectors.await_batches(batch_runner.pending, batch_runner.why_pending())
        self.embedded += len(batch_runner.received)
        self.cached -= len(batch_runner.received)  # about to be read from the cache, but new to it
        self.problems += [Problem("batches.json", reason) for reason in batch_runner.problems]

    def _embed(self, writes: list[FileWrite], target: SyncTarget) -> Vectors | None:
        texts = _embed_texts(writes)
        if self.vectors is None or not texts or not self._may_embed(target):
            return None
        indexed: dict[bytes, bytes] = {}
        if target.generation is self.index.live and self.vectors.is_cheap:  # whose vectors are not in the cache
            with self.index.reading():
                for write in writes:
                    indexed |= self.index.live.find_codes(write.file.source, write.file.path)
        vectors = self.vectors.get_vectors(texts, indexed)
        self.cached += len(vectors.codes) - vectors.fresh - len(vectors.refused)
        self.embedded += vectors.fresh
        for write in writes if vectors.refused else ():
            for reason in {vectors.refused[key] for key in _embed_texts([write]) if key in vectors.refused}:
                self.problems.append(Problem(write.file.path, f"In part found by word only: {reason}"))
        if target.generation is self.index.live and (change := self.planner.size_change()):
            raise _SizeChanged(change)
        if vectors.pending_reason and target.needs_vectors:
            raise EmbeddingFailed(vectors.pending_reason)
        if vectors.pending_reason:
            failure = f"{vectors.pending_reason} New text is found by word, not yet by meaning."
            self.failures += [failure] if failure not in self.failures else []
        return vectors

    def _may_embed(self, target: SyncTarget) -> bool:
        """Return whether to ask the embedder: it works, and its vectors would not be mixed with another's."""
        if self.vectors is None or self.vectors.failed_recently():
            return False
        return target.generation is not self.index.live or self.planner.vectors_match()


def _embed_texts(writes: Iterable[FileWrite]) -> dict[bytes, str]:
    """Return the texts to embed, by hash. A text that several of them have is embedded once."""
    return {text_hash(chunk.embed_text): chunk.embed_text for write in writes for chunk in write.chunks}


# The order matters. If the process is killed after the history has a change and before the index has it, the next sync
# indexes the note, and finds the change recorded.


class HistorySync:
    """Records changes by other programs, in one sync. A failure is a problem in the report, and stops nothing."""

    def __init__(self, index: Index, reader: SourceReader) -> None:
        self.index = index
        self.reader = reader
        self.problems: list[Problem] = []
        self._unseen: UnseenChanges | None = None
        # A search in a folder that was named for one run only, such as a repository, must not leave a history there.
        self._exists = "history" in list_names(reader.workspace.storage, ".kept")
        self._is_on = reader.config.agent.history.enabled and (reader.config.trusts_workspace or self._exists)
        self._state: Any = None
        self._is_first = False
        """True if the notes were never compared with the history."""

    def is_due(self) -> bool:
        """Return whether notes have to be compared with the history, even if none differs from the index.

        A note that Kept wrote after the last sync may have been removed or changed back since.
        """
        if not self._is_on:
            return False
        state = self.index.get_meta(META_HISTORY)
        if not state:
            return state is None
        machine, compared = state
        return bool(self.reader.workspace.storage.logs.end(f"{_CHANGES}{machine}.jsonl").offset != compared)

    def begin(self, scan: Scan) -> Scan:
        """Compare notes with the history: those that Kept wrote since the last sync, or all if that was never done, or
        the history was deleted since. Return the scan, or one of all files if all have to be compared."""
        self._state = state = self.index.get_meta(META_HISTORY)
        if not self._is_on:
            return scan
        if state and (state[1] <= 0 or self._exists):
            # The files that were looked at differ from the index, so each of them is in a batch.
            looked_at = {path for source, path in scan.only or () if source == "memory"}
            self._attempt(lambda unseen: unseen.record_written(LogPosition(state[1]), but=looked_at))
            return scan
        self._is_first = state != _INCOMPLETE
        if scan.only is not None:
            scan = self.reader.scan()
        with self.index.reading():
            rows = self.index.live.file_rows()
        files = (file.path for file in scan.files if file.source == "memory")
        present = {path for path in files if not os.path.isabs(path)}  # not those of extra folders
        notes = {path: row.hash for (source, path), row in rows.items() if source == "memory" and path in present}
        self._attempt(lambda unseen: unseen.record(notes, is_first=self._is_first, present=present))
        return scan

    def note_batch(self, batch: FileBatch) -> None:
        """Record what other programs did to the notes of a batch."""
        rows = (*batch.touched, *(write.file for write in batch.writes))
        written = self._unseen.written if self._unseen else {}
        files = {row.path: row.hash for row in rows if row.source == "memory" and not os.path.isabs(row.path)}
        notes = {path: digest for path, digest in files.items() if written.get(path) != digest}
        removed = [path for source, path in batch.removed if source == "memory" and not os.path.isabs(path)]
        if self._is_on and (notes or removed):
            self._attempt(lambda unseen: unseen.record(notes, removed, is_first=self._is_first))

    def finish(self) -> None:
        """Note in the index that the history is complete, inside the caller's transaction."""
        value: Any = None
        if self._is_on and self.problems:
            value = _NEVER if self._is_first else _INCOMPLETE
        elif self._unseen is not None and self._unseen.log:
            # The log was found before: the transaction of a database must not wait for another connection.
            value = [self._unseen.log.removeprefix(_CHANGES).removesuffix(".jsonl"), self._unseen.compared.offset]
        if self._state != value:
            self.index.put_meta(META_HISTORY, value)

    def _attempt(self, action: Callable[[UnseenChanges], object]) -> None:
        from kept.notes.history.note_history import NoteHistory
        from kept.notes.history.unseen_changes import UnseenChanges

        config = self.reader.config
        try:
            if self._unseen is None:
                history = NoteHistory(config, self.reader.workspace, self.reader.clock)
                self._unseen = UnseenChanges(history, max_bytes=config.memory_search.max_file_bytes)
            action(self._unseen)
        except KeptError as exc:
            problem = Problem(".kept/history", f"changes by other programs are not recorded: {exc.message}")
            self.problems += [problem] if problem not in self.problems else []
