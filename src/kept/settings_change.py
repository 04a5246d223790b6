"""Changes the user's settings file: one setting, or its whole text. Atomic, under a lock, and checked before."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from kept.config import LoadedConfig
from kept.config.agent_entry import plan_entry, plan_entry_removal
from kept.config.layers import layers_of_tree
from kept.config.read import snake
from kept.config.settings_edit import find_path, find_value, remove_value, set_value
from kept.config.settings_file import MAX_BYTES, parse_settings, read_settings
from kept.config.settings_lines import Path
from kept.config.settings_value import is_secret, kind_of, read_value, setting_names
from kept.durable import make_private_folder, write_atomic
from kept.errors import ConfigError
from kept.file_lock import locked
from kept.values import frozen

HEADER = "# Settings of Kept. 'kept config explain' lists all of them with their values.\n"
_LOCK_WAIT_S = 10.0
_Edit = Callable[[str, Path, str | None], str]
"""Gets the text of the file, the place of a setting, and the agent that it is of. Returns the edited text."""
_NAMES = {"agents", "defaults", *(part for name in setting_names() for part in name.split("."))}


@frozen
class SettingChange:
    """A setting that was changed, with the place in the file."""

    name: str
    value: Any
    path: str
    """Path of the file."""
    where: str
    """Group in the file that the setting is in: "agents.defaults", "agents.list (main)" or "gateway"."""
    is_changed: bool = True
    is_secret: bool = False


def set_setting(loaded: LoadedConfig, key: str, values: Sequence[str], *, agent: str | None) -> SettingChange:
    """Set a setting for all agents, or with ``agent`` for that one. Raise ConfigError if it does not fit."""
    value = read_value(_name_of(key), values)
    return _change(loaded, key, _setting_edit(value), agent, value)


def unset_setting(loaded: LoadedConfig, key: str, *, agent: str | None) -> SettingChange:
    """Remove a setting from the file, so that its default applies again."""
    kind_of(_name_of(key))
    return _change(loaded, key, _remove_setting, agent)


def preview_setting(
    loaded: LoadedConfig, key: str, values: Sequence[str] | None, *, agent: str | None
) -> tuple[SettingChange, str, str]:
    """Return the change that `set_setting` would make, or `unset_setting` without ``values``, and the text of the file
    before and after it. Nothing is written."""
    before = read_text(os.path.realpath(loaded.user_file.path))
    if values is None:
        kind_of(_name_of(key))
        change, after = _plan(loaded, key, _remove_setting, agent, before)
    else:
        value = read_value(_name_of(key), values)
        change, after = _plan(loaded, key, _setting_edit(value), agent, before, value)
    return change, before, after


def _setting_edit(value: Any) -> _Edit:
    def edit(text: str, path: Path, owner: str | None) -> str:
        return set_value(text or HEADER, path, value, agent=owner)

    return edit


def _remove_setting(text: str, path: Path, _: str | None) -> str:
    return remove_value(text, path) if _has(parse_settings("", text.encode()), path) else text


def put_agent_entry(loaded: LoadedConfig, values: Mapping[str, str]) -> None:
    """Set values in the agent's entry of agents.list, which is added if there is none."""
    file = loaded.user_file.path
    with locked_settings(file) as real_path:
        content = plan_entry(file, loaded.config.agent_id, values)
        write_atomic(real_path, content if loaded.user_file.exists else HEADER.encode() + content)


def remove_agent_entry(loaded: LoadedConfig) -> bool:
    """Remove the agent's entry from agents.list. Return False if there is none."""
    file = loaded.user_file.path
    if not loaded.user_file.exists:
        return False
    with locked_settings(file) as real_path:
        content = plan_entry_removal(file, loaded.config.agent_id)
        if content is not None:
            write_atomic(real_path, content)
        return content is not None


def check_text(path: str, text: str, agent: str) -> None:
    """Raise ConfigError if a text cannot be the user's settings. ``path`` is for the message."""
    if len(text.encode()) > MAX_BYTES:
        raise ConfigError(f"{path}: would have more than {MAX_BYTES:,} bytes, too many for settings.")
    layers_of_tree(parse_settings(path, text.encode()), path, agent)


def _change(loaded: LoadedConfig, key: str, edit: _Edit, agent: str | None, value: Any = None) -> SettingChange:
    """Replace the text of the file with an edited one."""
    with locked_settings(loaded.user_file.path) as real_path:
        change, changed = _plan(loaded, key, edit, agent, read_text(real_path), value)
        if change.is_changed:
            write_atomic(real_path, changed.encode())
        return change


def _plan(
    loaded: LoadedConfig, key: str, edit: _Edit, agent: str | None, text: str, value: Any = None
) -> tuple[SettingChange, str]:
    """Return the change and the text of the file after it. Raise ConfigError if that is not valid."""
    file, name = loaded.user_file.path, _name_of(key)
    tree = parse_settings(file, text.encode())
    owner = _owner(tree, key, named=agent, used=loaded.config.agent_id)
    path = find_path(tree, name.split("."), agent=owner)
    change = SettingChange(name, value, file, _place(path, owner), True, is_secret=is_secret(name))
    changed = edit(text, path, owner)
    if changed == text:
        return replace(change, is_changed=False), text
    check_text(file, changed, loaded.config.agent_id)
    return change, changed


def _owner(tree: Any, key: str, *, named: str | None, used: str) -> str | None:
    """Return the agent in whose entry a setting belongs, or None for the defaults.

    An entry overrides the defaults, so a setting that it has is changed there, unless the key names the defaults. A
    workspace under the defaults would be shared by all agents.
    """
    name = _name_of(key)
    if name != _spelt(key) or name.startswith("gateway."):
        return None
    if named:
        return named
    own = find_path(tree, name.split("."), agent=used)
    return used if name == "workspace" or _has(tree, own) else None


def _has(tree: Any, path: Path) -> bool:
    group = find_value(tree, path[:-1])
    return isinstance(group, dict) and path[-1] in group


def _place(path: Path, agent: str | None) -> str:
    return "gateway" if path[0] == "gateway" else "agents.defaults" if agent is None else f"agents.list, id {agent}"


def _name_of(key: str) -> str:
    """Return the name of a setting. In a key, agents.defaults may be before it, as in the file."""
    return _spelt(key).removeprefix("agents.defaults.")


def _spelt(key: str) -> str:
    """Return a key in snake_case. The names that users choose, which come last, stay as they are."""
    return ".".join(snake(part) if snake(part) in _NAMES else part for part in key.strip().split("."))


# the file


@contextmanager
def locked_settings(path: str) -> Iterator[str]:
    """Hold the lock on the folder of the settings, so that no other change is lost. Yield the path of the file itself:
    the settings may be a link, such as one into a repository of dotfiles, and stay one."""
    real_path = os.path.realpath(path)
    folder = os.path.dirname(real_path)
    make_private_folder(folder)
    with locked(folder, wait_s=_LOCK_WAIT_S, purpose="changing the settings"):
        yield real_path


def read_text(path: str) -> str:
    """Return the text of a settings file, without a byte order mark; empty if there is none."""
    try:
        return (read_settings(path) or b"").decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{path}: not UTF-8 at byte {exc.start}.", hint="Nothing was changed.") from exc


def write_text(path: str, text: str, *, expected: str) -> None:
    """Replace the text of the settings file. Raise ConfigError if another program changed it from what is expected."""
    with locked_settings(path) as real_path:
        if read_text(real_path) != expected:
            raise ConfigError(f"{path}: another program has changed it meanwhile.", hint="Nothing was changed.")
        write_atomic(real_path, text.encode())
