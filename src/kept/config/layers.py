"""The layers of settings, folded in rising precedence: defaults → user file → environment → flags; and the agents.

An agent exists if it is the main one, has an entry in agents.list, or has a folder below HOME/agents.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any, Literal

from kept.base.values import frozen
from kept.config.agent_paths import CLAIM
from kept.config.gateway_settings import GatewaySettings
from kept.config.keys import read_keys
from kept.config.read import (
    SettingGroup,
    build,
    hints,
    join,
    nearest,
    parse_settings,
    read_group,
    read_settings,
    snake,
    unknown_key,
)
from kept.config.schema import AgentSettings, Config, Settings
from kept.errors import AgentNotFound, ConfigError

_NOT_SETTINGS = ("KEPT_HOME", "KEPT_AGENT", "KEPT_CONFIG", "KEPT_DATABASE")
_SHORT_NAMES = ("KEPT_WORKSPACE", "KEPT_WORKSPACE_LAYOUT")
"""Variables for settings in no group."""
MAIN_AGENT = "main"
AGENT_ID = re.compile(r"(?=[-_.]*[A-Za-z0-9])[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
FLAGS = "flags"
"""Name of the layer of settings that options of a command set."""
_PATHS = ("workspace", "path", "extra_paths", "model_path")
"""Names of the settings of an agent that are paths."""
_MAX_NAMES = 10


@frozen
class Layer:
    """Settings of one source."""

    name: str
    tree: SettingGroup = field(default_factory=SettingGroup)


@frozen
class ConfigFile:
    """A file that settings are read from, if it exists."""

    path: str
    exists: bool


@frozen
class LoadedConfig:
    config: Config
    origins: dict[str, str]
    """Layer that each setting came from; a setting without an entry has its default."""
    user_file: ConfigFile


def load_config(
    *,
    home: str | None = None,
    workspace: str | None = None,
    agent: str | None = None,
    config_file: str | None = None,
    settings: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    trust_workspace: bool = False,
    new_agent: bool = False,
) -> LoadedConfig:
    """Return the configuration with the origin of each setting.

    ``trust_workspace`` is for a caller that vouches for the workspace it names; see `Config.trusts_workspace`.
    Raise AgentNotFound if there is no such agent, unless ``new_agent`` allows one that is about to be made.
    """
    env = os.environ if environ is None else environ
    home = expand(home or env.get("KEPT_HOME") or "~/.kept")
    agent_id = check_agent_id(agent or env.get("KEPT_AGENT") or MAIN_AGENT)
    named = config_file or env.get("KEPT_CONFIG")
    path = expand(named) if named else os.path.join(home, "config.yaml")
    user_file = ConfigFile(path, os.path.isfile(path))
    if named and not user_file.exists:
        raise ConfigError(f"{path}: there is no such file.", hint="Check --config or KEPT_CONFIG.")
    if agent_id != MAIN_AGENT and not new_agent:
        require_agent(home, user_file.path, agent_id)
    notices: list[str] = []
    user = user_layers(path, read_settings(path), agent_id, notices)
    layers = [*user, *_environment_layers(env, notices)]
    layers += (_layer_of(FLAGS, key, value, notices) for key, value in (settings or {}).items())
    if workspace:
        layers.append(Layer(FLAGS, SettingGroup(workspace=workspace)))
    configured = resolve_workspace(home, agent_id, fold_layers(user, agent_id)[0])
    tree, origins = fold_layers(layers, agent_id)
    workspace_path = resolve_workspace(home, agent_id, tree)
    is_named = is_same_folder(workspace_path, configured)
    if not is_named and origins.get("workspace_layout") in [layer.name for layer in user]:
        del tree["workspace_layout"], origins["workspace_layout"]  # it is that of the workspace which the file names
    config = Config(
        home=home,
        workspace=workspace_path,
        agent_id=agent_id,
        agent=build(Settings, tree | {"workspace": workspace_path}),
        keys=read_keys(env),
        trusts_workspace=trust_workspace or is_named,
        conversations="agent" if is_named else _find_conversations(home, agent_id, workspace_path, configured),
        models_folder=os.path.join(home, "models"),
        database=env.get("KEPT_DATABASE", ""),
        notices=tuple(notices),
    )
    return LoadedConfig(config, origins, user_file)


def fold_layers(layers: Iterable[Layer], agent_id: str) -> tuple[SettingGroup, dict[str, str]]:
    """Return the settings of all layers, with the layer that each came from. Fill `{agentId}` in, in paths."""
    tree, origins = SettingGroup(), dict[str, str]()
    for layer in layers:
        _merge(tree, layer.tree, layer.name, origins, agent_id)
    return tree, origins


def _merge(
    into: dict[str, Any], tree: SettingGroup, name: str, origins: dict[str, str], agent_id: str, at: str = ""
) -> None:
    """Merge groups setting by setting. A value replaces the earlier one, even if it is a mapping, such as headers."""
    for key, value in tree.items():
        where = join(at, key)
        if isinstance(value, SettingGroup):
            _merge(into.setdefault(key, SettingGroup()), value, name, origins, agent_id, where)
            continue
        if key in _PATHS and isinstance(value, tuple):
            value = tuple(path.replace("{agentId}", agent_id) for path in value)
        elif key in _PATHS and value is not None:
            value = value.replace("{agentId}", agent_id)
        into[key] = value
        origins[where] = name


def _find_conversations(home: str, agent_id: str, workspace: str, configured: str) -> Literal["claimed", "apart"]:
    """Return whose conversations a workspace has that only this run names. Those of the agent belong to the configured
    one, or in a home without it, to the first one that a conversation was held in."""
    owner = configured
    if not os.path.isdir(owner):
        try:
            with open(os.path.join(home, "agents", agent_id, CLAIM), "rb") as file:
                owner = os.fsdecode(file.read())
        except OSError:
            return "claimed"
    is_gone = "\0" in owner or not os.path.isdir(owner)
    return "claimed" if is_gone or is_same_folder(workspace, owner) else "apart"


# the user's file


def user_layers(path: str, raw: bytes | None, agent_id: str, notices: list[str]) -> list[Layer]:
    """Return two layers of a file with these bytes: the defaults for all agents, and the settings of this one."""
    tree, own = parse_settings(path, raw), SettingGroup()
    try:
        _refuse_unknown(tree, ("agents", "gateway"), at="")
        agents = {} if tree.get("agents") is None else tree["agents"]
        if not isinstance(agents, dict):
            raise ConfigError("agents: expected 'defaults' and 'list'.")
        _refuse_unknown(agents, ("defaults", "list"), at="agents.")
        common = read_group(AgentSettings, agents.get("defaults"), at="agents.defaults", notices=notices)
        common["gateway"] = read_group(GatewaySettings, tree.get("gateway"), at="gateway", notices=notices)
        entries = agents.get("list")
        if not isinstance(entries, list | None):
            raise ConfigError("agents.list: expected a list of agents, each with an 'id'.")
        for at, entry in enumerate(entries or ()):
            if not isinstance(entry, dict) or not isinstance(entry.get("id"), str | int) or entry["id"] == "":
                raise ConfigError(f"agents.list[{at}]: every agent needs an 'id'.")
            settings = {key: value for key, value in entry.items() if key != "id"}
            checked = read_group(AgentSettings, settings, at=f"agents.list[{at}]", notices=notices)
            if str(entry["id"]) == agent_id:
                own = checked
    except ConfigError as exc:
        raise ConfigError(f"{path}: {exc.message}", hint=exc.hint) from None
    return [Layer(f"user file {path}", common), Layer(f"user file {path}, agent '{agent_id}'", own)]


def _refuse_unknown(tree: dict[Any, Any], known: tuple[str, ...], *, at: str) -> None:
    for key in tree:
        if key not in known:
            if not at and snake(str(key)) in hints(AgentSettings):
                raise ConfigError(f"{key}: there is no such setting here.", hint="Put it under agents.defaults.")
            raise unknown_key(f"{at}{key}", str(key), list(known))


# the environment and flags


def _environment_layers(env: Mapping[str, str], notices: list[str]) -> Iterator[Layer]:
    """Yield a layer for each variable of a setting, such as KEPT_MEMORY_SEARCH__PROVIDER=none."""
    for name in sorted(env):
        if not name.startswith("KEPT_") or name in _NOT_SETTINGS or (name in _SHORT_NAMES and not env[name]):
            continue
        if "__" not in name and name not in _SHORT_NAMES:
            raise ConfigError(
                f"{name}: there is no such variable.", hint=nearest(name, [*_NOT_SETTINGS, *_SHORT_NAMES])
            )
        key = name.removeprefix("KEPT_").lower().replace("__", ".")
        try:
            yield _layer_of("environment", key, env[name], notices)
        except ConfigError as exc:
            raise ConfigError(f"{name}: {exc.message}", hint=exc.hint) from None


def _layer_of(name: str, key: str, value: Any, notices: list[str]) -> Layer:
    """Return the layer of one setting, or raise ConfigError."""
    for part in reversed(key.removeprefix("agents.defaults.").split(".")):
        value = {part: value}
    return Layer(name, read_group(Settings, value, at="", notices=notices))


# folders


def resolve_workspace(home: str, agent_id: str, tree: SettingGroup) -> str:
    """Return the path of the workspace that the settings name. By default it is the agent's own folder, so that one
    agent does not recall what a person told another."""
    named = tree.get("workspace") or os.path.join(
        home, "workspace" if agent_id == MAIN_AGENT else f"workspace-{agent_id}"
    )
    if "\0" in named:
        raise ConfigError("workspace: it is not a path, since it contains a NUL.")
    return expand(named)


def is_same_folder(left: str, right: str) -> bool:
    return left == right or os.path.realpath(left) == os.path.realpath(right)


def expand(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


# agents


def check_agent_id(agent_id: str) -> str:
    """Return an agent's id if it can be the name of a folder below the home; otherwise raise ConfigError."""
    if not AGENT_ID.fullmatch(agent_id):
        raise ConfigError(
            f"'{agent_id}' cannot be an agent's name.",
            hint="Use up to 64 letters, digits, '-', '_' and '.', not beginning with '.'.",
        )
    return agent_id


