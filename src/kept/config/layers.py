"""The layers of settings, folded in rising precedence: defaults → user file → environment → flags."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import field, fields, is_dataclass
from typing import Any, Literal, cast

from kept.base.values import frozen
from kept.config.agent_paths import AgentPaths
from kept.config.gateway_settings import GatewaySettings
from kept.config.keys import read_keys
from kept.config.read import (
    build,
    coerce,
    group_by_name,
    hints,
    nearest,
    normalise,
    normalise_value,
    read_flow,
    snake,
    unknown_key,
)
from kept.config.read_file import read_yaml
from kept.config.removed import is_removed, removal_notice
from kept.config.schema import AgentSettings, Config
from kept.errors import ConfigError

ENV_NAMES = ("KEPT_HOME", "KEPT_WORKSPACE", "KEPT_WORKSPACE_LAYOUT", "KEPT_AGENT", "KEPT_CONFIG")
MAIN_AGENT = "main"
_PATHS = ("workspace", "path", "extra_paths", "model_path")
"""Names of the settings of an agent that are paths."""
FLAGS = "flags"
"""Name of the layer of settings that options of a command set."""


@frozen
class Layer:
    """One source of settings. ``agent`` and ``gateway`` are normalised trees."""

    name: str
    agent: dict[str, Any] = field(default_factory=dict)
    gateway: dict[str, Any] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    """What became of names that Kept does not have."""


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
    user_file = find_user_file(home, config_file, env)
    if agent_id != MAIN_AGENT and not new_agent:
        from kept.config.agents import require_agent

        require_agent(home, user_file.path, agent_id)
    user = user_layers(user_file.path, agent_id)
    overrides = [environment_layer(env), flags_layer(workspace, settings or {})]
    for layer in overrides:
        fill_agent_id(layer.agent, agent_id)
    workspace_path = resolve_workspace(home, agent_id, [*user, *overrides])
    layers = [*user, *overrides]
    configured = resolve_workspace(home, agent_id, user)
    is_named = is_same_folder(workspace_path, configured)
    if not is_named:
        for layer in user:  # the layout is that of the workspace which the user's file names
            layer.agent.pop("workspace_layout", None)

    agent_tree, gateway_tree, origins = fold_layers(layers)
    agent_tree["workspace"] = workspace_path
    notices: list[str] = []
    config = Config(
        home=home,
        workspace=workspace_path,
        agent_id=agent_id,
        agent=build(AgentSettings, agent_tree, at="", notices=notices),
        gateway=build(GatewaySettings, gateway_tree, at="gateway", notices=notices),
        keys=read_keys(env),
        trusts_workspace=trust_workspace or is_named,
        conversations="agent" if is_named else _find_conversations(home, agent_id, workspace_path, configured),
        models_folder=os.path.join(home, "models"),
        notices=(*notices, *(notice for layer in layers for notice in layer.notices)),
    )
    return LoadedConfig(config, origins, user_file)


def _find_conversations(home: str, agent_id: str, workspace: str, configured: str) -> Literal["claimed", "apart"]:
    """Return whose conversations a workspace has that only this run names. Those of the agent belong to the configured
    one, or in a home without it, to the first one that a conversation was held in."""
    owner = configured
    if not os.path.isdir(owner):
        try:
            with open(AgentPaths(os.path.join(home, "agents", agent_id)).claim, "rb") as file:
                owner = os.fsdecode(file.read())
        except OSError:
            return "claimed"
    is_gone = "\0" in owner or not os.path.isdir(owner)
    return "claimed" if is_gone or is_same_folder(workspace, owner) else "apart"


def find_user_file(home: str | None, named: str | None, environ: Mapping[str, str] | None = None) -> ConfigFile:
    """Return the user's settings file: the named one, or the one in the home folder. Nothing is read."""
    env = os.environ if environ is None else environ
    home = expand(home or env.get("KEPT_HOME") or "~/.kept")
    named = named or env.get("KEPT_CONFIG")
    path = expand(named) if named else os.path.join(home, "config.yaml")
    file = ConfigFile(path, os.path.isfile(path))
    if named and not file.exists:
        raise ConfigError(f"{file.path}: there is no such file.", hint="Check --config or KEPT_CONFIG.")
    return file


