"""Every setting with its default and its bounds. The shape of config.yaml is the shape of these classes."""

from __future__ import annotations

import re
from dataclasses import field, fields, replace
from typing import Literal

from kept.base.values import frozen
from kept.config.gateway_settings import GatewaySettings
from kept.config.read import bounded, secret
from kept.errors import ConfigError

# the memory: providers, chunks, the index, queries and sync

Provider = Literal["auto", "local", "openai", "gemini", "voyage", "ollama", "llama_cpp", "none"]
"""An embedding provider (also written `llama-cpp` or `llamaCpp`). The table in `kept.embedding.registry` has the
same names; a test compares the two."""
Pooling = Literal["auto", "mean", "cls", "last"]
Weight = Literal["auto"] | float
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
    """Replies name the notes they come from; `auto` is on in private conversations and off in groups."""
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


# the agent

WorkspaceLayout = Literal["kept", "vault"]
ModelProvider = Literal["claude_cli", "anthropic", "openai", "extractive"]
MediaFamily = Literal["image", "pdf"]
ThinkingLevel = Literal["off", "low", "medium", "high"]


@frozen
class ModelChoiceSettings:
    """Another model. What is left out is as in `model`, unless the provider or the address differs."""

    provider: ModelProvider | None = None
    name: str | None = None
    base_url: str | None = None
    api_key: str | None = secret()
    context_window: int | None = bounded(None, 1_000, 100_000_000)
    max_output_tokens: int | None = bounded(None, 1, 10_000_000)
    timeout_s: float | None = bounded(None, 0.1, 86_400)


@frozen
class ModelPriceSettings:
    """Price of a model, in US dollars per million tokens."""

    input: float = bounded(0.0, 0, 1_000_000)
    output: float = bounded(0.0, 0, 1_000_000)
    cached: float | None = bounded(None, 0, 1_000_000)
    """Price of input that the provider had cached; null is the price of input."""


@frozen
class ModelSettings:
    provider: ModelProvider | None = None
    name: str | None = None
    base_url: str | None = None
    api_key: str | None = secret()
    context_window: int = bounded(200_000, 1_000, 100_000_000)
    max_output_tokens: int | None = bounded(None, 1, 10_000_000)
    """Longest answer; null is the provider's default."""
    timeout_s: float = bounded(300.0, 0.1, 86_400)
    """Idle timeout: the longest wait for the next part of an answer."""
    daily_budget_tokens: int | None = bounded(None, 0, 1 << 50)
    """Tokens per day, input and output, of all processes together; null is unlimited."""
    program: str = "claude"
    """Program that `claude_cli` runs."""
    tools: bool = True
    """True to offer Kept's tools to `claude_cli`, over MCP."""
    media: tuple[MediaFamily, ...] | None = None
    """Files that the model is handed: `image`, `pdf`, both or none. Null hands both to the providers' own servers."""
    thinking: ThinkingLevel | None = None
    """How much the model thinks before it answers, unless a session says otherwise; null is the model's default."""
    choices: dict[str, ModelChoiceSettings] = field(default_factory=dict)
    """Further models that a session may choose with /model, by a name of your choice."""
    background_choice: str | None = None
    """The one of `choices` that writes flushes and summaries; null is the same model as for replies."""
    prices: dict[str, ModelPriceSettings] = field(default_factory=dict)
    """Prices by the name of a model, for `kept status`."""

    def after_build(self) -> ModelSettings:
        if self.background_choice is not None and self.background_choice not in self.choices:
            raise ConfigError(
                f"model.background_choice: '{self.background_choice}' is not one of model.choices.",
                hint=f"There are: {', '.join(self.choices) or 'none'}.",
            )
        return self

    def choose(self, choice: ModelChoiceSettings) -> ModelSettings:
        """Return the settings of another model. A key goes only to the provider and the address that it is for."""
        is_same_place = choice.provider in (None, self.provider) and choice.base_url in (None, self.base_url)
        values = {spec.name: value for spec in fields(choice) if (value := getattr(choice, spec.name)) is not None}
        if is_same_place:
            return replace(self, **values)
        base = ModelSettings(provider=self.provider, timeout_s=self.timeout_s, program=self.program, tools=self.tools)
        return replace(base, daily_budget_tokens=self.daily_budget_tokens, **values)


@frozen
class FlushSettings:
    enabled: bool = True
    soft_threshold_tokens: int = bounded(4_000, 0, 10_000_000)
    at_session_end: bool = True
    """True to flush what is new also when a session ends."""


@frozen
class CompactionSettings:
    reserve_tokens: int = bounded(20_000, 0, 10_000_000)
    keep_recent_tokens: int = bounded(20_000, 0, 10_000_000)
    memory_flush: FlushSettings = FlushSettings()


@frozen
class ToolSettings:
    max_steps: int = bounded(12, 0, 1_000)
    """Number of times per turn that the model may call tools."""


ToolPermission = Literal["allow", "ask", "deny"]


