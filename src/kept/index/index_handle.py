"""The open index of one workspace: its embedder, its file, and whether it agrees with the notes and transcripts.

An `IndexHandle` opens and loads when needed; the caller holds the lock. `Freshness` saves scans while nothing changes,
and `drop_outdated` checks hits of searches without a sync.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from kept.base.clock import Clock
from kept.base.records import Dropped, Hit, SearchResult, SourceFile
from kept.base.sqlite import discard_if_damaged, forget_connection
from kept.config import Config, QuerySettings
from kept.embedding.base import Embedder
from kept.embedding.registry import EmbedderChain, choose_chain
from kept.errors import KeptError, StoreDamaged
from kept.index.sources import IndexLimits, SourceReader
from kept.index.sqlite.index import Index, open_index
from kept.index.sync_planner import SEEN_BYTES, SyncPlanner
from kept.index.sync_run import META_EMBEDDER_SINCE
from kept.index.vectorise import Vectoriser
from kept.notes.note_writer import read_passage
from kept.notes.scan import ANY_FILE, ChangeSignal, Scan
from kept.notes.workspace import Workspace

if TYPE_CHECKING:
    from kept.index.batches import BatchRunner


RESCAN_AFTER_S, RESCAN_AT_LATEST_S = 5.0, 60.0
"""The kernel does not see every change (such as another machine's, on a network file system, or one under a second name
of a note), so its signal is trusted for a limited time. A scan that takes long is put off."""
_RESCAN_SHARE = 200
"""A scan takes at most so small a part of the time."""

MAX_CHUNKS_EMBEDDED_BY_SEARCH = 50
"""A search embeds at most this many chunks again because a slow model was chosen. A larger index is searched by word
until 'kept index' or a background sync has embedded it."""


_META_FALLBACK = "fallback"


@dataclass
class IndexHandle:
    """Index, embedder and what belongs to both. Nothing is opened or loaded before it is needed."""

    config: Config
    workspace: Workspace
    clock: Clock
    limits: IndexLimits
    own_embedder: Embedder | None
    on_cache_loss: Callable[[StoreDamaged], None]
    notices: list[str] = field(default_factory=list)
    """Events to report to the user once."""
    opened_index: Index | None = None
    """The index if it is open; `index` opens it."""
    _chain: EmbedderChain | None = None
    _embedder: Embedder | None = None
    _vectors: Vectoriser | None = None
    """Kept between syncs, because it remembers that the embedder failed a moment ago."""

    def __post_init__(self) -> None:
        self.settings = self.config.memory_search
        self._settings_ns = self.clock.time_ns()

    # the embedder

    @property
    def chain(self) -> EmbedderChain:
        """The embedders that the settings name, or the caller's own."""
        if self._chain is None:
            policy, own = self.limits.retry_policy, self.own_embedder
            folder = self.config.models_folder
            self._chain = choose_chain(self.settings, self.config.keys, own=own, models_folder=folder, policy=policy)
            self._embedder = next(iter(self._chain.embedders), None)
        return self._chain

    @property
    def embedder(self) -> Embedder | None:
        """The embedder in use: the preferred one, or its fallback while the index holds the fallback's vectors."""
        return self._embedder if self.chain.embedders else None

    def embedder_warnings(self) -> tuple[str, ...]:
        """Return the reasons why embedders that the settings name cannot be used."""
        embedders = self.chain.embedders
        instead = f"Using {embedders[0].identity.model}" if embedders else "Searching by word only"
        return tuple(f"{instead}: {problem}" for problem in self.chain.problems)

    def note_fallback(self, reason: str) -> None:
        """Record why the index has vectors of the fallback, for processes that did not see it."""
        index = self.index()
        with index.writing():
            index.put_meta(_META_FALLBACK, reason)

    def reductions(self) -> tuple[str, ...]:
        """Return why vectors are not made as the settings say."""
        embedder, reasons = self.embedder, [*self.embedder_warnings()]
        if embedder is None or self.index().stored_identity() != embedder.identity.key:
            return tuple(reasons)
        if embedder is not self.chain.embedders[0]:
            preferred, reason = self.chain.embedders[0].identity.model, self.index().get_meta(_META_FALLBACK) or ""
            instead = f"Using {embedder.identity.model} instead of {preferred}"
            reasons.append(f"{instead}: {reason} 'kept index' tries {preferred} again." if reason else f"{instead}.")
        if (vectors := self.planner().vectors) and vectors.misfit:
            reasons.append(f"Searching by word only: {vectors.misfit}")
        if self.settings.remote.batch.enabled:
            from kept.index.batches import open_batches, read_book

            reasons.append(read_book(open_batches(self.config)).why_off(embedder.identity.key))
        return tuple(filter(None, reasons))

    def embedder_for_search(self, settings: QuerySettings) -> tuple[Embedder | None, tuple[str, ...]]:
        """Return the embedder for a query, or None, with the reasons if meaning should count and does not."""
        embedder, warnings = self.embedder, self.reductions()
        if not settings.hybrid.enabled or not self.chain.embedders:
            return None, warnings
        if embedder is None:
            notice = "the index has vectors of another model. Run 'kept index', or start this program anew."
            return None, (*warnings, f"Searching by word only: {notice}")
        if self.index().stored_identity() != embedder.identity.key:
            model = embedder.identity.model
            return None, (f"Searching by word only: the index does not hold vectors of {model} yet.",)
        vectors = self.planner().vectors
        return None if vectors and vectors.misfit else embedder, warnings

    def share_embedders(self, other: IndexHandle) -> None:
        """Use the embedders of another handle, with the models that it has loaded."""
        self._chain, self._embedder = other.chain, other.embedder
        self._settings_ns = other._settings_ns

    def use(self, embedder: Embedder | None) -> None:
        if embedder is not self.embedder:
            self._embedder = embedder
            self._vectors = None

    def use_embedder_of_index(self) -> None:
        """Of several embedders, use the one whose vectors the index holds: those of two cannot be compared.

        Use none while vectors of another model stay in the index: until 'kept index' embeds a large one again with a
        slow model, or for good if the user has switched models since this process read its settings.
        """
        if not self.chain.embedders:
            return
        used, preferred, index = self._embedder_of_index(), self.chain.embedders[0], self.index()
        if used is None and (self.own_embedder is not None or index.stored_identity() is None):
            used = preferred
        elif used is None:
            is_slow = getattr(preferred, "is_slow", False)
            is_large = is_slow and index.live.count_chunks() > MAX_CHUNKS_EMBEDDED_BY_SEARCH
            used = None if is_large or self._is_outdated() else preferred
        self.use(used)

    def _embedder_of_index(self) -> Embedder | None:
        stored = self.index().stored_identity()
        return next((embedder for embedder in self.chain.embedders if embedder.identity.key == stored), None)

    def embedders_for_sync(self) -> tuple[Embedder | None, ...]:
        """Return the embedders to sync with, in order. A newer choice of another process counts more than our own."""
        if self.chain.embedders and self._is_outdated() and self._embedder_of_index() is None:
            return (None,)
        return self.chain.embedders or (None,)

    def _is_outdated(self) -> bool:
        """Return whether the index got its embedder after this process read its settings."""
        since_ns = self.index().get_meta(META_EMBEDDER_SINCE)
        return isinstance(since_ns, int) and since_ns > self._settings_ns

    # the index

    @property
    def path(self) -> str:
        """Path of the index, open or not."""
        index = self.opened_index
        if index is not None:
            return index.path
        if self.settings.store.path:
            return os.path.abspath(os.path.expanduser(self.settings.store.path))
        return self.config.paths.find_index(self.workspace.root)

    def index(self) -> Index:
        """Return the index. It is opened again if its file was deleted meanwhile."""
        if self.opened_index is not None and not self.opened_index.is_current():
            self.close()
            self.notices.append("The index was deleted; it has been rebuilt from the notes.")
        if self.opened_index is None:
            if self.config.database:
                from kept.index.postgres.index import PostgresIndex
                from kept.storage.open import open_database

                database, name = open_database(self.config.database), f"workspace:{self.config.agent_id}"
                # It has the methods of the other one, which the tests of both show.
                self.opened_index = cast(Index, PostgresIndex(database, name, self.workspace.storage))
            elif self.settings.store.path:
                self.opened_index = Index(self.path, on_cache_loss=self.on_cache_loss)
            else:
                self.opened_index = open_index(self.config.paths, self.workspace.root, on_cache_loss=self.on_cache_loss)
        return self.opened_index

    def discard_index(self, damage: StoreDamaged) -> bool:
        """Delete the damaged index, unless another process has replaced it. Return whether it was deleted."""
        index = self.opened_index
        if index is not None and index.why_read_only:
            raise damage
        try:
            db = index.db if index else None
            return discard_if_damaged(self.path, db, self.index, wait_s=self.limits.sync_wait_s, purpose="indexing")
        finally:
            self.close()

    def retry_writable(self) -> None:
        """Close an index that could only be read: its disk may be writable now, or another process may have written."""
        if self.opened_index is not None and self.opened_index.why_read_only:
            self.close()

    def close(self) -> None:
        if self.opened_index is not None:
            self.opened_index.close()
        self.opened_index = self._vectors = None

    def forget_parent(self) -> None:
        """In a forked child, drop what belongs to the parent: the connection, a model's threads, open sockets."""
        if self.opened_index is not None:
            forget_connection(self.opened_index)
        self.opened_index = self._vectors = None
        self._chain = self._embedder = None

    # what a sync needs

    def planner(self) -> SyncPlanner:
        index, embedder = self.index(), self.embedder
        if self._vectors is None and embedder is not None:
            rest_s = self.limits.embedder_rest_s
            self._vectors = Vectoriser(index, embedder, self.settings.cache, self.clock, rest_s=rest_s)
        reader = SourceReader(self.workspace, self.config, self.clock, self.limits)
        return SyncPlanner(index, reader, self._vectors)

    def batch_runner(self, *, force: bool, in_search: bool) -> BatchRunner | None:
        """Return what runs jobs at the provider's batch API, or None if batches are not used."""
        settings = self.settings.remote.batch
        if not settings.enabled:
            return None
        from kept.embedding.remote import RemoteEmbedder
        from kept.index.batches import BatchRunner, open_batches

        api = self.embedder.batches() if isinstance(self.embedder, RemoteEmbedder) else None
        if api is None:
            return None
        book, job_texts = open_batches(self.config), self.limits.job_texts
        return BatchRunner(api, settings, book, self.clock, job_texts=job_texts, force=force, in_search=in_search)


