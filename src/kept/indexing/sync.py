"""Bringing the index up to date: one path for every trigger.

Files are read and embedded outside any transaction; then a batch of files is swapped inside one, so readers see each
file whole, as it was or as it is. A kill at any point leaves batches that were committed and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kept.chunking.markdown import ChunkSize
from kept.clock import Clock
from kept.config import MemorySearch
from kept.embedding.base import Embedder
from kept.errors import EmbeddingError, EmbeddingFailed, KeptError, NoteNotFound, SessionNotFound
from kept.indexing.meter import price_texts
from kept.indexing.plan import SyncPlan, plan_sync
from kept.indexing.prepare import PreparedFile, Recipe, file_row, note_timestamp_ms, prepare_file
from kept.indexing.scan import scan_sources, scan_transcripts
from kept.indexing.triggers import Growth
from kept.indexing.vectorise import Vectoriser, Vectors
from kept.lock import locked
from kept.records import Preview, Problem, Progress, SourceFile, SyncReport
from kept.store.generation import Generation
from kept.store.index import Index
from kept.store.kernels import quantise
from kept.store.rows import FileRow
from kept.values import frozen
from kept.workspace.files import read_note
from kept.workspace.paths import Workspace
from kept.workspace.scan import Scan

if TYPE_CHECKING:
    from kept.indexing.batch_jobs import BatchJobs

BATCH_FILES = 200
BATCH_CHARS = 400_000
_META_RECIPE = "recipe"
_META_SYNCED = "last_sync"


@dataclass
class _Tally:
    """What has happened so far in one sync."""

    indexed: int = 0
    removed: int = 0
    changed_chunks: int = 0
    embedded: int = 0
    cached: int = 0
    rebuilt: str | None = None
    problems: list[Problem] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


@frozen
class _Job:
    """Files to bring into a generation. ``known`` lets a file whose bytes are the same pass without work."""

    target: Generation
    files: tuple[SourceFile, ...]
    removed: tuple[tuple[str, str], ...]
    known: dict[tuple[str, str], FileRow]
    recipe: Recipe
    keep_going: bool
    """Without an embedder: store what is found by word and embed later, or give up."""


@dataclass
class _Batch:
    """What is embedded and written together: enough to share a call and a transaction, not to hold much memory."""

    prepared: list[PreparedFile] = field(default_factory=list)
    touched: list[FileRow] = field(default_factory=list)
    gone: list[tuple[str, str]] = field(default_factory=list)
    files: int = 0
    chars: int = 0
    done: int = 0
    label: str = ""

    def add(self, piece: _Piece) -> None:
        match piece:
            case PreparedFile():
                self.prepared.append(piece)
                self.chars += sum(map(len, piece.embed_texts.values()))
            case FileRow():
                self.touched.append(piece)
            case _:
                self.gone.append(piece)

    def is_full(self) -> bool:
        return self.files >= BATCH_FILES or self.chars > BATCH_CHARS

    def __bool__(self) -> bool:
        return bool(self.prepared or self.touched or self.gone or self.files)


_Piece = PreparedFile | FileRow | tuple[str, str]
"""Something new, a file of which only the state has changed, or the key of one that is gone."""


class Syncer:
    def __init__(
        self,
        index: Index,
        workspace: Workspace,
        sessions_folder: str,
        embedder: Embedder | None,
        settings: MemorySearch,
        clock: Clock,
        batches: BatchJobs | None = None,
    ) -> None:
        self.index = index
        self.workspace = workspace
        self.sessions_folder = sessions_folder
        self.embedder = embedder
        self.settings = settings
        self.clock = clock
        self.vectors = Vectoriser(index, embedder, settings.cache, clock) if embedder else None
        self.batches = batches
        self._rows: tuple[tuple[int, int], dict[tuple[str, str], FileRow]] | None = None
        """What the index knew of each file when a sync was planned, so as not to read it again under the lock."""

    def try_embedder_again(self) -> None:
        """Forgets that the embedder failed, because somebody asked for a sync by name."""
        if self.vectors:
            self.vectors.look_again()

    def embedder_failed(self) -> bool:
        return self.vectors is not None and self.vectors.rests()

    def _embedder_rests(self) -> bool:
        """Whether it need not be asked in these moments: it failed, or has been asked and takes its time."""
        return self.vectors is not None and (self.vectors.rests() or self.vectors.awaits_held())

    # looking

    def scan(self) -> Scan:
        return scan_sources(self.workspace, self.sessions_folder, self.settings)

    def plan(self, scan: Scan) -> SyncPlan:
        return self._plan(scan, *self._known())

    def _known(self) -> tuple[dict[tuple[str, str], FileRow], set[tuple[str, str]]]:
        """What the index knows of each file, and which of them have chunks that wait for vectors."""
        with self.index.reading():
            waiting = self._files_awaiting_vectors()
            version = self.index.version()
            if self._rows is None or self._rows[0] != version:
                self._rows = (version, self.index.live.file_rows())
            return dict(self._rows[1]), waiting

    def _plan(self, scan: Scan, known: dict[tuple[str, str], FileRow], waiting: set[tuple[str, str]]) -> SyncPlan:
        plan = plan_sync(scan.files, known)
        if not waiting:
            return plan
        planned = {(file.source, file.path) for file in plan.to_read}
        more = tuple(f for f in scan.files if (f.source, f.path) in waiting and (f.source, f.path) not in planned)
        return replace(plan, to_read=plan.to_read + more, unchanged=plan.unchanged - len(more))

    def count_changed(self, scan: Scan, *, thoroughly: bool = False) -> int:
        """How many files the index does not have as they are. Those whose state differs are read to be sure;
        ``thoroughly`` reads all of them."""
        with self.index.reading():
            known = self.index.live.file_rows()
        plan = plan_sync(scan.files, known, everything=thoroughly)
        changed = len(plan.to_remove)
        for file in plan.to_read:
            row = known.get((file.source, file.path))
            changed += row is None or row.hash != self._hash_on_disk(file, None if thoroughly else row)
        return changed

    def growths(self) -> list[Growth]:
        """What was said since transcripts were last taken in, for whoever decides whether that is enough to sync."""
        from kept.indexing.conversation import measure_growth

        with self.index.reading():
            known = self.index.live.file_rows()
        files = scan_transcripts(self.sessions_folder).files if "sessions" in self.settings.sources else ()
        return [measure_growth(file, known.get((file.source, file.path))) for file in files]

    def _hash_on_disk(self, file: SourceFile, row: FileRow | None) -> str | None:
        try:
            if file.source == "sessions":
                from kept.indexing.conversation import hash_transcript

                return hash_transcript(file, row)
            note = read_note(file.absolute, max_bytes=self.settings.max_file_bytes)
        except KeptError:
            return None
        return file_row(file, note, checked_ns=0).hash

    def _awaits_vectors(self) -> bool:
        if self.embedder is None or self._embedder_rests() or not self.vectors_match():
            return False
        return self.index.live.count_awaiting_vectors() > 0

    def _files_awaiting_vectors(self) -> set[tuple[str, str]]:
        """Files with chunks that the embedder can be asked for, and has not given."""
        if not self._awaits_vectors():
            return set()
        live = self.index.live
        waiting = live.files_awaiting_vectors()
        refused = self.vectors.refused if self.vectors else set()
        if not refused:
            return waiting
        return {file for file in waiting if any(key not in refused for _, key in live.rows_awaiting_vector(*file))}

    def recipe(self) -> Recipe:
        """How the index is to be built. Without an embedder, whatever vectors are there stay what they are."""
        stored = self.index.get_meta(_META_RECIPE) or {}
        identity = self.embedder.identity if self.embedder else None
        return Recipe(
            size=ChunkSize(self.settings.chunking.tokens, self.settings.chunking.overlap),
            identity=identity.key if identity else stored.get("identity"),
            model=identity.model if identity else stored.get("model"),
        )

    def why_rebuild(self) -> str | None:
        stored = self.index.get_meta(_META_RECIPE)
        wanted = self.recipe().fingerprint()
        if stored is None or stored == wanted or self._embedder_rests():
            return None
        changed = [key for key in wanted if stored.get(key) != wanted[key]]
        if "identity" in changed:
            return f"the embedder changed from {stored.get('model') or 'none'} to {wanted['model'] or 'none'}"
        if "tokens" in changed or "overlap" in changed:
            return "the size of chunks changed"
        return "this version of Kept indexes differently"

    def held_identity(self) -> str | None:
        """What the vectors in the index came from."""
        stored = self.index.get_meta(_META_RECIPE) or {}
        return stored.get("identity")

    def vectors_match(self) -> bool:
        """Whether the vectors in the index came from the present embedder."""
        return self.embedder is not None and self.held_identity() == self.embedder.identity.key

    def preview(self, *, force: bool = False) -> Preview:
        """What a sync would do. Reads and cuts the notes it would read, and changes nothing."""
        scan, rebuild = self.scan(), "it was asked for" if force else self.why_rebuild()
        known, waiting = self._known()
        plan = self._plan(scan, known, waiting)
        files = scan.files if rebuild else plan.to_read
        for key in (*waiting, *(known if rebuild else ())):
            known.pop(key, None)
        job = _Job(self.index.live, files, plan.to_remove, known, self.recipe(), True)
        texts: dict[bytes, str] = {}
        tally = _Tally()
        for batch in self._batches(job, tally):
            texts.update((key, text) for one in batch.prepared for key, text in one.embed_texts.items())
        cached = self.vectors.find_cached(texts) if self.vectors else {}
        preview = price_texts(texts, cached, self.embedder, self.settings)
        return replace(preview, files=tally.indexed, removed=len(plan.to_remove), rebuild=rebuild)

    # acting

    def sync(
        self,
        *,
        force: bool = False,
        progress: Progress | None = None,
        wait_s: float,
        scan: Scan | None = None,
        hurry: bool = False,
    ) -> SyncReport:
        """``hurry`` is a search's: what takes hours is begun, and not waited for."""
        started = time.perf_counter()
        if self.batches:
            self.batches.prepare(force=force, hurry=hurry)
        scan = scan or self.scan()
        tally = _Tally(problems=list(scan.problems))
        why = "it was asked for" if force else self.why_rebuild()
        if why or self.index.get_meta(_META_RECIPE) is None or self.plan(scan):
            with locked(f"{self.index.path}.lock", wait_s=wait_s, purpose="indexing"):
                self._sync_locked(scan, force, tally, progress)
        self._rows = None  # of many files they are large
        return self._report(scan, tally, started)

    def _sync_locked(self, scan: Scan, force: bool, tally: _Tally, progress: Progress | None) -> None:
        # Another process may have done the work while this one waited: everything is looked at again.
        if force and self.vectors:
            self.vectors.forget_refusals()
        self.index.drop_leftovers()
        if self.index.get_meta(_META_RECIPE) is None:
            with self.index.writing():
                self.index.put_meta(_META_RECIPE, self.recipe().fingerprint())
        why = "it was asked for" if force else self.why_rebuild()
        if why is None or not self._rebuild(scan, why, tally, progress):
            self._update(scan, tally, progress)

    def _update(self, scan: Scan, tally: _Tally, progress: Progress | None) -> None:
        known, waiting = self._known()
        plan = self._plan(scan, known, waiting)
        if not plan:
            return
        for key in waiting:
            known.pop(key, None)
        self._run(_Job(self.index.live, plan.to_read, plan.to_remove, known, self.recipe(), True), tally, progress)
        with self.index.writing():
            self._finish(self.index.live, tally)

    def _rebuild(self, scan: Scan, why: str, tally: _Tally, progress: Progress | None) -> bool:
        """Builds a new generation beside the live one and switches. On failure the live one stays."""
        building = self.index.begin_generation()
        recipe = self.recipe()
        has_old = self.index.live.count_chunks() > 0
        job = _Job(building, scan.files, (), {}, recipe, keep_going=not has_old)
        try:
            self._run(job, tally, progress)
        except EmbeddingError as exc:
            tally.failures.append(f"{exc.message} The index from before is still in use.")
            self.index.drop_leftovers()
            return False
        with self.index.writing():
            self.index.switch_to(building)
            self.index.put_meta(_META_RECIPE, recipe.fingerprint())
            self._finish(self.index.live, tally)
        tally.rebuilt = why
        return True

    def _finish(self, target: Generation, tally: _Tally) -> None:
        target.settle(changed_chunks=tally.changed_chunks)
        self.index.cache.evict(self.settings.cache.max_entries if self.settings.cache.enabled else 0)
        self.index.put_meta(_META_SYNCED, self.clock.now().isoformat(timespec="seconds"))

    def _run(self, job: _Job, tally: _Tally, progress: Progress | None) -> None:
        self._fetch_in_bulk(job, tally, progress)
        for batch in self._batches(job, tally):
            vectors = self._embed(batch.prepared, job, tally)
            tally.changed_chunks += self._write(job, batch, vectors)
            tally.removed += len(batch.gone)
            if progress:
                progress(batch.done, len(job.files), batch.label)

    def _fetch_in_bulk(self, job: _Job, tally: _Tally, progress: Progress | None) -> None:
        """Where many vectors are missing, the provider's batch API brings them into the cache first."""
        if self.batches is None or self.vectors is None or self.embedder_failed() or not self._fits(job):
            return
        fetched = self.batches.fetch(self._missing_texts(job, self.vectors), self.vectors.keep, progress)
        self.vectors.hold(fetched.held, fetched.reason)
        tally.embedded += fetched.vectors
        tally.cached -= fetched.vectors  # they are about to be found there, and were not there before
        tally.problems += [Problem("batches.json", reason) for reason in fetched.problems]

    def _missing_texts(self, job: _Job, vectors: Vectoriser) -> dict[bytes, str]:
        missing: dict[bytes, str] = {}
        for batch in self._batches(job, _Tally()):  # what there is to tell is told when its turn comes
            for one in batch.prepared:
                missing |= vectors.find_missing(one.embed_texts)
        return missing

    def _batches(self, job: _Job, tally: _Tally) -> Iterator[_Batch]:
        batch = _Batch(gone=list(job.removed))
        for number, file in enumerate(job.files):
            for piece in self._read(file, job, tally):
                batch.add(piece)
                if batch.is_full():
                    yield batch
                    batch = _Batch(done=number, label=file.path)
            batch.files += 1
            batch.done, batch.label = number + 1, file.path
            if batch.is_full():
                yield batch
                batch = _Batch(done=number + 1, label=file.path)
        if batch:
            yield batch

    def _read(self, file: SourceFile, job: _Job, tally: _Tally) -> Iterator[_Piece]:
        is_new = False
        try:
            read = self._read_transcript if file.source == "sessions" else self._read_note
            for piece in read(file, job, tally):
                is_new = is_new or isinstance(piece, PreparedFile)
                yield piece
        except (NoteNotFound, SessionNotFound):
            yield file.source, file.path
        except KeptError as exc:
            tally.problems.append(Problem(file.path, exc.message))
        tally.indexed += is_new

    def _read_note(self, file: SourceFile, job: _Job, tally: _Tally) -> Iterator[_Piece]:
        checked_ns = self.clock.time_ns()
        note = read_note(file.absolute, max_bytes=self.settings.max_file_bytes)
        row = file_row(file, note, checked_ns=checked_ns)
        before = job.known.get(row.key)
        if before is not None and before.hash == row.hash:
            row = replace(row, warning=before.warning)
            yield row
        else:
            prepared = prepare_file(file, note, job.recipe, checked_ns=checked_ns)
            row = prepared.write.file
            yield prepared
        if row.warning:
            tally.problems.append(Problem(file.path, row.warning))

    def _read_transcript(self, file: SourceFile, job: _Job, tally: _Tally) -> Iterator[_Piece]:
        from kept.indexing.conversation import Taken, take_in

        known = job.known.get((file.source, file.path))
        for taken in take_in(file, known, job.recipe, checked_ns=self.clock.time_ns()):
            if isinstance(taken, Taken):
                tally.problems.extend(Problem(file.path, reason) for reason in taken.problems)
                yield taken.prepared
            else:
                yield taken

    def _embed(self, prepared: list[PreparedFile], job: _Job, tally: _Tally) -> Vectors | None:
        texts = {key: text for one in prepared for key, text in one.embed_texts.items()}
        if self.vectors is None or not texts or self.embedder_failed() or not self._fits(job):
            return None
        vectors = self.vectors.vectors_of(texts)
        tally.cached += len(vectors.known)
        tally.embedded += len(vectors.fresh)
        for one in prepared:
            for reason in {vectors.refused[key] for key in one.embed_texts if key in vectors.refused}:
                tally.problems.append(Problem(one.write.file.path, f"In part found by word only: {reason}"))
        if vectors.waiting and not job.keep_going:
            with self.index.writing():
                self.vectors.remember(vectors)  # paid for, and the next attempt will want them
            raise EmbeddingFailed(vectors.waiting)
        if vectors.waiting:
            failure = f"{vectors.waiting} New text is found by word, not yet by meaning."
            tally.failures += [failure] if failure not in tally.failures else []
        return vectors

    def _fits(self, job: _Job) -> bool:
        """Vectors of another embedder than the one the tables were made for are never mixed in."""
        return job.target is not self.index.live or self.vectors_match()

    def _write(self, job: _Job, batch: _Batch, vectors: Vectors | None) -> int:
        """How many chunks came and went."""
        changed = 0
        with self.index.writing():
            if self.vectors and vectors:
                self.vectors.remember(vectors)
            for source, path in batch.gone:
                changed += job.target.remove_file(source, path)
            for row in batch.touched:
                is_note = row.source == "memory"
                job.target.touch_file(row, note_timestamp_ms(row.path, row.mtime_ns) if is_note else None)
            for one in batch.prepared:
                changed += job.target.replace_file(one.write)
                if vectors:
                    waiting = job.target.rows_awaiting_vector(*one.write.file.key, after_line=one.write.after_line)
                    found = ((row, vectors.find(key)) for row, key in waiting)
                    job.target.vectors.put([(row, quantise(vector)) for row, vector in found if vector])
        return changed

    def _report(self, scan: Scan, tally: _Tally, started: float) -> SyncReport:
        with self.index.reading():
            chunks = self.index.live.count_chunks()
            vectors = self.index.live.vectors.count() if self.embedder is not None else chunks
        return SyncReport(
            files=len(scan.files),
            indexed=tally.indexed,
            removed=tally.removed,
            unchanged=max(0, len(scan.files) - tally.indexed),
            chunks=chunks,
            embedded=tally.embedded,
            cached=max(0, tally.cached),
            pending=chunks - vectors,
            rebuilt=tally.rebuilt,
            problems=tuple(tally.problems),
            failures=tuple(tally.failures),
            took_ms=(time.perf_counter() - started) * 1000,
        )
