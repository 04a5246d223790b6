"""One sync: read, embed and write what changed, or rebuild the index. Every trigger comes through here.

Files are read and embedded outside any transaction; then a batch of files is swapped inside one, so that readers see
each file whole, in its old or its new state. A kill at any point leaves the committed batches and nothing else.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kept.clock import Clock
from kept.durable import locked
from kept.errors import EmbeddingError, EmbeddingFailed, StoreDamaged
from kept.indexing.note_times import note_timestamp_ms
from kept.indexing.planner import SyncPlanner
from kept.indexing.prepare import PreparedFile
from kept.indexing.source_reader import FileBatch, SyncTarget
from kept.indexing.vectorise import Vectors
from kept.records import Problem, Progress, SyncReport
from kept.store.index import META_RECIPE
from kept.store.kernels import quantise
from kept.workspace.scan import Scan

if TYPE_CHECKING:
    from kept.indexing.batch_runner import BatchRunner

META_SYNCED = "last_sync"


@dataclass
class _Tally:
    """Counts and problems of one sync so far."""

    indexed: int = 0
    removed: int = 0
    changed_chunks: int = 0
    embedded: int = 0
    cached: int = 0
    rebuilt: str | None = None
    problems: list[Problem] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class SyncRun:
    """One sync of the index that a planner reads. ``run`` is called once.

    ``in_search`` is a sync before a search: a provider's batch is started, but not waited for.
    """

    def __init__(
        self,
        planner: SyncPlanner,
        scan: Scan,
        *,
        clock: Clock,
        batch_runner: BatchRunner | None = None,
        force: bool = False,
        in_search: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self.planner = planner
        self.index = planner.index
        self.vectors = planner.vectors
        self.settings = planner.settings
        self.scan = scan
        self.clock = clock
        self.batch_runner = batch_runner
        self.force = force
        self.in_search = in_search
        self.progress = progress
        self.tally = _Tally(problems=list(scan.problems))

    def run(self, *, wait_s: float) -> SyncReport:
        """Bring the index up to date. Raise LockBusy if another process is still indexing after ``wait_s``."""
        started = time.perf_counter()
        if self.batch_runner:
            self.batch_runner.prepare(force=self.force, in_search=self.in_search)
        if self._has_work():
            with locked(f"{self.index.path}.lock", wait_s=wait_s, purpose="indexing"):
                self._run_locked()
        return self._report(started)

    def _has_work(self) -> bool:
        if self.planner.why_rebuild(force=self.force) or self.index.get_meta(META_RECIPE) is None:
            return True
        return self.planner.has_changes(self.scan)

    def _run_locked(self) -> None:
        if not self.index.is_current_file():  # writing to a file that was moved away would be lost
            raise StoreDamaged(f"{self.index.path}: the index was replaced while this process waited.")
        # Another process may have done the work while this one waited, so everything is planned again.
        if self.force and self.vectors:
            self.vectors.forget_refusals()
        self.index.drop_leftovers()
        if self.index.get_meta(META_RECIPE) is None:
            with self.index.writing():
                self.index.put_meta(META_RECIPE, self.planner.recipe().fingerprint())
        reason = self.planner.why_rebuild(force=self.force)
        if reason is None or not self._rebuild(reason):
            self._update()

    def _update(self) -> None:
        target = self.planner.plan_update(self.scan)
        if target is None:
            return
        self._index_files(target)
        with self.index.writing():
            self._finish()

    def _rebuild(self, reason: str) -> bool:
        """Build a new generation beside the live one and switch to it. Return False if that failed: the live one
        stays in use."""
        building = self.index.begin_generation()
        recipe = self.planner.recipe()
        has_old_chunks = self.index.live.count_chunks() > 0
        target = SyncTarget(building, self.scan.files, (), {}, recipe, needs_vectors=has_old_chunks)
        try:
            self._index_files(target)
        except EmbeddingError as exc:
            self.tally.failures.append(f"{exc.message} The old index is still in use.")
            self.index.drop_leftovers()
            return False
        with self.index.writing():
            self.index.switch_to(building)
            self.index.put_meta(META_RECIPE, recipe.fingerprint())
            self._finish()
        self.tally.rebuilt = reason
        return True

    def _finish(self) -> None:
        """Tidy the live tables and the cache, inside the caller's transaction."""
        self.index.live.settle(changed_chunks=self.tally.changed_chunks)
        self.index.cache.evict(self.settings.cache.max_entries if self.settings.cache.enabled else 0)
        self.index.put_meta(META_SYNCED, self.clock.now().isoformat(timespec="seconds"))

    # reading, embedding and writing

    def _index_files(self, target: SyncTarget) -> None:
        self._fetch_batches(target)
        for batch in self.planner.reader.iter_batches(target):
            self.tally.problems += batch.problems
            self.tally.indexed += batch.indexed
            vectors = self._embed(batch.prepared, target)
            self.tally.changed_chunks += self._write(batch, vectors, target)
            self.tally.removed += len(batch.removed)
            if self.progress:
                self.progress(batch.completed, len(target.files), batch.label)

    def _fetch_batches(self, target: SyncTarget) -> None:
        """If many vectors are missing, let the provider's batch API bring them into the cache first."""
        vectors = self.vectors
        if self.batch_runner is None or vectors is None or not self._may_embed(target):
            return
        fetched = self.batch_runner.fetch(self._missing_texts(target), vectors.store, self.progress)
        vectors.await_batches(fetched.pending, fetched.reason)
        self.tally.embedded += fetched.vectors
        self.tally.cached -= fetched.vectors  # about to be read from the cache, but new to it
        self.tally.problems += [Problem("batches.json", reason) for reason in fetched.problems]

    def _missing_texts(self, target: SyncTarget) -> dict[bytes, str]:
        """Return the texts without a vector. Problems are reported when the files are read for indexing."""
        missing: dict[bytes, str] = {}
        for batch in self.planner.reader.iter_batches(target):
            for prepared in batch.prepared:
                if self.vectors:
                    missing |= self.vectors.find_missing(prepared.embed_texts)
        return missing

    def _embed(self, prepared: list[PreparedFile], target: SyncTarget) -> Vectors | None:
        texts = {key: text for file in prepared for key, text in file.embed_texts.items()}
        if self.vectors is None or not texts or not self._may_embed(target):
            return None
        vectors = self.vectors.get_vectors(texts)
        self.tally.cached += len(vectors.known)
        self.tally.embedded += len(vectors.fresh)
        for file in prepared:
            for reason in {vectors.refused[key] for key in file.embed_texts if key in vectors.refused}:
                self.tally.problems.append(Problem(file.write.file.path, f"In part found by word only: {reason}"))
        if vectors.pending_reason and target.needs_vectors:
            with self.index.writing():
                self.vectors.remember(vectors)  # paid for, and the next attempt needs them
            raise EmbeddingFailed(vectors.pending_reason)
        if vectors.pending_reason:
            failure = f"{vectors.pending_reason} New text is found by word, not yet by meaning."
            self.tally.failures += [failure] if failure not in self.tally.failures else []
        return vectors

    def _may_embed(self, target: SyncTarget) -> bool:
        """Return whether to ask the embedder: it works, and its vectors would not be mixed with another's."""
        if self.vectors is None or self.vectors.failed_recently():
            return False
        return target.generation is not self.index.live or self.planner.vectors_match()

    def _write(self, batch: FileBatch, vectors: Vectors | None, target: SyncTarget) -> int:
        """Write a batch in one transaction. Return how many chunks were added and removed."""
        generation = target.generation
        changed = 0
        with self.index.writing():
            if self.vectors and vectors:
                self.vectors.remember(vectors)
            for source, path in batch.removed:
                changed += generation.remove_file(source, path)
            for row in batch.touched:
                is_note = row.source == "memory"
                daily = target.recipe.daily
                generation.touch_file(row, note_timestamp_ms(row.path, row.mtime_ns, daily) if is_note else None)
            for prepared in batch.prepared:
                write = prepared.write
                changed += generation.replace_file(write)
                if vectors:
                    waiting = generation.rows_awaiting_vector(*write.file.key, after_line=write.after_line)
                    available = ((row, vectors.find(key)) for row, key in waiting)
                    generation.vectors.put([(row, quantise(vector)) for row, vector in available if vector])
        return changed

    def _report(self, started: float) -> SyncReport:
        tally, files = self.tally, len(self.scan.files)
        with self.index.reading():
            chunks = self.index.live.count_chunks()
            vectors = self.index.live.vectors.count() if self.vectors is not None else chunks
        return SyncReport(
            files=files,
            indexed=tally.indexed,
            removed=tally.removed,
            unchanged=max(0, files - tally.indexed),
            chunks=chunks,
            embedded=tally.embedded,
            cached=max(0, tally.cached),
            pending=chunks - vectors,
            rebuilt=tally.rebuilt,
            problems=tuple(tally.problems),
            failures=tuple(tally.failures),
            took_ms=(time.perf_counter() - started) * 1000,
        )
