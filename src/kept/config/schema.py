"""Every setting with its default and its bounds. The shape of config.yaml is the shape of these classes."""

from __future__ import annotations

import os
import re
from dataclasses import field, fields, replace
from typing import Literal

from kept.base.values import frozen
from kept.config.agent_paths import AgentPaths
from kept.config.gateway_settings import GatewaySettings
from kept.config.keys import ProviderKeys
from kept.config.search_settings import MemorySearchSettings
from kept.config.setting_fields import bounded, secret
from kept.errors import ConfigError

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


FILE_TOKENS = 5_000
"""Limit of each workspace file in a prompt. A small window gets less."""


def usable_tokens(window: int, compaction: CompactionSettings) -> int:
    """Return what of a window is not reserved for the answer. At most a quarter is reserved."""
    return window - min(compaction.reserve_tokens, window // 4)


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
    """Person that the home belongs to: a name, an account, `none`, or `auto`: nobody until it has been asked."""
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


AgentWrites = Literal["at_once", "listed", "proposed"]


@frozen
class ReviewSettings:
    """Review of texts that a model writes to notes."""

    agent_writes: AgentWrites = "at_once"
    """`listed`: written, and listed for review. `proposed`: written only when a person accepts it."""


@frozen
class HeartbeatSettings:
    """Regular looks at HEARTBEAT.md. Off unless an interval is set."""

    every: str | None = None
    """Interval, such as 30m or 2h."""
    active_hours: str | None = None
    """Hours of the day, such as 08:00-22:00; null is the whole day."""
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
class Config:
    home: str
    workspace: str
    agent_id: str
    agent: AgentSettings
    gateway: GatewaySettings
    keys: ProviderKeys = ProviderKeys()
    trusts_workspace: bool = True
    """True if SOUL.md and AGENTS.md of the workspace are instructions. False if only an option or the environment
    names the workspace for this run: it may be a stranger's repository."""
    conversations: Literal["agent", "claimed", "apart"] = "agent"
    """Those of the agent if the settings name the workspace, or if it is claimed for them in a home without such a one.
    Otherwise the workspace is only named for this run, and its conversations are kept apart."""
    notices: tuple[str, ...] = ()
    """Problems of the settings that did not stop loading them, such as a number outside its range."""
    run_settings: tuple[str, ...] = ()
    """Names of the settings that options of a command set for this run only. A search does not rebuild the index for
    them: the next one without them would rebuild it again."""
    models_folder: str = ""
    """Folder of the models that `kept models pull` downloads. All agents share it."""

    @property
    def memory_search(self) -> MemorySearchSettings:
        return self.agent.memory_search

    @property
    def paths(self) -> AgentPaths:
        apart_for = self.workspace if self.conversations == "apart" else ""
        return AgentPaths(os.path.join(self.home, "agents", self.agent_id), apart_for)
