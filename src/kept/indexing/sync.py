"""One sync: plan what differs between files and index, then read, embed and write it, or rebuild the index.

`plan_sync` compares, `SyncPlanner` reads what it compares, and `SyncRun` acts; every trigger comes through it. Files
are read and embedded outside any transaction; then a batch of files is swapped inside one, so that readers see each
file whole, in its old or its new state. A kill at any point leaves the committed batches and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kept.chunking.markdown import ChunkSize
from kept.clock import Clock
from kept.config import MemorySearchSettings
from kept.durable import locked
from kept.errors import EmbeddingError, EmbeddingFailed, KeptError, StoreDamaged
from kept.indexing.note_rows import PreparedFile, Recipe, file_row, note_timestamp_ms
from kept.indexing.sources import FileBatch, SourceReader, SyncTarget, find_copies, scan_sources, scan_transcripts
from kept.indexing.vectorise import Vectoriser, Vectors, price_texts
from kept.records import Problem, Progress, SourceFile
from kept.reports import Preview, SyncReport
from kept.store.generation import FileRow
from kept.store.index import META_RECIPE, Index
from kept.store.vector_codes import quantise
from kept.values import frozen
from kept.workspace.daily import get_daily_notes
from kept.workspace.opened import OpenWorkspace
from kept.workspace.scan import Scan
from kept.workspace.workspace import Workspace

if TYPE_CHECKING:
    from kept.indexing.batch_runner import BatchRunner
    from kept.indexing.history_sync import HistorySync

META_SYNCED = "last_sync"
META_EMBEDDER_SINCE = "embedder_since_ns"
"""Time at which the index got vectors of another embedder. A process with older settings does not undo that."""

# File systems stamp a change with a clock that ticks, every 10 ms at the slowest common setting. A file that was
# changed again within the tick in which it was read looks the same, so such a file is read once more.
RACY_NS = 20_000_000
_SET_PARTS = {"identity", "model", "tokens", "overlap"}
"""Parts of a recipe that follow from settings."""
_RECIPE_SETTINGS = tuple(
    f"memory_search.{name}"
    for name in ("provider", "fallback", "model", "dimensions", "local.", "remote.", "chunking.")
)
FORCED = "it was asked for"
"""Reason of a rebuild that the caller forces."""

_state_of = attrgetter("source", "path", "size", "mtime_ns", "ctime_ns")

SEEN_BYTES = 16_384
"""Growth of a transcript that a search asked in it may leave for later: so much is in the agent's context, whole."""

_LEAST_MESSAGE_BYTES = 100
"""No line of a message is shorter, with its id, its parent and its time. So a transcript that has grown by less than
this for each message that a sync waits for need not be read."""

FileKey = tuple[str, str]
"""Source and path."""


# planning


@frozen
class SyncPlan:
    to_read: tuple[SourceFile, ...]
    """New files, and files whose size or times differ; the hash decides whether their text changed."""
    to_remove: tuple[FileKey, ...]


def plan_sync(
    files: Iterable[SourceFile],
    known: Mapping[FileKey, FileRow],
    *,
    waiting: Collection[FileKey] = (),
    read_all: bool = False,
) -> SyncPlan:
    """Compare the files on disk with the rows of the index. Files that are ``waiting`` are read in any case. Pure."""
    to_read: list[SourceFile] = []
    seen: set[FileKey] = set()
    for file in files:
        key = (file.source, file.path)
        seen.add(key)
        if read_all or key in waiting or key not in known or not is_unchanged(file, known[key]):
            to_read.append(file)
    return SyncPlan(tuple(to_read), tuple(key for key in known if key not in seen))


def is_unchanged(file: SourceFile, row: FileRow) -> bool:
    """Return whether size and times are as indexed. ctime counts too: unlike mtime it cannot be set back."""
    same = (file.size, file.mtime_ns, file.ctime_ns) == (row.size, row.mtime_ns, row.ctime_ns)
    return same and row.ctime_ns + RACY_NS < row.checked_ns


def _has_only_grown(path: str, states: Set[Any]) -> bool:
    """Return whether states that differ are the old and the new one of a transcript that has grown a little."""
    if len(states) != 2 or any(state[1] != path for state in states):
        return False
    smaller, larger = sorted(state[2] for state in states)
    return bool(larger - smaller < SEEN_BYTES)


@frozen
class Growth:
    """Growth of one transcript since the last sync."""

    size: int = 0
    messages: int = 0


