"""Plans a sync from the files on disk and the rows in the index. Reads only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from kept.chunking.markdown import ChunkSize
from kept.config import MemorySearchSettings
from kept.config.schema import SessionSyncSettings
from kept.embedding.base import Embedder
from kept.errors import KeptError
from kept.indexing.prepare import Recipe, file_row
from kept.indexing.source_reader import SourceReader, SyncTarget
from kept.indexing.sources import scan_sources, scan_transcripts
from kept.indexing.usage import price_texts
from kept.indexing.vectorise import Vectoriser
from kept.records import Preview, SourceFile
from kept.store.generation import FileRow
from kept.store.index import META_RECIPE, Index
from kept.values import frozen
from kept.workspace.daily import get_daily_notes
from kept.workspace.opened import OpenWorkspace
from kept.workspace.scan import Scan
from kept.workspace.workspace import Workspace

# File systems stamp a change with a clock that ticks, every 10 ms at the slowest common setting. A file that was
# changed again within the tick in which it was read looks the same, so such a file is read once more.
RACY_NS = 20_000_000
FORCED = "it was asked for"
"""Reason of a rebuild that the caller forces."""

_NO_STATE = (-1, 0, 0, 0)

FileKey = tuple[str, str]
"""Source and path."""


@frozen
class SyncPlan:
    to_read: tuple[SourceFile, ...]
    """New files, and files whose size or times differ; the hash decides whether their text changed."""
    to_remove: tuple[FileKey, ...]
    unchanged: int

    def __bool__(self) -> bool:
        return bool(self.to_read or self.to_remove)


def plan_sync(files: Iterable[SourceFile], known: Mapping[FileKey, FileRow], *, read_all: bool = False) -> SyncPlan:
    """Compare the files on disk with the rows of the index. Pure."""
    to_read: list[SourceFile] = []
    seen: set[FileKey] = set()
    unchanged = 0
    for file in files:
        key = (file.source, file.path)
        seen.add(key)
        if not read_all and key in known and is_unchanged(file, known[key]):
            unchanged += 1
        else:
            to_read.append(file)
    to_remove = tuple(key for key in known if key not in seen)
    return SyncPlan(tuple(to_read), to_remove, unchanged)


def is_unchanged(file: SourceFile, row: FileRow) -> bool:
    """Return whether size and times are as indexed. ctime counts too: unlike mtime it cannot be set back."""
    same = (file.size, file.mtime_ns, file.ctime_ns) == (row.size, row.mtime_ns, row.ctime_ns)
    return same and row.ctime_ns + RACY_NS < row.checked_ns


@frozen
class Growth:
    """What was added to one transcript since the last sync."""

    size: int = 0
    messages: int = 0


def should_sync(growths: Iterable[Growth], thresholds: SessionSyncSettings) -> bool:
    """Return whether a transcript has grown by enough bytes or messages. A threshold of 0 is any growth. Pure.

    This is for programs that keep the index current in the background, so that not every message of a lively
    conversation costs a sync. A search syncs whatever was said before it answers, however little.
    """
    return any(
        growth.size >= max(1, thresholds.delta_bytes) or growth.messages >= max(1, thresholds.delta_messages)
        for growth in growths
    )


class SyncPlanner:
    """Compares one open index with the files and the settings. Made for one task and dropped after it.

    ``vectors`` is None without an embedder.
    """

    def __init__(
        self,
        index: Index,
        workspace: Workspace,
        sessions_folder: str,
        settings: MemorySearchSettings,
        reader: SourceReader,
        vectors: Vectoriser | None,
    ) -> None:
        self.index = index
        self.workspace = workspace
        self.sessions_folder = sessions_folder
        self.settings = settings
        self.reader = reader
        self.vectors = vectors
        self._rows: tuple[tuple[int, int], dict[FileKey, FileRow]] | None = None
        """Rows of the files with the version of the index that they are from: read again only if another process has
        written in between."""

    @property
    def embedder(self) -> Embedder | None:
        return self.vectors.embedder if self.vectors else None

    # files

    def scan(self) -> Scan:
        return scan_sources(self.workspace, self.sessions_folder, self.settings)

    def has_changes(self, scan: Scan) -> bool:
        """Return whether a sync has anything to do. Quicker than a plan, since most often it has not."""
        with self.index.reading():
            if self._files_awaiting_vectors():
                return True
            states = self.index.live.file_states()
        if len(states) != len(scan.files):
            return True
        for file in scan.files:
            size, mtime_ns, ctime_ns, checked_ns = states.get((file.source, file.path), _NO_STATE)
            if file.mtime_ns != mtime_ns or file.size != size or file.ctime_ns != ctime_ns:
                return True
            if ctime_ns + RACY_NS >= checked_ns:
                return True
        return False

    def plan_update(self, scan: Scan) -> SyncTarget | None:
        """Return the changes to bring into the live tables, or None if there are none."""
        known, waiting = self._known()
        plan = self._plan(scan, known, waiting)
        return self._update_target(plan, known, waiting) if plan else None

    def _update_target(self, plan: SyncPlan, known: dict[FileKey, FileRow], waiting: set[FileKey]) -> SyncTarget:
        # A file with chunks that wait for vectors is read even if its bytes are as indexed.
        rows = {key: row for key, row in known.items() if key not in waiting}
        return SyncTarget(self.index.live, plan.to_read, plan.to_remove, rows, self.recipe())

    def _known(self) -> tuple[dict[FileKey, FileRow], set[FileKey]]:
        """Return the rows of all files, and the files with chunks that wait for vectors."""
        with self.index.reading():
            waiting = self._files_awaiting_vectors()
            version = self.index.version()
            if self._rows is None or self._rows[0] != version:
                self._rows = (version, self.index.live.file_rows())
            return self._rows[1], waiting

    def _plan(self, scan: Scan, known: dict[FileKey, FileRow], waiting: set[FileKey]) -> SyncPlan:
        plan = plan_sync(scan.files, known)
        if not waiting:
            return plan
        planned = {(file.source, file.path) for file in plan.to_read}
        more = tuple(f for f in scan.files if (f.source, f.path) in waiting and (f.source, f.path) not in planned)
        return replace(plan, to_read=plan.to_read + more, unchanged=plan.unchanged - len(more))

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

    def growths(self) -> list[Growth]:
        """Return how much each transcript has grown since it was indexed."""
        from kept.indexing.transcripts import measure_growth

        with self.index.reading():
            known = self.index.live.file_rows()
        files = scan_transcripts(self.sessions_folder).files if "sessions" in self.settings.sources else ()
        return [measure_growth(file, known.get((file.source, file.path))) for file in files]

    # vectors

    def _files_awaiting_vectors(self) -> set[FileKey]:
        """Return files with chunks that have no vector and that the embedder may be asked for now."""
        vectors, live = self.vectors, self.index.live
        if vectors is None or vectors.pauses() or not self.vectors_match() or not live.count_awaiting_vectors():
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
        return self.embedder is not None and self.stored_identity() == self.embedder.identity.key

    # rebuilding

    def recipe(self) -> Recipe:
        """Return how the index is to be built. Without an embedder, the vectors in the index stay as they are."""
        stored = self.index.get_meta(META_RECIPE) or {}
        identity = self.embedder.identity if self.embedder else None
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
        stored = self.index.get_meta(META_RECIPE)
        current = self.recipe().fingerprint()
        if stored is None or stored == current or (self.vectors is not None and self.vectors.pauses()):
            return None
        changed = [key for key in {**stored, **current} if stored.get(key) != current.get(key)]
        if "identity" in changed:
            return f"the embedder changed from {stored.get('model') or 'none'} to {current['model'] or 'none'}"
        if "tokens" in changed or "overlap" in changed:
            return "the size of chunks changed"
        if changed == ["daily"]:
            return "the vault has its daily notes elsewhere, or names them differently"
        return "this version of Kept indexes differently"

    def preview(self, *, force: bool = False) -> Preview:
        """Return what a sync would do and cost. Reads and chunks the notes that the sync would read."""
        scan, rebuild = self.scan(), self.why_rebuild(force=force)
        known, waiting = self._known()
        plan = self._plan(scan, known, waiting)
        target = self._update_target(plan, known, waiting)
        if rebuild:
            target = replace(target, files=scan.files, known={})
        texts: dict[bytes, str] = {}
        files = 0
        for batch in self.reader.iter_batches(target):
            texts.update((key, text) for prepared in batch.prepared for key, text in prepared.embed_texts.items())
            files += batch.indexed
        cached = self.vectors.find_cached(texts) if self.vectors else {}
        preview = price_texts(texts, cached, self.embedder, self.settings)
        return replace(preview, files=files, removed=len(plan.to_remove), rebuild=rebuild)