class Freshness:
    """Tells whether a search may skip scanning the files: index and files agree until the kernel signals a change.

    The signal is set up by the second scan: a process that searches once should not pay for it. ``uses_signal`` is
    False for a caller that watches the folders itself.
    """

    def __init__(self, *, uses_signal: bool = True, endings: tuple[str, ...] = (".md",)) -> None:
        self._endings = endings
        self._uses_signal = uses_signal
        self._signal: ChangeSignal | None = None
        self._scanned_before = False
        self._scanned_at = 0.0
        self._trusted_s = RESCAN_AFTER_S
        self._transcripts: dict[str, SourceFile] = {}
        """As the last scan saw them, by path."""
        self._last: Scan | None = None
        self._changed: set[str] = set()
        """Paths of files that changed since the last sync."""
        self.in_step = False
        """True after a sync that indexed everything, until something changes."""

    def _can_name_changes(self) -> bool:
        """Return whether index and files agree except for the files in ``_changed``."""
        if not self.in_step or self._signal is None or not self._signal.available:
            return False
        self._changed |= self._signal.read_changes()
        if ANY_FILE in self._changed or time.monotonic() - self._scanned_at > self._trusted_s:
            self.in_step = False
        return self.in_step

    def is_fresh(self, growing: str | None = None) -> bool:
        """Return whether the index has what is in the files. ``growing`` is the path of a transcript that may have
        grown a little."""
        if not self._can_name_changes():
            return False
        transcript = self._transcripts.get(growing or "")
        if transcript is None or not self._changed <= {transcript.absolute}:
            return not self._changed
        try:
            return 0 <= os.path.getsize(transcript.absolute) - transcript.size < SEEN_BYTES
        except OSError:
            return False

    def note_sync(self, *, ok: bool, growing: str | None = None) -> None:
        """Note that the index has what the last scan saw, except perhaps the end of a transcript."""
        self.in_step = ok
        if growing in self._transcripts:
            self._changed.add(self._transcripts[growing].absolute)

    def scan(self, scan: Callable[[], Scan], look: Callable[[Scan, set[str]], Scan | None] | None = None) -> Scan:
        """Scan the files, and from the second time on watch their folders for changes.

        If index and files agree except for files that the kernel named, ``look`` looks at these alone. It is None
        for a caller that wants all files, and returns None if it cannot tell.
        """
        if look is not None and self._last is not None and self._can_name_changes():
            changes = look(self._last, self._changed)
            if changes is not None:
                self.in_step = False
                self._changed.clear()
                self._transcripts |= {file.path: file for file in changes.files if file.source == "sessions"}
                return changes
        if self._uses_signal and self._scanned_before and self._signal is None:
            self._signal = ChangeSignal(self._endings)
        self._scanned_before = True
        self.in_step = False  # until a sync has indexed what this scan sees
        if self._signal is not None:
            self._signal.read_changes()  # discard: the scan sees everything up to now
        self._changed.clear()
        self._scanned_at, started = time.monotonic(), time.thread_time()
        result = scan()
        took_s = time.thread_time() - started
        while self._signal is not None and self._signal.watch(result.folders):
            result = scan()  # a folder that was not watched yet may have changed while it was read
        self._trusted_s = min(max(RESCAN_AFTER_S, _RESCAN_SHARE * took_s), RESCAN_AT_LATEST_S)
        self._transcripts = {file.path: file for file in result.files if file.source == "sessions"}
        self._last = result
        return result

    def close(self) -> None:
        if self._signal is not None:
            self._signal.close()
        self._signal = None
        self.in_step = False


