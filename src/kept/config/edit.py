"""Changes the user's settings file. Comments and order stay; the write is atomic, under a lock, and checked before."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from kept.config.layers import LoadedConfig, layers_of_tree
from kept.config.read import snake
from kept.config.setting import find_setting, read_value, spell
from kept.config.settings_file import MAX_BYTES, parse_settings, read_settings
from kept.durable import make_private_folder, write_atomic
from kept.errors import ConfigError
from kept.file_lock import locked
from kept.safe_yaml import YamlRefused, load_yaml
from kept.values import frozen

HEADER = "# Settings of Kept. 'kept config explain' lists all of them with their values.\n"
Path = tuple[str | int, ...]
"""Where a value is in a file: keys of groups, and numbers of list items."""
_LOCK_WAIT_S = 10.0


@frozen
class SettingChange:
    """A setting that was changed, or is about to be, with the text of the file before and after."""

    name: str
    value: Any
    path: str
    """Path of the file."""
    where: str
    """Group in the file that the setting is in: "agents.defaults", "agents.list, id main" or "gateway"."""
    is_secret: bool
    before: str
    after: str

    @property
    def is_changed(self) -> bool:
        return self.before != self.after


# changing the file


def change_setting(
    loaded: LoadedConfig, key: str, values: Sequence[str] | None, *, agent: str | None, dry_run: bool = False
) -> SettingChange:
    """Set a setting for all agents, or with ``agent`` for that one; without ``values``, remove it from the file.

    Raise ConfigError if it does not fit. With ``dry_run`` nothing is written.
    """
    name = spell(key).removeprefix("agents.defaults.")
    setting = find_setting(name)
    value = None if values is None else read_value(name, values)
    with locked_settings(loaded.user_file.path) as real_path:
        before = read_text(real_path)
        tree = parse_settings(loaded.user_file.path, before.encode())
        owner = _find_owner(tree, name, named=agent, used=loaded.config.agent_id, for_all=name != spell(key))
        path = find_path(tree, name.split("."), agent=owner)
        after = before
        if values is not None:
            after = set_value(before or HEADER, path, value, agent=owner)
        elif _has(tree, path):
            after = remove_value(before, path)
        where = "gateway" if path[0] == "gateway" else f"agents.list, id {owner}" if owner else "agents.defaults"
        change = SettingChange(name, value, loaded.user_file.path, where, setting.is_secret, before, after)
        if change.is_changed:
            check_text(loaded.user_file.path, after, loaded.config.agent_id)
            if not dry_run:
                write_atomic(real_path, after.encode())
        return change


def remove_agent_entry(loaded: LoadedConfig) -> None:
    """Remove every entry of the agent from agents.list."""
    if not loaded.user_file.exists:
        return
    with locked_settings(loaded.user_file.path) as real_path:
        before = text = read_text(real_path)
        while find_value(tree := _load(text), path := find_path(tree, (), agent=loaded.config.agent_id)) is not None:
            text = remove_value(text, path)
        if text != before:
            write_atomic(real_path, text.encode())


def check_text(path: str, text: str, agent: str) -> None:
    """Raise ConfigError if a text cannot be the user's settings. ``path`` is for the message."""
    if len(text.encode()) > MAX_BYTES:
        raise ConfigError(f"{path}: would have more than {MAX_BYTES:,} bytes, too many for settings.")
    layers_of_tree(parse_settings(path, text.encode()), path, agent)


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


def _find_owner(tree: Any, name: str, *, named: str | None, used: str, for_all: bool) -> str | None:
    """Return the agent in whose entry a setting belongs, or None for the defaults.

    An entry overrides the defaults, so a setting that it has is changed there, unless the key names the defaults. A
    workspace under the defaults would be shared by all agents.
    """
    if for_all or name.startswith("gateway."):
        return None
    own = find_path(tree, name.split("."), agent=used)
    return named or (used if name == "workspace" or _has(tree, own) else None)


# places in a file


