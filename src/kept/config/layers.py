"""The layers of settings, folded in rising precedence: defaults → user file → environment → flags; and the agents.

An agent exists if it is the main one, has an entry in agents.list, or has a folder below HOME/agents.
"""

from __future__ import annotations

import os
import re
import stat
import typing
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any, Literal

from kept.base.limits import as_dict, as_list
from kept.base.values import frozen
from kept.config.agent_config import CLAIM, Config, read_keys
from kept.config.read import (
    SettingGroup,
    hints,
    nearest,
    read_group,
    snake,
)
from kept.config.schema import AgentSettings, FileSettings, Settings
from kept.errors import AgentNotFound, ConfigError

_NOT_SETTINGS = ("KEPT_HOME", "KEPT_AGENT", "KEPT_CONFIG", "KEPT_DATABASE")
_SHORT_NAMES = ("KEPT_WORKSPACE", "KEPT_WORKSPACE_LAYOUT")
"""Variables for settings in no group."""
MAIN_AGENT = "main"
LOGIN = "login.json"
"""Document of a home: which server has the memory, and the token for it."""
MAX_BYTES = 256_000
"""Limit of a file of settings."""
_UNCHANGED = "Nothing was changed."
AGENT_ID = re.compile(r"(?=[-_.]*[A-Za-z0-9])[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
FLAGS = "flags"
"""Name of the layer of settings that options of a command set."""
_USER_FILE = "user file "
"""Beginning of the names of the layers of the user's file."""
_PATHS = ("workspace", "path", "extra_paths", "model_path")
"""Names of the settings of an agent that are paths."""
_MAX_NAMES = 10


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


def find_home(home: str | None = None, environ: Mapping[str, str] = os.environ) -> str:
    return os.path.abspath(os.path.expanduser(home or environ.get("KEPT_HOME") or "~/.kept"))


def load_config(
    *,
    home: str | None = None,
    workspace: str | None = None,
    agent: str | None = None,
    config_file: str | None = None,
    database: str | None = None,
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
    home = find_home(home, env)
    agent_id = agent or env.get("KEPT_AGENT") or MAIN_AGENT
    named = config_file or env.get("KEPT_CONFIG")
    path = os.path.abspath(os.path.expanduser(named)) if named else os.path.join(home, "config.yaml")
    raw = read_settings(path)
    if named and raw is None:
        raise ConfigError(f"{path}: there is no such file.", hint="Check --config or KEPT_CONFIG.")
    if agent_id != MAIN_AGENT:
        check_agent_id(agent_id)
        if not new_agent:
            require_agent(home, path, agent_id)
    notices: list[str] = []
    tree, origins = (SettingGroup(), {}) if raw is None else user_settings(path, raw, agent_id, notices)
    configured = resolve_workspace(home, agent_id, tree)
    for group in _environment_groups(env, notices):
        _merge(tree, group, "environment", origins, agent_id)
    for key, value in (settings or {}).items():
        _merge(tree, _group_of(key, value, notices), FLAGS, origins, agent_id)
    if workspace:
        _merge(tree, SettingGroup(workspace=workspace), FLAGS, origins, agent_id)
    workspace_path = resolve_workspace(home, agent_id, tree)
    is_named = is_same_folder(workspace_path, configured)
    if not is_named and origins.get("workspace_layout", "").startswith(_USER_FILE):
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
        database=database or env.get("KEPT_DATABASE", ""),
        notices=tuple(notices),
    )
    return LoadedConfig(config, origins, ConfigFile(path, raw is not None))


def _merge(
    into: dict[str, Any], tree: SettingGroup, name: str, origins: dict[str, str], agent_id: str, at: str = ""
) -> None:
    """Merge the settings of a layer over those before it, and fill `{agentId}` in, in paths. A value replaces the
    earlier one, even if it is a mapping, such as headers."""
    for key, value in tree.items():
        if isinstance(value, SettingGroup):
            _merge(into.setdefault(key, SettingGroup()), value, name, origins, agent_id, f"{at}{key}.")
            continue
        if key in _PATHS and isinstance(value, tuple):
            value = tuple(path.replace("{agentId}", agent_id) for path in value)
        elif key in _PATHS and value is not None:
            value = value.replace("{agentId}", agent_id)
        into[key] = value
        origins[at + key] = name


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


# the user's file. Nothing about it is trusted: a pipe in its place would block every command, and 400 bytes of YAML can
# expand to gigabytes.


def user_settings(
    path: str, raw: bytes | None, agent_id: str, notices: list[str]
) -> tuple[SettingGroup, dict[str, str]]:
    """Return the settings that a file with these bytes has for an agent, and where in it each comes from."""
    tree, origins = SettingGroup(), dict[str, str]()
    parsed = parse_settings(path, raw)
    try:
        if misplaced := next((key for key in parsed if snake(str(key)) in hints(AgentSettings)), None):
            raise ConfigError(f"{misplaced}: there is no such setting here.", hint="Put it under agents.defaults.")
        read = read_group(FileSettings, parsed, at="", notices=notices)
        agents, own = read.get("agents", {}), SettingGroup()
        for at, entry in enumerate(agents.get("list") or ()):
            if not (name := entry.pop("id", "")):
                raise ConfigError(f"agents.list[{at}]: every agent needs an 'id'.")
            own = entry if name == agent_id else own
    except ConfigError as exc:
        raise ConfigError(f"{path}: {exc.message}", hint=exc.hint) from None
    for_all = SettingGroup(agents.get("defaults", {}), gateway=read.get("gateway", SettingGroup()))
    _merge(tree, for_all, f"{_USER_FILE}{path}", origins, agent_id)
    _merge(tree, own, f"{_USER_FILE}{path}, agent '{agent_id}'", origins, agent_id)
    return tree, origins


def read_settings(path: str, *, max_bytes: int = MAX_BYTES) -> bytes | None:
    """Return the bytes of a settings file, or None if there is none. Never wait for a pipe or a device."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"{path}: is not a file.", hint=_UNCHANGED)
            raw = file.read(max_bytes + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as exc:  # ValueError: not a path, such as one with a NUL
        reason = exc.strerror if isinstance(exc, OSError) else exc
        raise ConfigError(f"{path}: cannot be read ({reason}).", hint=_UNCHANGED) from exc
    if len(raw) > max_bytes:
        raise ConfigError(f"{path}: has more than {max_bytes:,} bytes, too many for settings.", hint=_UNCHANGED)
    return raw


def parse_settings(path: str, raw: bytes | None) -> dict[str, Any]:
    """Return the settings in the bytes of a file. ``path`` is for messages."""
    from kept.base.safe_yaml import YamlRefused, load_yaml

    try:
        text = (raw or b"").decode("utf-8-sig")
        tree = load_yaml(text) if text.strip() else None
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{path}: not UTF-8 at byte {exc.start}.", hint=_UNCHANGED) from exc
    except YamlRefused as exc:
        line = f", line {exc.line}" if exc.line else ""
        hint = exc.hint or "Fix the YAML; nothing was changed."
        raise ConfigError(f"{path}{line}: {exc.problem}.", hint=hint) from exc
    if not isinstance(tree, dict | None):
        raise ConfigError(f"{path}: expected settings by name, such as 'agents:'.")
    return tree or {}


def build(kind: Any, value: Any) -> Any:
    """Return the value of a setting, with each group in it as an instance of its schema class. An instance may adjust
    itself in a method ``after_build``, or raise ConfigError."""
    if is_dataclass(kind):
        known = hints(kind)
        values = {name: build(known[name], inner) for name, inner in value.items()}
        settings: Any = kind(**values)  # type: ignore[operator]
        return settings.after_build() if hasattr(kind, "after_build") else settings
    item = next((item for item in typing.get_args(kind) if is_dataclass(item)), None)
    if item is None:
        return value
    if isinstance(value, tuple):
        return tuple(build(item, inner) for inner in value)
    return {name: build(item, inner) for name, inner in value.items()}


# the environment and flags


def _environment_groups(env: Mapping[str, str], notices: list[str]) -> Iterator[SettingGroup]:
    """Yield the group of each variable of a setting, such as KEPT_MEMORY_SEARCH__PROVIDER=none."""
    for name in sorted(env):
        if not name.startswith("KEPT_") or name in _NOT_SETTINGS or (name in _SHORT_NAMES and not env[name]):
            continue
        if "__" not in name and name not in _SHORT_NAMES:
            raise ConfigError(
                f"{name}: there is no such variable.", hint=nearest(name, [*_NOT_SETTINGS, *_SHORT_NAMES])
            )
        if name == "KEPT_WORKSPACE":
            yield SettingGroup(workspace=env[name])
            continue
        key = name.removeprefix("KEPT_").lower().replace("__", ".")
        try:
            yield _group_of(key, env[name], notices)
        except ConfigError as exc:
            raise ConfigError(f"{name}: {exc.message}", hint=exc.hint) from None


def _group_of(key: str, value: Any, notices: list[str]) -> SettingGroup:
    """Return one setting in its groups, or raise ConfigError."""
    for part in reversed(key.removeprefix("agents.defaults.").split(".")):
        value = {part: value}
    return read_group(Settings, value, at="", notices=notices)


# folders


def resolve_workspace(home: str, agent_id: str, tree: Mapping[str, Any]) -> str:
    """Return the path of the workspace that the settings name. By default it is the agent's own folder, so that one
    agent does not recall what a person told another."""
    named = tree.get("workspace") or os.path.join(
        home, "workspace" if agent_id == MAIN_AGENT else f"workspace-{agent_id}"
    )
    if "\0" in named:
        raise ConfigError("workspace: it is not a path, since it contains a NUL.")
    return os.path.abspath(os.path.expanduser(named))


def is_same_folder(left: str, right: str) -> bool:
    return left == right or os.path.realpath(left) == os.path.realpath(right)


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
    agents = as_dict(parse_settings(user_file, read_settings(user_file)).get("agents"))
    for entry in map(as_dict, as_list(agents.get("list"))):
        if "id" in entry:
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
