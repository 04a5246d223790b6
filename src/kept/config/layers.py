"""The layers of settings, folded in rising precedence: defaults → user file → project file → environment → flags.

The project file is in the workspace, which may be a stranger's repository: it may tune search and nothing else. It
cannot hide answers, nor choose an endpoint, a command, a key, a prompt or a path outside.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, fields, is_dataclass
from functools import reduce
from typing import Any, Literal, cast

from kept.config.agent_paths import AgentPaths
from kept.config.gateway_settings import GatewaySettings
from kept.config.keys import read_keys
from kept.config.old_names import iter_old_names
from kept.config.read import (
    build,
    coerce,
    group_by_name,
    hints,
    nearest,
    normalise,
    range_notices,
    read_flow,
    snake,
    unknown_key,
)
from kept.config.removed import is_removed, iter_removed, removal_notices
from kept.config.schema import AgentSettings, Config
from kept.config.settings_file import read_yaml
from kept.errors import ConfigError
from kept.values import frozen

PROJECT_FILE = ".kept.yaml"
PROJECT_ALLOWED = (
    ("memory_search", "chunking"),
    ("memory_search", "query"),
    ("memory_search", "sync"),
    ("memory_search", "max_file_bytes"),
)
PROJECT_REFUSED = (("memory_search", "query", "rerank", "model_path"),)
"""Exceptions to PROJECT_ALLOWED: a model is read and run, so a repository must not choose one."""
_always: Callable[[Any, Any], bool] = lambda value, own: True  # noqa: E731
_SHOWS_AS_MUCH: dict[tuple[str, ...], Callable[[Any, Any], bool]] = {
    ("memory_search", "query", "min_score"): operator.le,
    ("memory_search", "query", "max_results"): operator.ge,
    ("memory_search", "query", "hybrid", "match"): lambda value, own: value in ("any", own),
    ("memory_search", "query", "hybrid", "enabled"): operator.ge,
    ("memory_search", "query", "hybrid", "vector_weight"): operator.eq,
    ("memory_search", "query", "hybrid", "text_weight"): operator.eq,
    ("memory_search", "query", "hybrid", "candidate_multiplier"): operator.ge,
    ("memory_search", "max_file_bytes"): operator.ge,
}
"""Settings that can hide answers, each with whether a project's value shows as much as the user's own."""
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

    kind: Literal["user", "project"]
    path: str
    exists: bool


@frozen
class LoadedConfig:
    config: Config
    origins: dict[str, str]
    """Layer that each setting came from; a setting without an entry has its default."""
    user_file: ConfigFile
    project_file: ConfigFile


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
    project_file = _config_file("project", os.path.join(workspace_path, PROJECT_FILE))
    layers = [*user, _without_hiding(project_layer(project_file.path), user), *overrides]
    configured = resolve_workspace(home, agent_id, user)
    is_named = is_same_folder(workspace_path, configured)
    if not is_named:
        for layer in user:  # the layout is that of the workspace which the user's file names
            layer.agent.pop("workspace_layout", None)

    agent_tree, gateway_tree, origins = fold_layers(layers)
    agent_tree["workspace"] = workspace_path
    config = Config(
        home=home,
        workspace=workspace_path,
        agent_id=agent_id,
        agent=build(AgentSettings, agent_tree, at="agents.defaults"),
        gateway=build(GatewaySettings, gateway_tree, at="gateway"),
        keys=read_keys(env),
        trusts_workspace=trust_workspace or is_named,
        conversations="agent" if is_named else _find_conversations(home, agent_id, workspace_path, configured),
        models_folder=os.path.join(home, "models"),
        notices=(
            *range_notices(AgentSettings, agent_tree, origins, at=""),
            *range_notices(GatewaySettings, gateway_tree, origins, at="gateway"),
            *(notice for layer in layers for notice in layer.notices),
        ),
    )
    return LoadedConfig(config, origins, user_file, project_file)


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
    file = _config_file("user", expand(named) if named else os.path.join(home, "config.yaml"))
    if named and not file.exists:
        raise ConfigError(f"{file.path}: there is no such file.", hint="Check --config or KEPT_CONFIG.")
    return file


def _config_file(kind: Literal["user", "project"], path: str) -> ConfigFile:
    return ConfigFile(kind, path, os.path.isfile(path))


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
    try:
        _refuse_unknown(tree, ("agents", "gateway"), at="")
        agents = {} if tree.get("agents") is None else tree["agents"]
        if not isinstance(agents, dict):
            raise ConfigError("agents: expected 'defaults' and 'list'.")
        _refuse_unknown(agents, ("defaults", "list"), at="agents.")
        gateway = checked(GatewaySettings, tree.get("gateway"), at="gateway")
        defaults = checked(AgentSettings, agents.get("defaults"), at="agents.defaults")
        own = _agent_override(agents.get("list"), agent_id)
    except ConfigError as exc:
        raise _in_file(path, exc) from None
    name = f"user file {path}"
    notices: list[str] = []
    removed: list[str] = []
    entries = enumerate(agents.get("list") or ())
    parts = [
        (AgentSettings, agents.get("defaults"), "agents.defaults"),
        (GatewaySettings, tree.get("gateway"), "gateway"),
    ]
    for kind, part, at in (*parts, *((AgentSettings, entry, f"agents.list[{number}]") for number, entry in entries)):
        notices += iter_old_names(kind, part, at=at, snake=snake)
        removed += iter_removed(kind, part, at=at)
    for part in (defaults, own):
        fill_agent_id(part, agent_id)
    layer = Layer(name, defaults, gateway, notices + removal_notices(removed))
    return [layer, Layer(f"{name}, agent '{agent_id}'", own)]


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


def checked(kind: type, tree: Any, *, at: str) -> dict[str, Any]:
    """Return a normalised tree. Build it once on the way, so that a ConfigError names this file and not the result."""
    normalised = normalise(kind, tree, at=at)
    build(kind, normalised, at=at)
    return normalised


def _agent_override(listed: Any, agent_id: str) -> dict[str, Any]:
    if listed is None:
        return {}
    if not isinstance(listed, list):
        raise ConfigError("agents.list: expected a list of agents, each with an 'id'.")
    override: dict[str, Any] = {}
    for at, entry in enumerate(listed):
        where = f"agents.list[{at}]"
        if not isinstance(entry, dict) or not isinstance(entry.get("id"), str | int) or entry["id"] == "":
            raise ConfigError(f"{where}: every agent needs an 'id'.")
        own = checked(AgentSettings, {k: v for k, v in entry.items() if k != "id"}, at=where)
        if str(entry["id"]) == agent_id:
            override = own
    return override


def project_layer(path: str) -> Layer:
    """Return the layer of a project file. Raise ConfigError if it sets more than a project may."""
    if os.path.islink(path):
        raise ConfigError(f"{path}: a project's settings cannot be a symbolic link.", hint="Put the file itself there.")
    tree = read_yaml(path, follow_links=False)
    try:
        agent = checked(AgentSettings, tree, at="")
    except ConfigError as exc:
        raise _in_file(path, exc) from None
    for keys, _ in _leaves(agent):
        allowed = any(keys[: len(group)] == group for group in PROJECT_ALLOWED)
        if not allowed or keys in PROJECT_REFUSED:
            raise ConfigError(
                f"{path}: {'.'.join(keys)} cannot be set by a project.",
                hint=f"A project may set: {', '.join('.'.join(a) for a in PROJECT_ALLOWED)}. "
                "Put the rest into your own config.yaml.",
            )
    return Layer(f"project file {path}", agent, notices=removal_notices([*iter_removed(AgentSettings, tree, at="")]))


def _without_hiding(project: Layer, user: list[Layer]) -> Layer:
    """Return the layer of a project without what shows less than the user's own settings do."""
    leaves = [keys for keys, _ in _leaves(project.agent)]
    if not leaves:
        return project
    own, chosen = (build(AgentSettings, tree, at="") for tree in (fold_layers(user)[0], project.agent))
    for keys in leaves:
        values = (reduce(getattr, keys, settings) for settings in (chosen, own))
        is_hiding = keys[:2] == ("memory_search", "sync") or not _SHOWS_AS_MUCH.get(keys, _always)(*values)
        if is_hiding:
            reduce(dict.__getitem__, keys[:-1], project.agent).pop(keys[-1])
            name = ".".join(keys)
            project.notices.append(f"{name}: ignored in the {project.name}, which cannot hide answers.")
    return project


def environment_layer(env: Mapping[str, str]) -> Layer:
    """Return the layer of KEPT_WORKSPACE and of settings such as KEPT_MEMORY_SEARCH__PROVIDER=none."""
    layer = Layer("environment")
    removed: list[str] = []
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
            removed.append(name)
    layer.notices.extend(removal_notices(removed))
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
    checked_value = coerce(kind, value, at)
    if is_dataclass(kind):
        tree[key] = normalise(cast("type", kind), value, at=at)
    elif group := group_by_name(kind):
        tree[key] = {name: normalise(group, inner, at=f"{at}.{name}") for name, inner in (value or {}).items()}
    else:
        tree[key] = checked_value


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


def _leaves(tree: dict[str, Any], at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*at, key))
        else:
            yield (*at, key), value


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
