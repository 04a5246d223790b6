"""Where settings come from, in rising precedence:

defaults → user file → project file → environment → flags.

The project file lies in the workspace, which may be somebody else's repository: it may tune how search works, and
nothing else. It cannot choose an endpoint, a command, a key, a prompt or a path outside.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import field, fields, is_dataclass
from typing import Any, cast

from kept.config.keys import read_keys
from kept.config.read import build, coerce, group_by_name, hints, nearest, normalise, unknown_key
from kept.config.schema import AgentConfig, Config, Gateway
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
"""Of what is allowed: a model is read and run, so a repository must not choose one."""
ENV_NAMES = ("KEPT_HOME", "KEPT_WORKSPACE", "KEPT_AGENT", "KEPT_CONFIG")


@frozen
class Layer:
    """One source of settings. ``agent`` and ``gateway`` are normalised trees."""

    name: str
    agent: dict[str, Any] = field(default_factory=dict)
    gateway: dict[str, Any] = field(default_factory=dict)


@frozen
class LoadedConfig:
    config: Config
    origins: dict[str, str]
    """The layer that each setting came from; a setting that is not named has its default."""
    files: tuple[tuple[str, str, bool], ...]
    """Every file that is looked at: what it is, where, and whether it is there."""


def load_config(
    *,
    home: str | None = None,
    workspace: str | None = None,
    agent: str | None = None,
    config_file: str | None = None,
    settings: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> LoadedConfig:
    env = os.environ if environ is None else environ
    home = expand(home or env.get("KEPT_HOME") or "~/.kept")
    agent_id = check_agent_id(agent or env.get("KEPT_AGENT") or "main")
    named = config_file or env.get("KEPT_CONFIG")
    user_file = expand(named) if named else os.path.join(home, "config.yaml")
    if named and not os.path.isfile(user_file):
        raise ConfigError(f"{user_file}: there is no such file.", hint="Check --config or KEPT_CONFIG.")

    user = user_layers(user_file, agent_id)
    from_env = environment_layer(env)
    flags = flags_layer(workspace, settings or {})
    place = resolve_workspace(home, [*user, from_env, flags])
    project_path = os.path.join(place, PROJECT_FILE)
    layers = [*user, project_layer(project_path), from_env, flags]

    agent_tree: dict[str, Any] = {}
    gateway_tree: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in layers:
        merge(agent_tree, layer.agent, layer.name, origins, at="")
        merge(gateway_tree, layer.gateway, layer.name, origins, at="gateway")
    agent_tree["workspace"] = place
    config = Config(
        home=home,
        workspace=place,
        agent_id=agent_id,
        agent=build(AgentConfig, agent_tree, at="agents.defaults"),
        gateway=build(Gateway, gateway_tree, at="gateway"),
        keys=read_keys(env),
    )
    files = (
        ("user", user_file, os.path.isfile(user_file)),
        ("project", project_path, os.path.isfile(project_path)),
    )
    return LoadedConfig(config, origins, files)


def expand(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def check_agent_id(agent_id: str) -> str:
    """An agent's id is a folder's name: letters, digits, '-', '_' and '.', and no way out of the home."""
    plain = agent_id.replace("-", "").replace("_", "").replace(".", "")
    if not plain.isalnum() or not plain.isascii() or agent_id.startswith(".") or len(agent_id) > 64:
        raise ConfigError(
            f"'{agent_id}' cannot be an agent's name.",
            hint="Use up to 64 letters, digits, '-', '_' and '.', not beginning with '.'.",
        )
    return agent_id


def user_layers(path: str, agent_id: str) -> list[Layer]:
    tree = read_yaml(path)
    try:
        _refuse_others(tree, ("agents", "gateway"), at="")
        agents = {} if tree.get("agents") is None else tree["agents"]
        if not isinstance(agents, dict):
            raise ConfigError("agents: expected 'defaults' and 'list'.")
        _refuse_others(agents, ("defaults", "list"), at="agents.")
        gateway = checked(Gateway, tree.get("gateway"), at="gateway")
        defaults = checked(AgentConfig, agents.get("defaults"), at="agents.defaults")
        own = _agent_override(agents.get("list"), agent_id)
    except ConfigError as exc:
        raise _in_file(path, exc) from None
    name = f"user file {path}"
    return [Layer(name, defaults, gateway), Layer(f"{name}, agent '{agent_id}'", own)]


def _refuse_others(tree: dict[Any, Any], known: tuple[str, ...], *, at: str) -> None:
    for key in tree:
        if key not in known:
            raise unknown_key(f"{at}{key}", str(key), list(known))


def checked(kind: type, tree: Any, *, at: str) -> dict[str, Any]:
    """A normalised tree whose values fit: what is wrong is said where it stands, not where layers have met."""
    tidy = normalise(kind, tree, at=at)
    build(kind, tidy, at=at)
    return tidy


def _agent_override(listed: Any, agent_id: str) -> dict[str, Any]:
    if listed is None:
        return {}
    if not isinstance(listed, list):
        raise ConfigError("agents.list: expected a list of agents, each with an 'id'.")
    found: dict[str, Any] = {}
    for at, entry in enumerate(listed):
        where = f"agents.list[{at}]"
        if not isinstance(entry, dict) or not isinstance(entry.get("id"), str | int) or entry["id"] == "":
            raise ConfigError(f"{where}: every agent needs an 'id'.")
        own = checked(AgentConfig, {k: v for k, v in entry.items() if k != "id"}, at=where)
        if str(entry["id"]) == agent_id:
            found = own
    return found


def project_layer(path: str) -> Layer:
    if os.path.islink(path):
        raise ConfigError(f"{path}: a project's settings cannot be a symbolic link.", hint="Put the file itself there.")
    tree = read_yaml(path, follow_links=False)
    try:
        agent = checked(AgentConfig, tree, at="")
    except ConfigError as exc:
        raise _in_file(path, exc) from None
    for keys, _ in leaves(agent):
        allowed = any(keys[: len(group)] == group for group in PROJECT_ALLOWED)
        if not allowed or keys in PROJECT_REFUSED:
            raise ConfigError(
                f"{path}: {'.'.join(keys)} cannot be set by a project.",
                hint=f"A project may set: {', '.join('.'.join(a) for a in PROJECT_ALLOWED)}. "
                "Put the rest into your own config.yaml.",
            )
    return Layer(f"project file {path}", agent)


def environment_layer(env: Mapping[str, str]) -> Layer:
    """KEPT_WORKSPACE, and any setting as KEPT_ and its path: KEPT_MEMORY_SEARCH__PROVIDER=none."""
    layer = Layer("environment")
    for name in sorted(env):
        if not name.startswith("KEPT_") or name in ENV_NAMES:
            continue
        if "__" not in name:
            raise ConfigError(f"{name}: there is no such variable.", hint=nearest(name, list(ENV_NAMES)))
        place(layer, name.removeprefix("KEPT_").lower().split("__"), env[name], at=name)
    if env.get("KEPT_WORKSPACE"):
        layer.agent["workspace"] = env["KEPT_WORKSPACE"]
    return layer


def flags_layer(workspace: str | None, settings: Mapping[str, Any]) -> Layer:
    layer = Layer("flags")
    for key, value in settings.items():
        place(layer, key.removeprefix("agents.defaults.").split("."), value, at=key)
    if workspace:
        layer.agent["workspace"] = workspace
    return layer


def place(layer: Layer, keys: list[str], value: Any, *, at: str) -> None:
    """Puts one value into a layer at a dotted path, which must be in the schema."""
    kind: Any = AgentConfig
    tree = layer.agent
    if keys[0] == "gateway" and len(keys) > 1:
        kind, tree, keys = Gateway, layer.gateway, keys[1:]
    for key in keys[:-1]:
        by_name = group_by_name(kind)
        tidy = key if by_name else _known_key(kind, key, at=at)
        kind = by_name or hints(kind)[tidy]
        if not is_dataclass(kind) and not group_by_name(kind):
            raise ConfigError(f"{at}: '{tidy}' is a value and has no settings below it.")
        tree = tree.setdefault(tidy, {})
    if group_by_name(kind):
        raise ConfigError(
            f"{at}: '{keys[-1]}' is a group.", hint=f"Set one of: {', '.join(hints(group_by_name(kind)))}."
        )
    tidy = _known_key(kind, keys[-1], at=at)
    wanted = hints(kind)[tidy]
    if is_dataclass(wanted):
        raise ConfigError(f"{at}: '{tidy}' is a group.", hint=f"Set one of: {', '.join(hints(cast('type', wanted)))}.")
    tree[tidy] = coerce(wanted, value, at)


def _known_key(kind: type, key: str, *, at: str) -> str:
    try:
        return next(iter(normalise(kind, {key: None}, at="")))
    except ConfigError as exc:
        raise ConfigError(f"{at}: {exc.message}", hint=exc.hint) from None


def resolve_workspace(home: str, layers: list[Layer]) -> str:
    chosen = None
    for layer in layers:
        chosen = layer.agent.get("workspace") or chosen
    return expand(str(chosen)) if chosen else os.path.join(home, "workspace")


def merge(into: dict[str, Any], tree: dict[str, Any], name: str, origins: dict[str, str], *, at: str) -> None:
    for key, value in tree.items():
        where = f"{at}.{key}" if at else key
        if isinstance(value, dict) and isinstance(into.get(key, {}), dict) and not where.endswith(".headers"):
            merge(into.setdefault(key, {}), value, name, origins, at=where)
        else:
            into[key] = value
            origins[where] = name


def leaves(tree: dict[str, Any], at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*at, key))
        else:
            yield (*at, key), value


def settings_of(value: Any, at: str = "") -> Iterator[tuple[str, Any, bool]]:
    """Every setting of a schema object: its dotted name, its value, and whether it is secret."""
    for spec in fields(value):
        where = f"{at}.{spec.name}" if at else spec.name
        inner = getattr(value, spec.name)
        if is_dataclass(inner):
            yield from settings_of(inner, where)
        else:
            yield where, inner, bool(spec.metadata.get("secret"))


def _in_file(path: str, exc: ConfigError) -> ConfigError:
    return ConfigError(f"{path}: {exc.message}", hint=exc.hint)
