"""Composition root: opens the objects that a configuration describes, for the command line, servers and channels.

Also the command that starts `kept` on the same memory. `client_command` goes into the settings of another program: only
what differs from the defaults, as arguments, since such a program passes little of its environment on. A child process
of this run gets its settings too, by `child_environment`.
"""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from kept.base.clock import Clock, SystemClock
from kept.base.remote_errors import EmbeddingError
from kept.base.values import frozen
from kept.config import Config, LoadedConfig
from kept.config.schema import RemoteSettings

if TYPE_CHECKING:
    from kept.agent.tools.toolbox import Toolbox
    from kept.config.schema import ModelSettings
    from kept.gateway.dispatcher import Dispatcher
    from kept.memory import Memory
    from kept.models.base import ChatModel
    from kept.search.service import IndexService
    from kept.sessions.store import SessionStore


def open_index_service(config: Config) -> IndexService:
    """Return the index of this configuration. Raise WorkspaceError if its workspace does not exist."""
    from kept.notes.workspace import Workspace
    from kept.search.service import IndexService

    workspace = Workspace.of(config)
    workspace.require()
    return IndexService(config, workspace, SystemClock(), uses_signal=False)


@frozen
class ProviderInfo:
    name: str
    available: bool
    in_use: bool
    model: str | None
    dims: int | None
    note: str
    """How to enable it, or a remark about it."""


def list_providers(config: Config) -> list[ProviderInfo]:
    """Return every embedding provider. No text is sent; a server of the user's own is asked whether it runs."""
    from kept.embedding.registry import PROVIDERS

    chosen = "local" if config.memory_search.provider == "auto" else config.memory_search.provider
    return [_describe(config, name, in_use=name == chosen) for name in PROVIDERS if name != "auto"]


def _describe(config: Config, name: str, *, in_use: bool) -> ProviderInfo:
    from kept.embedding.registry import PROVIDERS, default_model, make_embedder
    from kept.embedding.remote import RemoteEmbedder

    # The model, endpoint and key in the settings are those of the configured provider only.
    settings = config.memory_search
    if name not in (settings.provider, "local"):
        settings = replace(settings, model=None, dimensions=None, remote=RemoteSettings())
    if name == "local" and settings.provider not in ("auto", "local"):
        settings = replace(settings, model=None)
    try:
        embedder = make_embedder(name, config, settings)
        if isinstance(embedder, RemoteEmbedder):
            embedder.check_reachable()
    except EmbeddingError as exc:
        return ProviderInfo(name, False, in_use, *default_model(name), exc.message)
    identity = embedder.identity if embedder else None
    return ProviderInfo(
        name=name,
        available=True,
        in_use=in_use,
        model=identity.model if identity else None,
        dims=(identity.dims or None) if identity else None,
        note=PROVIDERS[name] or ("" if in_use else f"set memory_search.provider to {name}"),
    )


def open_toolbox(loaded: LoadedConfig, *, project: str | None = None, person: str | None = None) -> Toolbox:
    """Return the tools for a model, bound to a project or as a person sees them if one is named. Without a workspace,
    each of them answers with an error."""
    from kept.agent.tools.toolbox import Toolbox
    from kept.memory import Memory

    memory = Memory(loaded.config, project=project)
    return Toolbox(memory if person is None else memory.as_person(person), open_sessions(loaded))


def open_sessions(loaded: LoadedConfig) -> SessionStore:
    from kept.sessions.store import SessionStore

    return SessionStore(loaded.config)


def open_dispatcher(memory: Memory, sessions: SessionStore, model: ChatModel) -> Dispatcher:
    from kept.agent.agent import Agent
    from kept.gateway.dispatcher import Dispatcher

    return Dispatcher(Agent(memory, sessions, model))


def open_model(loaded: LoadedConfig, *, clock: Clock | None = None) -> ChatModel:
    """Return the configured chat model, with those that a session may choose and the one for work in the background.
    Their usage is recorded, and limited to the daily budget."""
    from functools import partial

    from kept.models.base import ModelFamily
    from kept.models.claude_cli import KeptServer
    from kept.models.ledger import MeteredChat, open_model_ledger
    from kept.models.registry import make_model

    config, settings = loaded.config, loaded.config.agent.model
    # A program that uses Kept as a library may not have the script `kept`, so the child starts Python.
    start = (sys.executable, "-c", "from kept.cli import main; main()")
    server = KeptServer((*start, *client_command(loaded).args("mcp")), child_environment(loaded))
    ledger = open_model_ledger(config, clock or SystemClock())

    def open_one(chosen: ModelSettings) -> ChatModel:
        model = make_model(chosen, config.keys, kept_server=server)
        if not model.writes:
            return model  # it costs nothing
        return MeteredChat(model, ledger, budget_tokens=settings.daily_budget_tokens)

    main = open_one(settings)
    if not settings.choices:
        return main
    choices = {name: partial(open_one, settings.choose(choice)) for name, choice in settings.choices.items()}
    background = choices[settings.background_choice]() if settings.background_choice else None
    return ModelFamily(main, choices, background=background)


# commands that start `kept`


@frozen
class ServerCommand:
    program: str
    options: tuple[str, ...]
    """Global options, which go before the name of the command: whose memory, and where."""

    def args(self, *command: str) -> list[str]:
        return [*self.options, *command]

    def shell(self, *command: str) -> str:
        return shlex.join([self.program, *self.options, *command])


def client_command(loaded: LoadedConfig) -> ServerCommand:
    config = loaded.config
    options: list[str] = []
    if config.home != os.path.expanduser("~/.kept"):
        options += ["--home", config.home]
    if config.agent_id != "main":
        options += ["--agent", config.agent_id]
    user_file = loaded.user_file.path
    if user_file != os.path.join(config.home, "config.yaml"):
        options += ["--config", user_file]
    if loaded.origins.get("workspace") in ("environment", "flags"):
        options += ["--workspace", config.workspace]
    # The full path: a client that is started from a desktop has another PATH.
    beside = os.path.join(os.path.dirname(sys.executable), "kept")
    return ServerCommand(beside if os.path.isfile(beside) else os.path.abspath(sys.argv[0]), tuple(options))


def child_environment(loaded: LoadedConfig) -> dict[str, str]:
    """Return the provider keys, and the settings that this run has from its environment and command line, as variables.
    The tools only need the settings of the memory."""
    from kept.config.read import settings_of

    set_here = {name for name, layer in loaded.origins.items() if layer in ("environment", "flags")}
    settings = {
        f"KEPT_{name.upper().replace('.', '__')}": str(value)
        for name, value, _ in settings_of(loaded.config.agent)
        if name in set_here
        and name.startswith(("memory_search.", "workspace_layout"))
        and isinstance(value, str | int | float)
    }
    return {**settings, **loaded.config.keys.as_environment()}