@frozen
class SyncPlanner:
    """Compares one open index with the files and the settings. Made for one task and dropped after it.

    ``vectors`` is None without an embedder.
    """

    index: Index
    workspace: Workspace
    sessions_folder: str
    settings: MemorySearchSettings
    reader: SourceReader
    vectors: Vectoriser | None

    # files

    def scan(self) -> Scan:
        return scan_sources(self.workspace, self.sessions_folder, self.settings)

    def has_changes(self, scan: Scan, *, growing: str | None = None) -> bool:
        """Return whether a sync has anything to do. Quicker than a plan, since most often it has not.

        ``growing`` is the path of a transcript that may have grown a little.
        """
        with self.index.reading():
            if self._files_awaiting_vectors() or self.index.live.has_racy_files(RACY_NS, but=growing):
                return True
            states = self.index.live.file_states()
        current = set(map(_state_of, scan.files))
        return states != current and not (growing and _has_only_grown(growing, states ^ current))

    def plan_update(self, scan: Scan) -> SyncTarget:
        """Return the changes to bring into the live tables. Without any, it has no files to read or to remove."""
        with self.index.reading():
            waiting = self._files_awaiting_vectors()
            known = self.index.live.file_rows()
        plan = plan_sync(scan.files, known, waiting=waiting)
        # A file with chunks that wait for vectors is indexed even if its bytes are as indexed.
        rows = {key: row for key, row in known.items() if key not in waiting}
        return SyncTarget(self.index.live, plan.to_read, plan.to_remove, rows, self.recipe())

    def count_changed(self, scan: Scan, *, read_all: bool = False) -> int:
        """Return how many files differ from the index. A file is read if its size or times differ; ``read_all``
        reads every file."""
        with self.index.reading():
            known = self.index.live.file_rows()
        plan = plan_sync(scan.files, known, read_all=read_all)
        changed = len(plan.to_remove)
        with OpenWorkspace(self.workspace) as opened:
            for file in plan.to_read:
                row = known.get((file.source, file.path))
                changed += row is None or row.hash != self._hash_on_disk(opened, file, None if read_all else row)
        return changed

    def _hash_on_disk(self, opened: OpenWorkspace, file: SourceFile, row: FileRow | None) -> str | None:
        try:
            if file.source == "sessions":
                from kept.indexing.transcripts import hash_transcript

                return hash_transcript(file, row)
            note = opened.read_found(file.absolute, max_bytes=self.settings.max_file_bytes)
        except KeptError:
            return None
        return file_row(file, note, checked_ns=0).hash

    def iter_growths(self, *, min_bytes: int = 0) -> Iterator[Growth]:
        """Yield how much transcripts have grown since they were indexed. Those that have grown by less than
        ``min_bytes``, or not at all, are not read."""
        with self.index.reading():
            known = self.index.live.file_rows()
        files = scan_transcripts(self.sessions_folder).files if "sessions" in self.settings.sources else ()
        for file in files:
            row = known.get((file.source, file.path))
            if row is None or not (0 < file.size - row.size < min_bytes or is_unchanged(file, row)):
                from kept.indexing.transcripts import measure_growth

                yield measure_growth(file, row)

    def growth_reached(self) -> bool:
        """Return whether a transcript has grown by enough bytes or messages. A threshold of 0 is any growth.

        This is for programs that keep the index current in the background, so that not every message of a lively
        conversation costs a sync. A search syncs whatever was said before it answers, however little; one that an
        agent asks in a conversation leaves what is in its context anyway.
        """
        thresholds = self.settings.sync.sessions
        min_bytes, min_messages = max(1, thresholds.delta_bytes), max(1, thresholds.delta_messages)
        growths = self.iter_growths(min_bytes=min(min_bytes, min_messages * _LEAST_MESSAGE_BYTES))
        return any(growth.size >= min_bytes or growth.messages >= min_messages for growth in growths)

    # vectors

    def _files_awaiting_vectors(self) -> set[FileKey]:
        """Return files with chunks that have no vector and that the embedder may be asked for now."""
        vectors, live = self.vectors, self.index.live
        if (
            vectors is None
            or vectors.pauses()
            or not self.vectors_match()
            or live.count_chunks() == live.vectors.count()
        ):
            return set()
        waiting = live.files_awaiting_vectors()
        if not vectors.refused:
            return waiting
        return {
            file for file in waiting if any(key not in vectors.refused for _, key in live.rows_awaiting_vector(*file))
        }

    def stored_identity(self) -> str | None:
        """Return the embedder whose vectors the index holds."""
        stored = self.index.get_meta(META_RECIPE) or {}
        return stored.get("identity")

    def vectors_match(self) -> bool:
        """Return whether the vectors in the index come from the embedder in use."""
        return self.vectors is not None and self.stored_identity() == self.vectors.embedder.identity.key

    # rebuilding

    def recipe(self) -> Recipe:
        """Return how the index is to be built. Without an embedder, the vectors in the index stay as they are."""
        stored = self.index.get_meta(META_RECIPE) or {}
        identity = self.vectors.embedder.identity if self.vectors else None
        return Recipe(
            size=ChunkSize(self.settings.chunking.tokens, self.settings.chunking.overlap),
            identity=identity.key if identity else stored.get("identity"),
            model=identity.model if identity else stored.get("model"),
            daily=get_daily_notes(self.workspace),
        )

    def why_rebuild(self, *, force: bool = False) -> str | None:
        """Return the reason why the whole index has to be rebuilt, or None."""
        if force:
            return FORCED
        stored, current = self.index.get_meta(META_RECIPE) or {}, self.recipe().fingerprint()
        changed = self._changed_parts(stored, current)
        if not changed:
            return None
        if "identity" in changed:
            return f"the embedder changed from {stored.get('model') or 'none'} to {current['model'] or 'none'}"
        if "tokens" in changed or "overlap" in changed:
            return "the size of chunks changed"
        if changed == {"daily"}:
            return "the vault has its daily notes elsewhere, or names them differently"
        return "this version of Kept indexes differently"

    def why_rebuild_for_run(self, run_settings: Iterable[str]) -> str | None:
        """Return the reason if only settings of this run, by their names, make a rebuild necessary, or None."""
        if not any(name.startswith(_RECIPE_SETTINGS) for name in run_settings):
            return None
        stored, current = self.index.get_meta(META_RECIPE) or {}, self.recipe().fingerprint()
        return self.why_rebuild() if self._changed_parts(stored, current) <= _SET_PARTS else None

    def _changed_parts(self, stored: Mapping[str, object], current: Mapping[str, object]) -> set[str]:
        """Return the parts of the recipe that differ from those of the index, if there is an index and its embedder
        can be asked."""
        if not stored or (self.vectors is not None and self.vectors.pauses()):
            return set()
        return {key for key in {**stored, **current} if stored.get(key) != current.get(key)}

    def preview(self, *, force: bool = False) -> Preview:
        """Return what a sync would do and cost. Reads and chunks the notes that the sync would read."""
        scan, rebuild = self.scan(), self.why_rebuild(force=force)
        target = self.plan_update(scan)
        if rebuild:
            target = replace(target, files=scan.files, known={})
        texts: dict[bytes, str] = {}
        files = 0
        for batch in self.reader.iter_batches(target):
            texts.update((key, text) for prepared in batch.prepared for key, text in prepared.embed_texts.items())
            files += batch.indexed
        cached = self.vectors.find_cached(texts) if self.vectors else {}
        preview = price_texts(texts, cached, self.vectors.embedder if self.vectors else None, self.settings)
        return replace(preview, files=files, removed=len(target.removed), rebuild=rebuild)