def expand(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def check_agent_id(agent_id: str) -> str:
    """Return an agent's id if it can be the name of a folder below the home; otherwise raise ConfigError."""
    plain = agent_id.replace("-", "").replace("_", "").replace(".", "")
    if not plain.isalnum() or not plain.isascii() or agent_id.startswith(".") or len(agent_id) > 64:
        raise ConfigError(
            f"'{agent_id}' cannot be an agent's name.",
            hint="Use up to 64 letters, digits, '-', '_' and '.', not beginning with '.'.",
        )
    return agent_id


def user_layers(path: str, agent_id: str) -> list[Layer]:
    """Return two layers: the defaults for all agents, and the settings of this one."""
    return layers_of_tree(read_yaml(path), path, agent_id)


def layers_of_tree(tree: dict[str, Any], path: str, agent_id: str) -> list[Layer]:
    """Return the layers of a user file from its content. ``path`` is for messages."""
    notices: list[str] = []
    try:
        _refuse_unknown(tree, ("agents", "gateway"), at="")
        agents = {} if tree.get("agents") is None else tree["agents"]
        if not isinstance(agents, dict):
            raise ConfigError("agents: expected 'defaults' and 'list'.")
        _refuse_unknown(agents, ("defaults", "list"), at="agents.")
        gateway = checked(GatewaySettings, tree.get("gateway"), at="gateway", notices=notices)
        defaults = checked(AgentSettings, agents.get("defaults"), at="agents.defaults", notices=notices)
        own = _agent_override(agents.get("list"), agent_id, notices)
    except ConfigError as exc:
        raise _in_file(path, exc) from None
    name = f"user file {path}"
    for part in (defaults, own):
        fill_agent_id(part, agent_id)
    return [Layer(name, defaults, gateway, notices), Layer(f"{name}, agent '{agent_id}'", own)]


def fill_agent_id(tree: dict[str, Any], agent_id: str) -> None:
    """Fill `{agentId}` in, in the paths of an agent's settings."""
    for key, value in tree.items():
        if isinstance(value, dict):
            fill_agent_id(value, agent_id)
        elif key in _PATHS and isinstance(value, str):
            tree[key] = value.replace("{agentId}", agent_id)
        elif key in _PATHS and isinstance(value, list | tuple):
            tree[key] = [str(path).replace("{agentId}", agent_id) for path in value]


def _refuse_unknown(tree: dict[Any, Any], known: tuple[str, ...], *, at: str) -> None:
    for key in tree:
        if key not in known:
            if not at and snake(str(key)) in hints(AgentSettings):
                raise ConfigError(f"{key}: there is no such setting here.", hint="Put it under agents.defaults.")
            raise unknown_key(f"{at}{key}", str(key), list(known))


def checked(kind: type, tree: Any, *, at: str, notices: list[str]) -> dict[str, Any]:
    """Return a normalised tree. Build it once on the way, so that a ConfigError names this file and not the result."""
    normalised = normalise(kind, tree, at=at, notices=notices)
    build(kind, normalised, at=at)
    return normalised


def _agent_override(listed: Any, agent_id: str, notices: list[str]) -> dict[str, Any]:
    if listed is None:
        return {}
    if not isinstance(listed, list):
        raise ConfigError("agents.list: expected a list of agents, each with an 'id'.")
    override: dict[str, Any] = {}
    for at, entry in enumerate(listed):
        where = f"agents.list[{at}]"
        if not isinstance(entry, dict) or not isinstance(entry.get("id"), str | int) or entry["id"] == "":
            raise ConfigError(f"{where}: every agent needs an 'id'.")
        own = checked(AgentSettings, {k: v for k, v in entry.items() if k != "id"}, at=where, notices=notices)
        if str(entry["id"]) == agent_id:
            override = own
    return override


def environment_layer(env: Mapping[str, str]) -> Layer:
    """Return the layer of KEPT_WORKSPACE and of settings such as KEPT_MEMORY_SEARCH__PROVIDER=none."""
    layer = Layer("environment")
    for name in sorted(env):
        if not name.startswith("KEPT_") or name in ENV_NAMES:
            continue
        if "__" not in name:
            raise ConfigError(f"{name}: there is no such variable.", hint=nearest(name, list(ENV_NAMES)))
        keys = name.removeprefix("KEPT_").lower().split("__")
        try:
            put_setting(layer, keys, env[name], at=name)
        except ConfigError:
            if not is_removed(".".join(keys)):
                raise
            layer.notices.append(removal_notice(name))
    if env.get("KEPT_WORKSPACE"):
        layer.agent["workspace"] = env["KEPT_WORKSPACE"]
    if env.get("KEPT_WORKSPACE_LAYOUT"):
        put_setting(layer, ["workspace_layout"], env["KEPT_WORKSPACE_LAYOUT"], at="KEPT_WORKSPACE_LAYOUT")
    return layer


def flags_layer(workspace: str | None, settings: Mapping[str, Any]) -> Layer:
    layer = Layer(FLAGS)
    for key, value in settings.items():
        put_setting(layer, key.removeprefix("agents.defaults.").split("."), value, at=key)
    if workspace:
        layer.agent["workspace"] = workspace
    return layer


def put_setting(layer: Layer, keys: list[str], value: Any, *, at: str) -> None:
    """Put a value into a layer at a path of keys, or raise ConfigError if the schema does not have that path."""
    kind: Any = AgentSettings
    tree = layer.agent
    if keys[0] == "gateway" and len(keys) > 1:
        kind, tree, keys = GatewaySettings, layer.gateway, keys[1:]
    for key in keys[:-1]:
        group = group_by_name(kind)
        known = key if group else _known_key(kind, key, at=at)
        kind = group or hints(kind)[known]
        if not is_dataclass(kind) and not group_by_name(kind):
            raise ConfigError(f"{at}: '{known}' is a value and has no settings below it.")
        tree = tree.setdefault(known, {})
    group = group_by_name(kind)
    key = keys[-1] if group else _known_key(kind, keys[-1], at=at)
    kind = group or hints(kind)[key]
    value = read_flow(kind, value, at)
    if is_dataclass(kind) and not isinstance(value, Mapping):
        raise ConfigError(f"{at}: '{key}' is a group.", hint=f"Set one of: {', '.join(hints(cast('type', kind)))}.")
    coerce(kind, value, at)
    tree[key] = normalise_value(kind, value, at=at, notices=layer.notices)


def _known_key(kind: type, key: str, *, at: str) -> str:
    known = hints(kind)
    if snake(key) not in known:
        raise unknown_key(at, key, list(known))
    return snake(key)


def resolve_workspace(home: str, agent_id: str, layers: list[Layer]) -> str:
    """Return the path of the workspace that the last layer names, or the agent's default one."""
    chosen = None
    for layer in layers:
        chosen = layer.agent.get("workspace") or chosen
    if "\0" in str(chosen):
        raise ConfigError("workspace: it is not a path, since it contains a NUL.")
    return expand(str(chosen)) if chosen else default_workspace(home, agent_id)


def default_workspace(home: str, agent_id: str) -> str:
    """Return the agent's own folder, so that one agent does not recall what a person told another."""
    return os.path.join(home, "workspace" if agent_id == MAIN_AGENT else f"workspace-{agent_id}")


def is_same_folder(left: str, right: str) -> bool:
    return left == right or os.path.realpath(left) == os.path.realpath(right)


def fold_layers(layers: list[Layer]) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    """Return the merged trees of the agent and the gateway, and the layer that each setting came from."""
    agent: dict[str, Any] = {}
    gateway: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in layers:
        _merge(AgentSettings, agent, layer.agent, layer.name, origins, at="")
        _merge(GatewaySettings, gateway, layer.gateway, layer.name, origins, at="gateway")
    return agent, gateway, origins


def _merge(
    kind: Any, into: dict[str, Any], tree: dict[str, Any], name: str, origins: dict[str, str], *, at: str
) -> None:
    """Merge groups setting by setting. A value replaces the earlier one, even if it is a mapping, such as headers."""
    for key, value in tree.items():
        where = f"{at}.{key}" if at else key
        inner = group_by_name(kind) or hints(kind).get(key)
        is_group = is_dataclass(inner) or group_by_name(inner) is not None
        if is_group and isinstance(value, dict) and isinstance(into.get(key, {}), dict):
            _merge(inner, into.setdefault(key, {}), value, name, origins, at=where)
        else:
            into[key] = value
            origins[where] = name


def settings_of(value: Any, at: str = "") -> Iterator[tuple[str, Any, bool]]:
    """Yield every setting of a schema object: its dotted name, its value, and whether it is secret."""
    for spec in fields(value):
        where = f"{at}.{spec.name}" if at else spec.name
        inner = getattr(value, spec.name)
        if is_dataclass(inner):
            yield from settings_of(inner, where)
        elif inner and group_by_name(hints(cast("type", type(value)))[spec.name]):
            for name, group in inner.items():
                yield from settings_of(group, f"{where}.{name}")
        else:
            yield where, inner, bool(spec.metadata.get("secret"))


def secret_names(kind: Any) -> Iterator[str]:
    """Yield the names of the secret settings of a schema class, also those in groups that users name."""
    for spec in fields(kind):
        inner = hints(kind)[spec.name]
        inner = group_by_name(inner) or inner
        if is_dataclass(inner):
            yield from secret_names(inner)
        elif spec.metadata.get("secret"):
            yield spec.name


def _in_file(path: str, exc: ConfigError) -> ConfigError:
    return ConfigError(f"{path}: {exc.message}", hint=exc.hint)
