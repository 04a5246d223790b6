"""The open index of one workspace and the embedder in use. Opened when needed; the caller holds the lock."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kept.clock import Clock
from kept.config import Config
from kept.embedding.base import Embedder
from kept.embedding.registry import EmbedderChain, chain_of, choose_chain
from kept.indexing.planner import SyncPlanner
from kept.indexing.source_reader import BATCH_CHARS, BATCH_FILES, STEP_BYTES, SourceReader
from kept.indexing.vectorise import Vectoriser
from kept.sqlite import forget_connection
from kept.store.index import Index, find_index_path, open_index
from kept.store.vectors import VectorLimits
from kept.values import frozen
from kept.workspace.workspace import Workspace

if TYPE_CHECKING:
    from kept.indexing.batch_runner import BatchRunner
    from kept.net.client import RetryPolicy


@frozen
class IndexLimits:
    """Waiting times and sizes."""

    sync_wait_s: float = 60.0
    """Longest wait for another process that is indexing."""
    search_wait_s: float = 2.0
    """The same for a search, which then answers from the index as it is."""
    embedder_rest_s: float = 30.0
    """Time after a failure in which searches do not ask the embedder for missing vectors again."""
    batch_files: int = BATCH_FILES
    batch_chars: int = BATCH_CHARS
    step_bytes: int = STEP_BYTES
    job_texts: int = 10_000
    """Texts in one job of a provider's batch API. Providers allow more; a smaller job ends sooner and loses less."""
    retry_policy: RetryPolicy | None = None
    """Retries of remote embedders; None is the default."""
    vectors: VectorLimits = VectorLimits()


class IndexHandle:
    """Index, embedder and what belongs to both. Nothing is opened or loaded before it is needed."""

    def __init__(
        self, config: Config, workspace: Workspace, clock: Clock, limits: IndexLimits, own_embedder: Embedder | None
    ) -> None:
        self.config = config
        self.settings = config.memory_search
        self.workspace = workspace
        self.clock = clock
        self.limits = limits
        self.own_embedder = own_embedder
        self.notices: list[str] = []
        """Events to report to the user once."""
        self._index: Index | None = None
        self._chain: EmbedderChain | None = None
        self._embedder: Embedder | None = None
        self._vectors: Vectoriser | None = None
        self._batch_runner: BatchRunner | None = None

    # the embedder

    @property
    def chain(self) -> EmbedderChain:
        """The embedders that the settings name, or the caller's own."""
        return self._chain or self.load_embedders()

    def load_embedders(self) -> EmbedderChain:
        """Load the embedders. Raise UnknownProvider if the settings name a provider that no package has."""
        own = self.own_embedder
        policy = self.limits.retry_policy
        self._chain = chain_of(own) if own else choose_chain(self.settings, self.config.keys, policy=policy)
        self._embedder = next(iter(self._chain.embedders), None)
        return self._chain

    @property
    def embedder(self) -> Embedder | None:
        """The embedder in use: the preferred one, or its fallback while the index holds the fallback's vectors."""
        return self._embedder if self.chain.embedders else None

    def share_embedders(self, other: IndexHandle) -> None:
        """Use the embedders of another handle, with the models that it has loaded."""
        self._chain, self._embedder = other.chain, other.embedder

    def use(self, embedder: Embedder | None) -> None:
        if embedder is not self.embedder:
            self._embedder = embedder
            self._vectors = self._batch_runner = None

    def use_embedder_of_index(self) -> None:
        """Of several embedders, use the one whose vectors the index holds: those of two cannot be compared."""
        embedders = self.chain.embedders
        if len(embedders) > 1:
            stored = self.planner().stored_identity()
            self.use(next((embedder for embedder in embedders if embedder.identity.key == stored), embedders[0]))

    # the index

    @property
    def path(self) -> str:
        """Path of the index, open or not."""
        index = self._index
        if index is not None:
            return index.path
        if self.settings.store.path:
            return os.path.abspath(os.path.expanduser(self.settings.store.path))
        return find_index_path(self.config.paths, self.workspace.root)

    @property
    def opened_index(self) -> Index | None:
        return self._index

    def index(self) -> Index:
        """Return the index. It is opened again if its file was deleted meanwhile."""
        if self._index is not None and not self._index.is_current_file():
            self.close()
            self.notices.append("The index was deleted; it has been rebuilt from the notes.")
        if self._index is None:
            if self.settings.store.path:
                self._index = Index(self.path, self.limits.vectors)
            else:
                self._index = open_index(self.config.paths, self.workspace.root, self.limits.vectors)
        return self._index

    def close(self) -> None:
        if self._index is not None:
            self._index.close()
        self._index = self._vectors = self._batch_runner = None

    def forget_parent(self) -> None:
        """In a forked child, drop what belongs to the parent: the connection, a model's threads, open sockets."""
        if self._index is not None:
            forget_connection(self._index)
        self._index = self._vectors = self._batch_runner = None
        self._chain = self._embedder = None

    # what a sync needs

    def planner(self) -> SyncPlanner:
        reader = SourceReader(
            self.workspace,
            self.clock,
            max_file_bytes=self.settings.max_file_bytes,
            batch_files=self.limits.batch_files,
            batch_chars=self.limits.batch_chars,
            step_bytes=self.limits.step_bytes,
        )
        return SyncPlanner(
            self.index(), self.workspace, self.config.paths.sessions, self.settings, reader, self._vectoriser()
        )

    def _vectoriser(self) -> Vectoriser | None:
        """Return the embedder's vectors. Kept, because it remembers that the embedder failed a moment ago."""
        index, embedder = self.index(), self.embedder
        if self._vectors is None and embedder is not None:
            rest_s = self.limits.embedder_rest_s
            self._vectors = Vectoriser(index, embedder, self.settings.cache, self.clock, rest_s=rest_s)
        return self._vectors

    def batch_runner(self) -> BatchRunner | None:
        """Return what runs jobs at the provider's batch API, or None if batches are not used."""
        settings = self.settings.remote.batch
        if self._batch_runner is None and settings.enabled:
            from kept.indexing.batch_runner import make_batch_runner

            self._batch_runner = make_batch_runner(
                self.embedder,
                settings,
                self.config.paths.batches,
                self.workspace.root,
                self.clock,
                job_texts=self.limits.job_texts,
            )
        return self._batch_runner