def agent_names(home: str, user_file: str) -> list[str]:
    """Return the names of all agents, the main one first."""
    try:
        with os.scandir(os.path.join(home, "agents")) as entries:
            used = [entry.name for entry in entries if entry.is_dir()]
    except OSError:
        used = []
    others = {*filter(AGENT_ID.fullmatch, (*_listed(user_file), *used))} - {MAIN_AGENT}
    return [MAIN_AGENT, *sorted(others)]


def require_agent(home: str, user_file: str, agent_id: str) -> None:
    """Raise AgentNotFound if there is no such agent. A misspelt name must not open another memory, or create one."""
    names = agent_names(home, user_file)
    if agent_id in names:
        return
    shown = ", ".join(names[:_MAX_NAMES]) + (", …" if len(names) > _MAX_NAMES else "")
    raise AgentNotFound(
        f"There is no agent '{agent_id}'. There {'is' if len(names) == 1 else 'are'}: {shown}.",
        hint=f"Create it with 'kept --agent {agent_id} init', or check --agent and KEPT_AGENT.",
    )


def _listed(user_file: str) -> Iterator[str]:
    agents = parse_settings(user_file, read_settings(user_file)).get("agents") or {}
    entries = agents.get("list") if isinstance(agents, dict) else None
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and "id" in entry:
            yield str(entry["id"])


def agents_sharing_workspace(loaded: LoadedConfig) -> list[str]:
    """Return the names of the other agents that use this agent's workspace."""
    config = loaded.config
    named = os.environ.get("KEPT_WORKSPACE") and config.workspace  # for this run, all agents use it
    workspaces = {name: named or other.config.workspace for name, other in settings_by_agent(loaded).items()}
    shared = (name for name, workspace in workspaces.items() if is_same_folder(workspace, config.workspace))
    return sorted({*shared} - {config.agent_id})


def settings_by_agent(loaded: LoadedConfig) -> dict[str, LoadedConfig]:
    """Return the settings of every agent by its name. A workspace that only this run uses does not count."""
    home, file = loaded.config.home, loaded.user_file
    path = file.path if file.exists else None
    environ = {name: value for name, value in os.environ.items() if name not in _SHORT_NAMES}
    names = agent_names(home, file.path)
    return {name: load_config(home=home, agent=name, config_file=path, environ=environ) for name in names}
