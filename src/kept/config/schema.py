"""What can be set, with its default and its bounds. The shape of config.yaml is the shape of these classes."""

from __future__ import annotations

import os
from dataclasses import field
from typing import Any, Literal

from kept.config.keys import ProviderKeys
from kept.config.paths import AgentPaths
from kept.values import frozen

BuiltInProvider = Literal["auto", "local", "openai", "gemini", "voyage", "ollama", "llama_cpp", "none"]
Provider = BuiltInProvider | str
"""A provider of Kept (also written `llama-cpp` or `llamaCpp`), or one that another package adds.

The table in `kept.embedding.registry` has the same names; a test compares the two."""
Pooling = Literal["auto", "mean", "cls", "last"]
Weight = float | Literal["auto"]


def bounded(default: Any, low: float, high: float) -> Any:
    """A number that is clamped into its range, as the settings it grew from always were."""
    return field(default=default, metadata={"low": low, "high": high})


def secret(default: Any = None) -> Any:
    """A value that is never shown, not even where a whole configuration is printed."""
    return field(default=default, repr=False, metadata={"secret": True})


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
    """A model on this machine: a folder with an ONNX model, or a GGUF file. Without one, the built-in model."""

    model_path: str | None = None
    pooling: Pooling = "auto"
    """How token vectors become one; `auto` is what the model's own files declare."""
    query_prefix: str | None = None
    document_prefix: str | None = None
    """Put before every text of its kind; null is what the model's own files declare, "" is nothing."""
    max_tokens: int = bounded(512, 16, 32_768)
    """A text is cut here, or earlier where the model takes less."""


@frozen
class VectorStoreSettings:
    enabled: bool = True


@frozen
class StoreSettings:
    driver: Literal["sqlite"] = "sqlite"
    path: str | None = None
    vector: VectorStoreSettings = VectorStoreSettings()


@frozen
class ChunkingSettings:
    tokens: int = bounded(400, 16, 8000)
    overlap: int = bounded(80, 0, 4000)


@frozen
class HybridSettings:
    enabled: bool = True
    fusion: Literal["weighted", "rrf"] = "weighted"
    match: Literal["any", "all"] = "any"
    vector_weight: Weight = bounded("auto", 0, 1)
    text_weight: Weight = bounded("auto", 0, 1)
    candidate_multiplier: int = bounded(4, 1, 20)

    @property
    def fixed_vector_weight(self) -> float | None:
        """Weight that the user has set, or None for the one that was measured for the embedder."""
        return None if self.vector_weight == "auto" else float(self.vector_weight)


@frozen
class RerankSettings:
    """A model that reads the query and each of the best passages together. None unless a folder is named."""

    model_path: str | None = None
    top: int = bounded(30, 1, 200)
    """How many of the best passages it reads."""
    budget_ms: int = bounded(800, 1, 600_000)
    """How long it may take for a query; what it has not read by then stays behind what it has."""
    weight: float = bounded(0.5, 0, 1)
    """How much of the score is its judgement."""


@frozen
class QuerySettings:
    max_results: int = bounded(6, 1, 200)
    min_score: float = bounded(0.25, 0, 1)
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
    """The program that answers searches of notes where the backend is qmd."""

    command: str = "qmd"
    """Its name or path. It is not given to a shell, and takes no arguments."""
    mode: Literal["search", "vsearch", "query"] = "search"
    """By word, by vector, or both with reranking. Only the first needs no models."""
    timeout_ms: int = bounded(4_000, 100, 600_000)
    cooldown_s: float = bounded(60.0, 0, 86_400)
    """How long it is not asked after it has failed."""


@frozen
class MemorySearchSettings:
    enabled: bool = True
    sources: tuple[Literal["memory", "sessions"], ...] = ("memory", "sessions")
    extra_paths: tuple[str, ...] = ()
    max_file_bytes: int = bounded(4_000_000, 1_000, 1 << 30)
    provider: Provider = "auto"
    fallback: Provider = "none"
    model: str | None = None
    dimensions: int | None = bounded(None, 0, 100_000)
    """How long vectors are to be, for models that leave the choice. 0 is the provider's default."""
    remote: RemoteSettings = RemoteSettings()
    local: LocalModelSettings = LocalModelSettings()
    store: StoreSettings = StoreSettings()
    chunking: ChunkingSettings = ChunkingSettings()
    query: QuerySettings = QuerySettings()
    sync: SyncSettings = SyncSettings()
    cache: CacheSettings = CacheSettings()
    backend: Literal["builtin", "qmd"] = "builtin"
    qmd: QmdSettings = QmdSettings()


@frozen
class ModelSettings:
    provider: Literal["claude_cli", "anthropic", "openai", "extractive"] | None = None
    name: str | None = None
    base_url: str | None = None
    api_key: str | None = secret()
    context_window: int = bounded(200_000, 1_000, 100_000_000)
    max_output_tokens: int | None = bounded(None, 1, 10_000_000)
    """The longest answer; null is what the provider does by itself."""
    timeout_s: float = bounded(300.0, 0.1, 86_400)
    """The longest silence that is waited out."""
    daily_budget_tokens: int | None = bounded(None, 0, 1 << 50)
    """Tokens a day, in and out, of all processes together; null is no limit."""
    program: str = "claude"
    """What `claude_cli` runs."""
    tools: bool = True
    """Whether `claude_cli` is given Kept's own tools, over MCP."""


