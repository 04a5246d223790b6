"""What can be set, with its default and its bounds. The shape of config.yaml is the shape of these classes."""

from dataclasses import dataclass, field
from typing import Any, Literal

from kept.config.group import Group

Provider = Literal["auto", "local", "openai", "gemini", "voyage", "ollama", "llama_cpp", "none"]
Weight = float | Literal["auto"]


def bounded(default: Any, low: float, high: float) -> Any:
    """A number that is clamped into its range, as the settings it grew from always were."""
    return field(default=default, metadata={"low": low, "high": high})


def secret(default: Any = None) -> Any:
    """A value that is never shown."""
    return field(default=default, metadata={"secret": True})


class RemoteBatch(Group):
    enabled: bool = False
    wait: bool = True
    concurrency: int = bounded(2, 1, 16)
    poll_interval_ms: int = bounded(2000, 100, 600_000)
    timeout_minutes: int = bounded(60, 1, 1440)


class Remote(Group):
    base_url: str | None = None
    api_key: str | None = secret()
    headers: dict[str, str] = field(default_factory=dict, metadata={"secret": True})
    batch: RemoteBatch = RemoteBatch()


class Local(Group):
    model_path: str | None = None


class VectorStore(Group):
    enabled: bool = True


class Store(Group):
    driver: Literal["sqlite"] = "sqlite"
    path: str | None = None
    vector: VectorStore = VectorStore()


class Chunking(Group):
    tokens: int = bounded(400, 16, 8000)
    overlap: int = bounded(80, 0, 4000)


class Hybrid(Group):
    enabled: bool = True
    fusion: Literal["weighted", "rrf"] = "weighted"
    match: Literal["any", "all"] = "any"
    vector_weight: Weight = bounded("auto", 0, 1)
    text_weight: Weight = bounded("auto", 0, 1)
    candidate_multiplier: int = bounded(4, 1, 20)


class Query(Group):
    max_results: int = bounded(6, 1, 200)
    min_score: float = bounded(0.3, 0, 1)
    hybrid: Hybrid = Hybrid()


class SyncSessions(Group):
    delta_bytes: int = bounded(100_000, 0, 1 << 40)
    delta_messages: int = bounded(50, 0, 1 << 30)


class Sync(Group):
    on_session_start: bool = True
    on_search: bool = True
    watch: bool = True
    watch_debounce_ms: int = bounded(1500, 0, 600_000)
    interval_minutes: int = bounded(0, 0, 100_000)
    sessions: SyncSessions = SyncSessions()


class Cache(Group):
    enabled: bool = True
    max_entries: int = bounded(50_000, 0, 1 << 30)


class MemorySearch(Group):
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


class Model(Group):
    provider: Literal["claude_cli", "anthropic", "openai", "extractive"] | None = None
    name: str | None = None
    base_url: str | None = None
    api_key: str | None = secret()
    context_window: int = bounded(200_000, 1_000, 100_000_000)
    timeout_s: float = bounded(300, 1, 86_400)


class MemoryFlush(Group):
    enabled: bool = True
    soft_threshold_tokens: int = bounded(4_000, 0, 10_000_000)


class Compaction(Group):
    reserve_tokens: int = bounded(20_000, 0, 10_000_000)
    keep_recent_tokens: int = bounded(20_000, 0, 10_000_000)
    memory_flush: MemoryFlush = MemoryFlush()


class Reset(Group):
    mode: Literal["idle", "daily", "none"] = "idle"
    idle_minutes: int = bounded(240, 1, 10_000_000)


class Session(Group):
    reset: Reset = Reset()


class AgentConfig(Group):
    """What one agent works with; ``agents.list`` overrides ``agents.defaults`` key by key."""

    workspace: str | None = None
    memory_search: MemorySearch = MemorySearch()
    model: Model = Model()
    compaction: Compaction = Compaction()
    session: Session = Session()


class AutoResponder(Group):
    enabled: bool = True
    max_concurrent: int = bounded(3, 1, 100)
    debounce_ms: int = bounded(1500, 0, 600_000)
    max_history_messages: int = bounded(20, 0, 10_000)
    session_max_age_ms: int = bounded(14_400_000, 0, 1 << 40)
    memory_index_interval_messages: int = bounded(5, 1, 100_000)
    memory_search_max_results: int = bounded(5, 0, 200)


class Gateway(Group):
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
