"""Settings of the memory: providers, chunks, the index, queries and sync."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Literal

from kept.base.values import frozen
from kept.config.setting_fields import bounded, secret
from kept.errors import ConfigError

Provider = Literal["auto", "local", "openai", "gemini", "voyage", "ollama", "llama_cpp", "none"]
"""An embedding provider (also written `llama-cpp` or `llamaCpp`). The table in `kept.embedding.registry` has the
same names; a test compares the two."""
Pooling = Literal["auto", "mean", "cls", "last"]
Weight = float | Literal["auto"]
NOTE_EXTENSIONS = (".markdown", ".mdx", ".txt", ".org", ".rst", ".adoc")
"""Endings of plain text that may be named in `memory_search.extensions`."""


@frozen
class BatchSettings:
    enabled: bool = False
    wait: bool = True
    concurrency: int = bounded(2, 1, 16)
    poll_interval_ms: int = bounded(2000, 100, 600_000)
    timeout_minutes: int = bounded(60, 1, 1440)


@frozen
class RemoteSettings:
    base_url: str | None = None
    api_key: str | None = secret()
    headers: dict[str, str] = field(default_factory=dict, repr=False, metadata={"secret": True})
    batch: BatchSettings = BatchSettings()


@frozen
class LocalModelSettings:
    """A model of the user: a GGUF file. Without one, the built-in model, or one of `kept models`."""

    model_path: str | None = None
    pooling: Pooling = "auto"
    """Method that reduces the token vectors to one; `auto` is the one that the file declares."""
    query_prefix: str | None = None
    document_prefix: str | None = None
    """Put before every text of its kind."""
    max_tokens: int = bounded(512, 16, 32_768)
    """Longer texts are cut here, or earlier if the model takes less."""


@frozen
class VectorStoreSettings:
    enabled: bool = True


@frozen
class StoreSettings:
    path: str | None = None
    """File of the index."""
    vector: VectorStoreSettings = VectorStoreSettings()


@frozen
class ChunkingSettings:
    tokens: int = bounded(400, 16, 8000)
    overlap: int = bounded(80, 0, 4000)


@frozen
class HybridSettings:
    enabled: bool = True
    vector_weight: Weight = bounded("auto", 0, 1)
    text_weight: Weight = bounded("auto", 0, 1)
    candidate_multiplier: int = bounded(4, 1, 20)

    def after_build(self) -> HybridSettings:
        """Return settings whose weights sum to 1. If only one weight is set, the other is the remainder."""
        vector, text = self.vector_weight, self.text_weight
        if isinstance(vector, str) and isinstance(text, str):
            return self
        vector = 1 - float(text) if isinstance(vector, str) else float(vector)
        text = 1 - vector if isinstance(text, str) else float(text)
        total = vector + text
        if total <= 0:
            return replace(self, vector_weight="auto", text_weight="auto")
        return replace(self, vector_weight=vector / total, text_weight=text / total)


@frozen
class RerankSettings:
    """A model that reads the query and each of the best passages together. Off unless a folder is named."""

    model_path: str | None = None


@frozen
class QuerySettings:
    max_results: int = bounded(6, 1, 200)
    min_score: float = bounded(0.0, 0, 1)
    hybrid: HybridSettings = HybridSettings()
    rerank: RerankSettings = RerankSettings()


@frozen
class SessionSyncSettings:
    delta_bytes: int = bounded(100_000, 0, 1 << 40)
    delta_messages: int = bounded(50, 0, 1 << 30)


@frozen
class SyncSettings:
    on_session_start: bool = True
    on_search: bool = True
    watch: bool = True
    watch_debounce_ms: int = bounded(1500, 0, 600_000)
    interval_minutes: int = bounded(0, 0, 100_000)
    sessions: SessionSyncSettings = SessionSyncSettings()


@frozen
class CacheSettings:
    enabled: bool = True
    max_entries: int = bounded(50_000, 0, 1 << 30)


@frozen
class QmdSettings:
    """The program that searches the notes if the backend is qmd."""

    command: str = "qmd"
    """Name or path of the program. It is run without a shell and without further arguments."""
    mode: Literal["search", "vsearch", "query"] = "search"
    """Search by word, by vector, or by both with reranking. Only the first works without models."""


@frozen
class MemorySearchSettings:
    enabled: bool = True
    sources: tuple[Literal["memory", "sessions"], ...] = ("memory", "sessions")
    extra_paths: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    """Endings of further files that are notes, besides `.md`."""
    max_file_bytes: int = bounded(4_000_000, 1_000, 1 << 30)
    provider: Provider = "auto"
    fallback: Provider = "none"
    model: str | None = None
    dimensions: int | None = bounded(None, 0, 100_000)
    """Length of the vectors, for models with a choice. 0 is the provider's default."""
    remote: RemoteSettings = RemoteSettings()
    local: LocalModelSettings = LocalModelSettings()
    store: StoreSettings = StoreSettings()
    chunking: ChunkingSettings = ChunkingSettings()
    query: QuerySettings = QuerySettings()
    sync: SyncSettings = SyncSettings()
    cache: CacheSettings = CacheSettings()
    citations: Literal["auto", "on", "off"] = "auto"
    """Whether replies name the notes they come from; `auto` is on in private conversations and off in groups."""
    backend: Literal["builtin", "qmd"] = "builtin"
    qmd: QmdSettings = QmdSettings()

    def after_build(self) -> MemorySearchSettings:
        """Return settings whose extensions are in lower case, each with its dot."""
        if not self.extensions:
            return self
        endings = tuple(dict.fromkeys(f".{ending.lower().lstrip('.')}" for ending in self.extensions))
        for ending in endings:
            if ending not in (".md", *NOTE_EXTENSIONS):
                raise ConfigError(
                    f"memory_search.extensions: Kept does not read '{ending}' files.",
                    hint=f"Choose from: {', '.join(NOTE_EXTENSIONS)}.",
                )
        return replace(self, extensions=tuple(ending for ending in endings if ending != ".md"))