def find_path(tree: Any, keys: Sequence[str], *, agent: str | None) -> Path:
    """Return where a setting is, or belongs, in a tree as read from a file. Keys that it has in camelCase stay so.

    ``agent`` is the agent in whose entry of agents.list it belongs; None is for all agents.
    """
    path: Path = ()
    start: Path = () if keys and keys[0] == "gateway" else ("agents", "defaults")
    if agent is not None and start:
        entries = find_value(tree, ("agents", "list")) or []
        numbers = [at for at, entry in enumerate(entries) if isinstance(entry, dict) and str(entry.get("id")) == agent]
        start = ("agents", "list", numbers[-1] if numbers else len(entries))
    for step in (*start, *keys):
        group = find_value(tree, path)
        spelling = (key for key in group if snake(str(key)) == step) if isinstance(group, dict) else ()
        path = (*path, next(iter(spelling), step))
    return path


def find_value(tree: Any, path: Path) -> Any:
    """Return the value at a path, or None."""
    for step in path:
        if isinstance(tree, dict):
            tree = tree.get(step)
        elif isinstance(tree, list) and isinstance(step, int) and step < len(tree):
            tree = tree[step]
        else:
            return None
    return tree


def _has(tree: Any, path: Path) -> bool:
    group = find_value(tree, path[:-1])
    return isinstance(group, dict) and path[-1] in group


# changing a text


def put_entry(text: str, agent: str, values: Mapping[str, str]) -> str:
    """Return the text with values in the agent's entry of agents.list, which is added if there is none."""
    text = text or HEADER
    for key, value in values.items():
        text = set_value(text, find_path(_load(text), [key], agent=agent), value, agent=agent)
    return text


def set_value(text: str, path: Path, value: Any, *, agent: str | None = None) -> str:
    """Return the text with a value set at a path. ``agent`` is the id of a list entry that has to be made first."""
    value = list(value) if isinstance(value, tuple) else value

    def put(tree: Any) -> None:
        for step, following in pairwise(path):
            if isinstance(tree, list) and step == len(tree):
                tree.append({"id": agent})
            elif isinstance(tree, dict) and tree.get(step) is None:
                tree[step] = [] if isinstance(following, int) else {}
            tree = tree[step]
        tree[path[-1]] = value

    return _edit(text, put, lambda root, expected: _write(text, root, path, expected))


def remove_value(text: str, path: Path) -> str:
    """Return the text without the value at a path, and without groups that are empty then."""

    def drop(tree: Any) -> None:
        del find_value(tree, path[:-1])[path[-1]]

    return _edit(text, drop, lambda root, expected: _erase(text, root, path, expected))


def _edit(text: str, change: Callable[[Any], None], rewrite: Callable[[Any, Any], str]) -> str:
    """Return the text after a change. Raise ConfigError unless exactly that is what Kept reads then."""
    import yaml

    expected = _load(text) or {}
    try:
        change(expected)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        changed = rewrite(root, expected)
        is_right = _without_empty(_load(changed) or {}) == _without_empty(expected)
    except (yaml.YAMLError, ConfigError, TypeError, AttributeError, LookupError):  # no lists and groups of settings
        is_right = False
    if not is_right:
        raise ConfigError(
            "The settings file cannot be changed without changing its other settings.",
            hint="Nothing was changed. Change it in an editor; 'kept config path' shows where it is.",
        )
    return changed


def _load(text: str) -> Any:
    try:
        return load_yaml(text)
    except YamlRefused as exc:
        raise ConfigError(f"The settings file: {exc.problem}.", hint=exc.hint or "Nothing was changed.") from exc


def _without_empty(tree: Any) -> Any:
    """Return a tree without empty groups and lists, which may stay where a setting was removed."""
    if isinstance(tree, dict):
        items = ((key, _without_empty(value)) for key, value in tree.items())
        return {key: value for key, value in items if value not in ({}, [], None)}
    return [_without_empty(item) for item in tree] if isinstance(tree, list) else tree


# the text of a node: the parser knows where each begins and ends, so everything around it stays as it is