def drop_outdated(result: SearchResult, workspace: Workspace, config: Config) -> SearchResult:
    """Drop hits whose file is gone or has another text in these lines: for an index that may lag behind."""
    current: list[Hit] = []
    outdated: list[Dropped] = []
    for hit in result.hits:
        passages = [replace(hit, further=()), *hit.further] if hit.further else [hit]
        valid = [passage for passage in passages if _is_current(passage, workspace, config)]
        stale = (passage for passage in passages if passage not in valid)
        outdated += [Dropped(passage.citation, passage.score, "gone from disk") for passage in stale]
        current += [replace(valid[0], further=tuple(valid[1:]))] if valid else []
    if not outdated:
        return result
    reason = f"{len(outdated)} outdated {'hit was' if len(outdated) == 1 else 'hits were'} left out."
    return replace(
        result, hits=tuple(current), dropped=(*result.dropped, *outdated), degraded=(*result.degraded, reason)
    )


def _is_current(hit: Hit, workspace: Workspace, config: Config) -> bool:
    text = hit.snippet.strip("…").strip()
    try:
        if hit.source == "sessions":
            from kept.sessions.spoken import still_says
            from kept.sessions.transcript import open_transcripts

            return still_says(open_transcripts(config), hit.path, start=hit.start_line, end=hit.end_line, text=text)
        lines, max_bytes = hit.end_line - hit.start_line + 1, config.memory_search.max_file_bytes
        passage = read_passage(workspace, hit.path, start=hit.start_line, lines=lines, max_bytes=max_bytes)
    except KeptError:
        return False
    return text in passage.text