@frozen
class McpServerSettings:
    """An MCP server whose tools the agent's model may call: a program that is started, or an address."""

    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict, repr=False, metadata={"secret": True})
    """Environment of the program, besides PATH, HOME and the like."""
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = field(default_factory=dict, repr=False, metadata={"secret": True})
    permission: ToolPermission = "ask"
    """For all tools of the server that `tools` does not name."""
    tools: dict[str, ToolPermission] = field(default_factory=dict)
    timeout_s: float = bounded(60.0, 0.1, 86_400)

    def after_build(self) -> McpServerSettings:
        if bool(self.command) == bool(self.url):
            raise ConfigError(
                "mcp_servers: a server needs a command or a url, and not both.",
                hint="For example command: npx, args: [-y, some-server].",
            )
        if self.url and not self.url.startswith(("https://", "http://")):
            raise ConfigError("mcp_servers: a url begins with https:// or http://.")
        return self


ResetMode = Literal["idle", "daily", "none"]


@frozen
class ResetOverrideSettings:
    """Deviations for one channel or one kind of chat. A setting left out is as for all."""

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


SessionScope = Literal["per_person", "per_channel", "shared", "per_peer", "per_channel_peer", "main"]
_SCOPE_ALIASES: dict[str, SessionScope] = {
    "per_peer": "per_person",
    "per_channel_peer": "per_channel",
    "main": "shared",
}
_PERSON_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"


@frozen
class SessionSettings:
    """Conversations: which messages share one, whose they are, and when a new one starts."""

    scope: SessionScope = "per_person"
    """`per_person`: one conversation for all accounts of a person. `per_channel`: one on each channel. `shared`: one
    for everybody, and nothing in it is private. OpenClaw's names for these are aliases."""
    identity_links: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Accounts of each person, such as `ada: [telegram:5054, http:ada]`."""
    owner: str = "auto"
    """Person that the home belongs to: a name, an account, `none`, or `auto`: nobody, and Kept says so."""
    reset: ResetSettings = ResetSettings()

    def after_build(self) -> SessionSettings:
        """Return settings without aliases, and with names in lower case. Raise ConfigError for a contradiction."""
        persons: dict[str, str] = {}
        for name, accounts in self.identity_links.items():
            if not re.fullmatch(_PERSON_NAME, name):
                hint = "Use up to 64 letters, digits, '-', '_' and '.'."
                raise ConfigError(f"session.identity_links: '{name}' cannot be the name of a person.", hint=hint)
            for account in accounts:
                channel, colon, user = account.partition(":")
                if not (channel and colon and user):
                    raise ConfigError(
                        f"session.identity_links.{name}: '{account}' is not an account.",
                        hint="Write it as CHANNEL:USER, such as telegram:5054.",
                    )
                if persons.setdefault(account, name.lower()) != name.lower():
                    raise ConfigError(
                        f"session.identity_links: {account} belongs to {persons[account]} and to {name}.",
                        hint="Leave it with one of them.",
                    )
        links: dict[str, tuple[str, ...]] = {}
        for name, accounts in self.identity_links.items():
            links[name.lower()] = (*links.get(name.lower(), ()), *accounts)
        return replace(self, scope=_SCOPE_ALIASES.get(self.scope, self.scope), identity_links=links)


@frozen
class HistorySettings:
    """History of the notes, in `.kept/history` of the workspace."""

    enabled: bool = True


AgentWrites = Literal["at_once", "proposed"]


@frozen
class ReviewSettings:
    """Review of texts that a model writes to notes."""

    agent_writes: AgentWrites = "at_once"
    """`proposed`: written only when a person accepts it."""


@frozen
class HeartbeatSettings:
    """Regular looks at HEARTBEAT.md. Off unless it is set how often."""

    every: str | None = None
    """Interval, such as 30m or 2h, or a rule as of a schedule, such as 0,30 8-21 * * *."""
    target: str | None = None
    """Conversation that is told what needs attention, such as telegram:5054; null tells nobody."""


@frozen
class AgentSettings:
    """Settings of one agent. An entry of ``agents.list`` overrides ``agents.defaults`` key by key."""

    workspace: str | None = None
    workspace_layout: WorkspaceLayout = "kept"
    """Which files of the workspace are notes: `kept` is MEMORY.md, USER.md, SOUL.md, AGENTS.md and memory/; `vault` is
    all Markdown in all folders, with daily notes where the vault keeps them."""
    memory_search: MemorySearchSettings = MemorySearchSettings()
    model: ModelSettings = ModelSettings()
    compaction: CompactionSettings = CompactionSettings()
    tools: ToolSettings = ToolSettings()
    mcp_servers: dict[str, McpServerSettings] = field(default_factory=dict)
    """MCP servers whose tools the model may call, by a name of your choice."""
    session: SessionSettings = SessionSettings()
    history: HistorySettings = HistorySettings()
    review: ReviewSettings = ReviewSettings()
    heartbeat: HeartbeatSettings = HeartbeatSettings()


@frozen
class Settings(AgentSettings):
    """All settings, by the names that `kept config` uses."""

    gateway: GatewaySettings = GatewaySettings()


@frozen
class ListedAgentSettings(AgentSettings):
    """An entry of ``agents.list``."""

    id: str = ""


@frozen
class AgentsSettings:
    defaults: AgentSettings = AgentSettings()
    list: tuple[ListedAgentSettings, ...] | None = None


@frozen
class FileSettings:
    """The shape of config.yaml."""

    agents: AgentsSettings = AgentsSettings()
    gateway: GatewaySettings = GatewaySettings()