def _write(text: str, root: Any, path: Path, expected: Any) -> str:
    """Replace the value at a path, or add it after the last line of the innermost group that exists."""
    chain = _descend(root, path)
    node, rest = chain[-1], path[len(chain) - 1 :]
    if node is None:
        return _insert(text, len(text), path, expected, indent=0)
    if _is_block(node) and rest:
        return _insert(text, _end(node), path, expected, indent=node.start_mark.column, depth=len(path) - len(rest))
    if rest and node.start_mark.index == node.end_mark.index:  # a key without a value
        indent = chain[-2].start_mark.column + 2
        return _insert(text, node.end_mark.index, path, expected, indent=indent, depth=len(path) - len(rest))
    return _replace(text, node, find_value(expected, path[: len(path) - len(rest)]))


def _erase(text: str, root: Any, path: Path, expected: Any) -> str:
    """Remove the lines of a value, and of the groups that have nothing else. Lines of comments stay."""
    chain = _descend(root, path)
    if len(chain) <= len(path):  # it is inside braces
        return _replace(text, chain[-1], _without_empty(find_value(expected, path[: len(chain) - 1])))
    at = len(path) - 1
    while at > 0 and len(chain[at].value) == 1:
        at -= 1
    start = text.rfind("\n", 0, _key(chain[at], path[at]).start_mark.index) + 1
    end = _next_line(text, _end(chain[at + 1]))
    comments = [line for line in text[start:end].splitlines(keepends=True) if line.lstrip().startswith("#")]
    return text[:start] + "".join(comments) + text[end:]


def _descend(root: Any, path: Path) -> list[Any]:
    """Return the nodes along a path, as far as they exist and are not inside braces."""
    chain = [root]
    for step in path:
        if not _is_block(chain[-1]):
            break
        items = [*enumerate(chain[-1].value)] if isinstance(step, int) else chain[-1].value
        nodes = [value for key, value in items if getattr(key, "value", key) == step]
        if not nodes:
            break
        chain.append(nodes[0])
    return chain


def _key(group: Any, step: str | int) -> Any:
    """Return the node that the lines of a setting begin with: its key, or the item of a list."""
    return group.value[step] if isinstance(step, int) else next(key for key, _ in group.value if key.value == step)


def _is_block(node: Any) -> bool:
    return isinstance(getattr(node, "value", None), list) and not node.flow_style


def _end(node: Any) -> int:
    """Return where the text of a value ends: the library counts the comments after a group to it."""
    while _is_block(node) and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return int(node.end_mark.index)


def _next_line(text: str, at: int) -> int:
    if at and text[at - 1] == "\n":
        return at
    return text.find("\n", at) + 1 or len(text)


def _replace(text: str, node: Any, value: Any) -> str:
    start, end = node.start_mark.index, _end(node)
    if "#" in text[start:end] and "\n" in text[start:end]:
        raise LookupError("comments in it would be lost")
    return text[:start] + (" " if start == end else "") + _flow(value) + text[end:]


def _insert(text: str, after: int, path: Path, expected: Any, *, indent: int, depth: int = 0) -> str:
    """Return the text with the lines of a new setting after the line of a position. Groups above ``depth`` exist."""
    lines = ""
    for at, step in enumerate(path[depth:], depth):
        if isinstance(step, int):
            lines += f"{'':{indent}}- id: {_flow(find_value(expected, (*path[:at], step))['id'])}\n"
        else:
            value = f" {_flow(find_value(expected, path))}" if at == len(path) - 1 else ""
            lines += f"{'':{indent}}{_flow(step)}:{value}\n"
        indent += 2
    at = _next_line(text, after)
    lead = "\n" if text[:at] and not text[:at].endswith("\n") else ""
    added = lead + lines
    return text[:at] + (added.replace("\n", "\r\n") if "\r\n" in text else added) + text[at:]


def _flow(value: Any) -> str:
    """Return a value in one line, with a text in quotes if YAML could read it as something else."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_flow(key)}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str) and re.fullmatch(r"[\w./~][\w./~ @+-]*", value) and load_yaml(value) == value:
        return value
    return json.dumps(value, ensure_ascii=not str(value).isprintable())