# applying


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
    """One sync of the index that a planner reads. ``run`` is called once. Only one process per index writes at a time.

    ``in_search`` is a sync before a search: a provider's batch is started, but not waited for. ``growing`` is the
    path of a transcript whose growth alone is not worth a sync.
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
        growing: str | None = None,
        progress: Progress | None = None,
        history: HistorySync | None = None,
    ) -> None:
        self.planner = planner
        self.history = history
        self.index = planner.index
        self.vectors = planner.vectors
        self.settings = planner.settings
        self.scan = scan
        self.clock = clock
        self.batch_runner = batch_runner
        self.force = force
        self.in_search = in_search
        self.growing = growing
        self.progress = progress
        self.tally = _Tally(problems=list(scan.problems))

    def run(self, *, wait_s: float) -> SyncReport:
        """Bring the index up to date. Raise LockBusy if another process is still indexing after ``wait_s``."""
        started = time.perf_counter()
        if self.batch_runner:
            self.batch_runner.prepare(force=self.force, in_search=self.in_search)
        is_unbuilt = bool(self.planner.why_rebuild(force=self.force)) or self.index.get_meta(META_RECIPE) is None
        has_work = (
            is_unbuilt
            or (self.history is not None and self.history.is_due())
            or self.planner.has_changes(self.scan, growing=self.growing)
        )
        if has_work and not self._can_only_read(is_unbuilt=is_unbuilt):
            with locked(f"{self.index.path}.lock", wait_s=wait_s, purpose="indexing"):
                self._run_locked()
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
            problems=(*tally.problems, *self._copies()),
            failures=tuple(tally.failures),
            took_ms=(time.perf_counter() - started) * 1000,
        )

    def _can_only_read(self, *, is_unbuilt: bool) -> bool:
        """Return False if the index can be written. Otherwise raise the reason if there is anything to write."""
        reason = self.index.why_read_only
        if reason and (is_unbuilt or self.planner.count_changed(self.scan)):
            raise reason
        return reason is not None

    def _run_locked(self) -> None:
        if not self.index.is_current_file():  # writing to a file that was moved away would be lost
            raise StoreDamaged(f"{self.index.path}: the index was replaced while this process waited.")
        # Another process may have done the work while this one waited, so the plan is made under the lock.
        if self.force and self.vectors:
            self.vectors.refused = set()
        self.index.drop_leftovers()
        if self.index.get_meta(META_RECIPE) is None:
            with self.index.writing():
                self.index.put_meta(META_RECIPE, self.planner.recipe().fingerprint())
        if self.history is not None:
            self.history.begin(self.scan)
        reason = self.planner.why_rebuild(force=self.force)
        if reason is not None:
            self._scan_again()
            if self._rebuild(reason):
                return
        target = self.planner.plan_update(self.scan)
        if target.removed:
            # A file that was created and indexed by another process after this scan looks removed, too.
            self._scan_again()
            target = self.planner.plan_update(self.scan)
        if target.files or target.removed:
            self._index_files(target)
        if target.files or target.removed or (self.history is not None and self.history.is_due()):
            with self.index.writing():
                self._finish()

    def _copies(self) -> list[Problem]:
        """Return the conflict copies among the notes, for a report. A search does not report them."""
        return [] if self.in_search else find_copies(self.scan, self.planner.workspace, self.settings)

    def _scan_again(self) -> None:
        self.scan = self.planner.scan()
        self.tally.problems = list(self.scan.problems)

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
            if self.planner.stored_identity() != recipe.identity:
                self.index.put_meta(META_EMBEDDER_SINCE, self.clock.time_ns())
            self.index.put_meta(META_RECIPE, recipe.fingerprint())
            self._finish()
        self.tally.rebuilt = reason
        return True

    def _finish(self) -> None:
        """Tidy the live tables and the cache, inside the caller's transaction."""
        self.index.live.optimise(changed_chunks=self.tally.changed_chunks)
        self.index.cache.evict(self.settings.cache.max_entries if self.settings.cache.enabled else 0)
        self.index.put_meta(META_SYNCED, self.clock.now().isoformat(timespec="seconds"))
        if self.history is not None:
            self.history.finish()
            self.tally.problems += self.history.problems

    # reading, embedding and writing

    def _index_files(self, target: SyncTarget) -> None:
        if self.batch_runner is not None and self._may_embed(target):
            self._fetch_batches(self.batch_runner, target)
        for batch in self.planner.reader.iter_batches(target):
            self.tally.problems += batch.problems
            self.tally.indexed += batch.indexed
            vectors = self._embed(batch.prepared, target)
            self.tally.changed_chunks += self._write(batch, vectors, target)
            self.tally.removed += len(batch.removed)
            if self.progress:
                self.progress(batch.completed, len(target.files), batch.label)

    def _fetch_batches(self, batch_runner: BatchRunner, target: SyncTarget) -> None:
        """If many vectors are missing, let the provider's batch API bring them into the cache first."""
        vectors = self.vectors
        if vectors is None:
            return
        missing: dict[bytes, str] = {}
        for batch in self.planner.reader.iter_batches(target):  # which reads them again for indexing: problems wait
            for prepared in batch.prepared:
                missing |= vectors.find_missing(prepared.embed_texts)
        fetched = batch_runner.fetch(missing, vectors.store, self.progress)
        vectors.await_batches(fetched.pending, fetched.reason)
        self.tally.embedded += fetched.vectors
        self.tally.cached -= fetched.vectors  # about to be read from the cache, but new to it
        self.tally.problems += [Problem("batches.json", reason) for reason in fetched.problems]

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
        if self.history is not None:
            self.history.note_batch(batch)
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
                    waiting = generation.rows_awaiting_vector(
                        write.file.source, write.file.path, after_line=write.after_line
                    )
                    available = ((row, vectors.known.get(key) or vectors.fresh.get(key)) for row, key in waiting)
                    generation.vectors.put([(row, quantise(vector)) for row, vector in available if vector])
        return changed