@frozen
class FlushSettings:
    enabled: bool = True
    soft_threshold_tokens: int = bounded(4_000, 0, 10_000_000)


@frozen
class CompactionSettings:
    reserve_tokens: int = bounded(20_000, 0, 10_000_000)
    keep_recent_tokens: int = bounded(20_000, 0, 10_000_000)
    memory_flush: FlushSettings = FlushSettings()


@frozen
class ContextSettings:
    """How much of the window is for what is not said in the conversation; less where the window is small."""

    file_tokens: int = bounded(5_000, 0, 10_000_000)
    files_tokens: int = bounded(15_000, 0, 10_000_000)
    recalled_tokens: int = bounded(3_000, 0, 10_000_000)


@frozen
class ToolSettings:
    max_steps: int = bounded(12, 0, 1_000)
    """How often in one turn the model may ask for tools."""


ResetMode = Literal["idle", "daily", "none"]


@frozen
class ResetOverrideSettings:
    """What is different for one channel or one kind of chat. What is not given stays as it is for all."""

    mode: ResetMode | None = None
    idle_minutes: int | None = bounded(None, 1, 10_000_000)
    daily_hour: int | None = bounded(None, 0, 23)


@frozen
class ResetSettings:
    mode: ResetMode = "idle"
    idle_minutes: int = bounded(240, 1, 10_000_000)
    daily_hour: int = bounded(4, 0, 23)
    by_channel: dict[str, ResetOverrideSettings] = field(default_factory=dict)
    by_chat_type: dict[str, ResetOverrideSettings] = field(default_factory=dict)


@frozen
class SessionSettings:
    reset: ResetSettings = ResetSettings()


@frozen
class AgentSettings:
    """What one agent works with; ``agents.list`` overrides ``agents.defaults`` key by key."""

    workspace: str | None = None
    memory_search: MemorySearchSettings = MemorySearchSettings()
    model: ModelSettings = ModelSettings()
    compaction: CompactionSettings = CompactionSettings()
    context: ContextSettings = ContextSettings()
    tools: ToolSettings = ToolSettings()
    session: SessionSettings = SessionSettings()


@frozen
class ResponderSettings:
    enabled: bool = True
    max_concurrent: int = bounded(3, 1, 100)
    debounce_ms: int = bounded(1500, 0, 600_000)
    max_history_messages: int = bounded(50, 0, 50)
    """Lines of a group since the last reply. What was said with the agent itself is measured in tokens instead."""
    session_max_age_ms: int = bounded(14_400_000, 0, 1 << 40)
    memory_index_interval_messages: int = bounded(5, 1, 100_000)
    memory_search_max_results: int = bounded(5, 0, 200)
    max_queued: int = bounded(100, 1, 100_000)
    max_queued_per_conversation: int = bounded(20, 1, 100_000)


@frozen
class HttpSettings:
    enabled: bool = True
    host: str = "127.0.0.1"
    port: int = bounded(8737, 0, 65_535)
    token: str | None = secret()
    allowed_hosts: tuple[str, ...] = ()
    """Further names that it is reached by, as in the Host header."""
    debounce_ms: int = bounded(0, 0, 600_000)
    """A program sends a message whole, so by default nothing is waited for."""
    max_body_bytes: int = bounded(1_000_000, 1_000, 100_000_000)


@frozen
class TelegramSettings:
    """There is a channel where there is a token."""

    token: str | None = secret()
    allow_users: tuple[str, ...] = ()
    """Numeric ids, or names without '@'. A name can change hands; a number cannot."""
    base_url: str | None = None
    """Another Bot API server."""
    poll_timeout_s: int = bounded(30, 0, 300)


@frozen
class McpSettings:
    token: str | None = secret()
    """What clients of `kept mcp --http` have to send."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names that it is reached by, as in the Host header."""


@frozen
class GatewaySettings:
    auto_responder: ResponderSettings = ResponderSettings()
    mcp: McpSettings = McpSettings()
    http: HttpSettings = HttpSettings()
    telegram: TelegramSettings = TelegramSettings()
    shutdown_timeout_s: float = bounded(30.0, 0, 3_600)


@frozen
class Config:
    home: str
    workspace: str
    agent_id: str
    agent: AgentSettings
    gateway: GatewaySettings
    keys: ProviderKeys = ProviderKeys()
    trusts_workspace: bool = True
    """Whether SOUL.md and AGENTS.md of the workspace are instructions. False where only an option or the environment
    names the workspace for this run: it may be somebody else's repository."""

    @property
    def memory_search(self) -> MemorySearchSettings:
        return self.agent.memory_search

    @property
    def paths(self) -> AgentPaths:
        return AgentPaths(os.path.join(self.home, "agents", self.agent_id))
