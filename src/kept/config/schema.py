"""What can be set, with its default and its bounds. The shape of config.yaml is the shape of these classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Provider = Literal["auto", "local", "openai", "gemini", "voyage", "ollama", "llama_cpp", "none"]
Weight = float | Literal["auto"]


def bounded(default: Any, low: float, high: float) -> Any:
    """A number that is clamped into its range, as the settings it grew from always were."""
    return field(default=default, metadata={"low": low, "high": high})


def secret(default: Any = None) -> Any:
    """A value that is never shown."""
    return field(default=default, metadata={"secret": True})


@dataclass(frozen=True)
class RemoteBatch:
    enabled: bool = False
    wait: bool = True
    concurrency: int = bounded(2, 1, 16)
    poll_interval_ms: int = bounded(2000, 100, 600_000)
    timeout_minutes: int = bounded(60, 1, 1440)


@dataclass(frozen=True)
class Remote:
    base_url: str | None = None
    api_key: str | None = secret()
    headers: dict[str, str] = field(default_factory=dict, metadata={"secret": True})
    batch: RemoteBatch = RemoteBatch()


@dataclass(frozen=True)
class Local:
    model_path: str | None = None


@dataclass(frozen=True)
class VectorStore:
    enabled: bool = True


@dataclass(frozen=True)
class Store:
    driver: Literal["sqlite"] = "sqlite"
    path: str | None = None
    vector: VectorStore = VectorStore()


@dataclass(frozen=True)
class Chunking:
    tokens: int = bounded(400, 16, 8000)
    overlap: int = bounded(80, 0, 4000)


@dataclass(frozen=True)
class Hybrid:
    enabled: bool = True
    fusion: Literal["weighted", "rrf"] = "weighted"
    match: Literal["any", "all"] = "any"
    vector_weight: Weight = bounded("auto", 0, 1)
    text_weight: Weight = bounded("auto", 0, 1)
    candidate_multiplier: int = bounded(4, 1, 20)


@dataclass(frozen=True)
class Query:
    max_results: int = bounded(6, 1, 200)
    min_score: float = bounded(0.3, 0, 1)
    hybrid: Hybrid = Hybrid()


@dataclass(frozen=True)
class SyncSessions:
    delta_bytes: int = bounded(100_000, 0, 1 << 40)
    delta_messages: int = bounded(50, 0, 1 << 30)


@dataclass(frozen=True)
class Sync:
    on_session_start: bool = True
    on_search: bool = True
    watch: bool = True
    watch_debounce_ms: int = bounded(1500, 0, 600_000)
    interval_minutes: int = bounded(0, 0, 100_000)
    sessions: SyncSessions = SyncSessions()


@dataclass(frozen=True)
class Cache:
    enabled: bool = True
    max_entries: int = bounded(50_000, 0, 1 << 30)


@dataclass(frozen=True)
class MemorySearch:
    enabled: bool = True
    sources: tuple[Literal["memory", "sessions"], ...] = ("memory", "sessions")
    extra_paths: tuple[str, ...] = ()
    max_file_bytes: int = bounded(4_000_000, 1_000, 1 << 30)
    provider: Provider = "auto"
    fallback: Provider = "none"
    model: str | None = None
    remote: Remote = Remote()
    local: Local = Local()
    store: Store = Store()
    chunking: Chunking = Chunking()
    query: Query = Query()
    sync: Sync = Sync()
    cache: Cache = Cache()
    backend: Literal["builtin", "qmd"] = "builtin"


@dataclass(frozen=True)
class Model:
    provider: Literal["claude_cli", "anthropic", "openai", "extractive"] | None = None
    name: str | None = None
    base_url: str | None = None
    api_key: str | None = secret()
    context_window: int = bounded(200_000, 1_000, 100_000_000)
    timeout_s: float = bounded(300.0, 1, 86_400)


@dataclass(frozen=True)
class MemoryFlush:
    enabled: bool = True
    soft_threshold_tokens: int = bounded(4_000, 0, 10_000_000)


@dataclass(frozen=True)
class Compaction:
    reserve_tokens: int = bounded(20_000, 0, 10_000_000)
    keep_recent_tokens: int = bounded(20_000, 0, 10_000_000)
    memory_flush: MemoryFlush = MemoryFlush()


ResetMode = Literal["idle", "daily", "none"]


@dataclass(frozen=True)
class ResetOverride:
    """What is different for one channel or one kind of chat. What is not given stays as it is for all."""

    mode: ResetMode | None = None
    idle_minutes: int | None = bounded(None, 1, 10_000_000)
    daily_hour: int | None = bounded(None, 0, 23)


@dataclass(frozen=True)
class Reset:
    mode: ResetMode = "idle"
    idle_minutes: int = bounded(240, 1, 10_000_000)
    daily_hour: int = bounded(4, 0, 23)
    by_channel: dict[str, ResetOverride] = field(default_factory=dict)
    by_chat_type: dict[str, ResetOverride] = field(default_factory=dict)


@dataclass(frozen=True)
class Session:
    reset: Reset = Reset()


@dataclass(frozen=True)
class AgentConfig:
    """What one agent works with; ``agents.list`` overrides ``agents.defaults`` key by key."""

    workspace: str | None = None
    memory_search: MemorySearch = MemorySearch()
    model: Model = Model()
    compaction: Compaction = Compaction()
    session: Session = Session()


@dataclass(frozen=True)
class AutoResponder:
    enabled: bool = True
    max_concurrent: int = bounded(3, 1, 100)
    debounce_ms: int = bounded(1500, 0, 600_000)
    max_history_messages: int = bounded(20, 0, 10_000)
    session_max_age_ms: int = bounded(14_400_000, 0, 1 << 40)
    memory_index_interval_messages: int = bounded(5, 1, 100_000)
    memory_search_max_results: int = bounded(5, 0, 200)


@dataclass(frozen=True)
class Gateway:
    auto_responder: AutoResponder = AutoResponder()


@dataclass(frozen=True)
class Config:
    home: str
    workspace: str
    agent_id: str
    agent: AgentConfig
    gateway: Gateway

    @property
    def memory_search(self) -> MemorySearch:
        return self.agent.memory_search
