"""Where everything is wired together for the programs that people run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from kept.clock import Clock, SystemClock
from kept.config import Config, LoadedConfig, RemoteSettings
from kept.config.layers import settings_of
from kept.errors import EmbeddingError
from kept.values import frozen

if TYPE_CHECKING:
    from kept.embedding.base import Embedder
    from kept.llm.base import ChatModel
    from kept.llm.claude_cli import KeptServer
    from kept.memory import Memory
    from kept.responder.dispatcher import Dispatcher
    from kept.sessions.store import SessionStore
    from kept.tools.toolbox import Toolbox


def open_memory(loaded: LoadedConfig) -> Memory:
    """The memory that a configuration describes. Its workspace has to be there."""
    from kept.memory import Memory
    from kept.workspace.paths import Workspace

    Workspace.at(loaded.config.workspace).require()
    return Memory(loaded.config)


@frozen
class ProviderInfo:
    name: str
    available: bool
    in_use: bool
    model: str | None
    dims: int | None
    note: str
    """How it is enabled where it is not, and what it is where that is not plain."""


def list_providers(config: Config) -> list[ProviderInfo]:
    """Every provider there is. None of them is asked anything."""
    from kept.embedding.registry import PROVIDERS, added_providers

    chosen = "local" if config.memory_search.provider == "auto" else config.memory_search.provider
    names = [*(name for name in PROVIDERS if name != "auto"), *added_providers()]
    return [_describe(config, name, in_use=name == chosen) for name in names]


def _describe(config: Config, name: str, *, in_use: bool) -> ProviderInfo:
    from kept.embedding.registry import PROVIDERS, default_model

    try:
        embedder = open_embedder(config, name)
    except EmbeddingError as exc:
        return ProviderInfo(name, False, in_use, *default_model(name), exc.message)
    identity = embedder.identity if embedder else None
    note = PROVIDERS[name].note if name in PROVIDERS else ""
    return ProviderInfo(
        name=name,
        available=True,
        in_use=in_use,
        model=identity.model if identity else None,
        dims=(identity.dims or None) if identity else None,
        note=note or ("" if in_use else f"set memory_search.provider to {name}"),
    )


def open_embedder(config: Config, name: str) -> Embedder | None:
    """The embedder of that name. Model, endpoint and key that are set belong to the provider that is set."""
    from kept.embedding.registry import make_embedder

    settings = config.memory_search
    if name not in (settings.provider, "local"):
        settings = replace(settings, model=None, dimensions=None, remote=RemoteSettings())
    return make_embedder(name, settings, config.keys)


def open_toolbox(loaded: LoadedConfig) -> Toolbox:
    """The tools for a model. Where there is no workspace yet, each of them says so."""
    from kept.memory import Memory
    from kept.tools.toolbox import Toolbox

    return Toolbox(Memory(loaded.config), open_sessions(loaded))


def open_sessions(loaded: LoadedConfig) -> SessionStore:
    """The conversations of the agent that a configuration describes. They need no workspace."""
    from kept.sessions.store import SessionStore

    return SessionStore(loaded.config)


def open_dispatcher(
    memory: Memory, sessions: SessionStore, model: ChatModel, *, more_status: Callable[[], list[str]] = list
) -> Dispatcher:
    """Return a dispatcher for an agent and the commands. ``more_status`` returns further lines for /status."""
    from kept.agent.agent import Agent
    from kept.responder.commands import Commands
    from kept.responder.dispatcher import Dispatcher, IndexCadence

    agent = Agent(memory, sessions, model)
    commands = Commands(agent, memory, sessions, more_status=more_status)
    every = memory.config.gateway.auto_responder.memory_index_interval_messages
    return Dispatcher(agent, sessions, commands, cadence=IndexCadence(memory, every_messages=every))


def open_model(loaded: LoadedConfig, *, clock: Clock | None = None) -> ChatModel:
    """The chat model that a configuration describes, counted and within its budget."""
    from kept.ledger import open_model_ledger
    from kept.llm.metered import MeteredChat
    from kept.llm.registry import make_model

    config = loaded.config
    model = make_model(config.agent.model, config.keys, kept=_kept_server(loaded))
    if not model.writes:
        return model  # it costs nothing
    ledger = open_model_ledger(config, clock or SystemClock())
    return MeteredChat(model, ledger, budget_tokens=config.agent.model.daily_budget_tokens)


def _kept_server(loaded: LoadedConfig) -> KeptServer:
    """`kept mcp` on the same memory: with the same files, and whatever was set for this run only."""
    from kept.llm.claude_cli import KeptServer

    config = loaded.config
    place = ("--home", config.home, "--workspace", config.workspace, "--agent", config.agent_id)
    file = next((("--config", path) for kind, path, is_there in loaded.files if kind == "user" and is_there), ())
    start = (sys.executable, "-c", "from kept.cli import main; main()")
    return KeptServer((*start, *place, *file, "mcp"), {**_set_for_this_run(loaded), **config.keys.as_environment()})


def _set_for_this_run(loaded: LoadedConfig) -> dict[str, str]:
    """Settings from the environment and the command line, as variables. The tools need those of the memory alone."""
    set_here = {name for name, layer in loaded.origins.items() if layer in ("environment", "flags")}
    return {
        f"KEPT_{name.upper().replace('.', '__')}": str(value)
        for name, value, _ in settings_of(loaded.config.agent)
        if name in set_here and name.startswith("memory_search.") and isinstance(value, str | int | float)
    }
