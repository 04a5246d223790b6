"""Plans a sync: compares the files with the rows of the index, and its recipe with the settings. Nothing is written,
and no provider is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kept.base.records import SourceFile
from kept.base.values import frozen
from kept.errors import KeptError
from kept.index.chunking.markdown import ChunkSize
from kept.index.note_rows import Recipe, file_row
from kept.index.sources import FileKey, SourceReader, SyncTarget, scan_transcripts
from kept.index.sqlite.rows import META_RECIPE, FileRow
from kept.index.vectorise import Vectoriser
from kept.notes.daily import get_daily_notes
from kept.notes.scan import Scan

if TYPE_CHECKING:
    from kept.index.sqlite.index import Index

# File systems stamp a change with a clock that ticks, every 10 ms at the slowest common setting. A file that was
# changed again within the tick in which it was read looks the same, so such a file is read once more.
RACY_NS = 20_000_000
# Parts of a recipe that follow from settings.
_SET_PARTS = {"identity", "model", "tokens", "overlap"}
_RECIPE_SETTINGS = tuple(
    f"memory_search.{name}"
    for name in ("provider", "fallback", "model", "dimensions", "local.", "remote.", "chunking.")
)
_state_of = attrgetter("source", "path", "size", "mtime_ns", "ctime_ns")

# Growth of a transcript that a search asked in it may leave for later: so much is in the agent's context, whole.
SEEN_BYTES = 16_384


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
class SyncPlanner:
    """Compares one open index with the files and the settings. Made for one task and dropped after it.

    ``vectors`` is None without an embedder.
    """

    index: Index
    reader: SourceReader
    vectors: Vectoriser | None

    # files

    def describe_age(self, reason: str) -> str | None:
        """Return a warning if the index is older than the files, with the reason why it stays so, or None."""
        if self.why_rebuild():
            return f"The index may be old, and {reason}"
        changed = self.count_changed(self.reader.scan())
        files = "1 file has" if changed == 1 else f"{changed:,} files have"
        return f"{files} changed since the index was written, and {reason}" if changed else None

    def has_changes(self, scan: Scan, *, growing: str | None = None) -> bool:
        """Return whether a sync may have anything to do. Quicker than a plan, since most often it has not.

        ``growing`` is the path of a transcript that may have grown a little.
        """
        if scan.only is not None:
            return bool(scan.only)  # named because they changed
        with self.index.reading():
            if self._files_awaiting_vectors() or self.index.live.has_racy_files(RACY_NS, but=growing):
                return True
            states = self.index.live.file_states()
        current = set(map(_state_of, scan.files))
        return states != current and not (growing and _has_only_grown(growing, states ^ current))

    def plan_update(self, scan: Scan) -> SyncTarget:
        """Return the changes to bring into the live tables. Without any, it has no files to read or to remove.

        Files are read that are new, have another size or time, or have chunks that wait for vectors. The hash of their
        bytes decides whether they are indexed again; of those that wait, it is left out.
        """
        with self.index.reading():
            waiting = self._files_awaiting_vectors() if scan.only is None else set()
            known = self.index.live.file_rows(scan.only)
        rows = {key: row for key, row in known.items() if key not in waiting}
        return SyncTarget(self.index.live, *self._compare(scan, rows, known), rows, self.recipe())

    def _compare(
        self, scan: Scan, rows: Mapping[FileKey, FileRow], known: Iterable[FileKey]
    ) -> tuple[tuple[SourceFile, ...], tuple[FileKey, ...]]:
        """Return the files that differ from their rows, and the keys of those that are gone."""
        files = {(file.source, file.path): file for file in scan.files}
        to_read = (file for key, file in files.items() if key not in rows or not is_unchanged(file, rows[key]))
        return tuple(to_read), tuple(key for key in known if key not in files)

    def count_changed(self, scan: Scan, *, read_all: bool = False) -> int:
        """Return how many files differ from the index. A file is read if its size or times differ; ``read_all``
        reads every file."""
        with self.index.reading():
            known = self.index.live.file_rows()
        to_read, to_remove = self._compare(scan, {} if read_all else known, known)
        changed = len(to_remove)
        for file in to_read:
            row = known.get((file.source, file.path))
            changed += row is None or row.hash != self._hash_on_disk(file, None if read_all else row)
        return changed

    def _hash_on_disk(self, file: SourceFile, row: FileRow | None) -> str | None:
        try:
            if file.source == "sessions":
                from kept.index.transcripts import hash_transcript

                return hash_transcript(file, row, self.reader.config)
            max_bytes = self.reader.config.memory_search.max_file_bytes
            note = self.reader.workspace.read(file.path, max_bytes=max_bytes)
        except KeptError:
            return None
        return file_row(file, note, checked_ns=0).hash

    def growth_reached(self) -> bool:
        """Return whether a transcript has grown by enough bytes or messages. A threshold of 0 is any growth.

        This is for programs that keep the index current in the background, so that not every message of a lively
        conversation costs a sync. A search syncs whatever was said before it answers, however little; one that an
        agent asks in a conversation leaves what is in its context anyway.
        """
        config = self.reader.config
        settings = config.memory_search
        if "sessions" not in settings.sources:
            return False
        from kept.index.transcripts import measure_growth

        thresholds = settings.sync.sessions
        with self.index.reading():
            known = self.index.live.file_rows()
        for file in self._compare(scan_transcripts(config), known, ())[0]:
            size, messages = measure_growth(file, known.get((file.source, file.path)), config)
            if size >= max(1, thresholds.delta_bytes) or messages >= max(1, thresholds.delta_messages):
                return True
        return False

    # vectors

    def _files_awaiting_vectors(self) -> set[FileKey]:
        """Return files with chunks that have no vector and that the embedder may be asked for now."""
        live = self.index.live
        if self.vectors is None or self.vectors.pauses() or not self.vectors_match():
            return set()
        if live.count_chunks() == live.vectors.count():
            return set()
        return live.files_awaiting_vectors()

    def vectors_match(self) -> bool:
        """Return whether the vectors in the index come from the embedder in use."""
        return self.vectors is not None and self.index.stored_identity() == self.vectors.embedder.identity.key

    def size_change(self) -> str | None:
        """Return how the vectors of the index differ in size from those that its embedder gives now, or None."""
        vectors = self.vectors
        if vectors is None or vectors.embedder.identity.dims or not vectors.dims or not self.vectors_match():
            return None
        with self.index.reading():
            others = self.index.live.vectors.sizes() - {vectors.dims}
        model = vectors.embedder.identity.model
        return f"{model} gives vectors of {vectors.dims} dimensions now, not {max(others)}" if others else None

    # rebuilding

    def recipe(self) -> Recipe:
        """Return how the index is to be built. Without an embedder, the vectors in the index stay as they are."""
        chunking = self.reader.config.memory_search.chunking
        stored = {} if self.vectors else self.index.get_meta(META_RECIPE) or {}
        identity = self.vectors.embedder.identity if self.vectors else None
        return Recipe(
            size=ChunkSize(chunking.tokens, chunking.overlap),
            identity=identity.key if identity else stored.get("identity"),
            model=identity.model if identity else stored.get("model"),
            daily=get_daily_notes(self.reader.workspace),
        )

    def why_rebuild(self, *, run_settings: Iterable[str] | None = None) -> str | None:
        """Return the reason why the whole index has to be rebuilt, or None: its recipe differs, and its embedder can be
        asked. With ``run_settings``, by their names: only if nothing but those of this run makes it necessary."""
        if run_settings is not None and not any(name.startswith(_RECIPE_SETTINGS) for name in run_settings):
            return None
        stored = self.index.get_meta(META_RECIPE)
        if not stored or (self.vectors is not None and self.vectors.pauses()):
            return None
        current = self.recipe().fingerprint()
        changed = {key for key in {**stored, **current} if stored.get(key) != current.get(key)}
        if not changed or (run_settings is not None and not changed <= _SET_PARTS):
            return None if changed else self.size_change()
        if "identity" in changed:
            return f"the embedder changed from {stored.get('model') or 'none'} to {current['model'] or 'none'}"
        if "tokens" in changed or "overlap" in changed:
            return "the size of chunks changed"
        if changed == {"daily"}:
            return "the vault has its daily notes elsewhere, or names them differently"
        return "this version of Kept indexes differently"
