"""Changes the user's settings file. Comments and order stay; the write is atomic, under a lock, and checked before.

PyYAML tells where in the text each value is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from kept.base.durable import make_private_folder, write_atomic
from kept.base.file_lock import locked
from kept.base.safe_yaml import YamlRefused, load_yaml
from kept.base.values import frozen
from kept.config.layers import MAX_BYTES, LoadedConfig, build, parse_settings, read_settings, user_settings
from kept.config.read import snake
from kept.config.schema import Settings
from kept.config.setting import find_setting, read_typed, spell
from kept.errors import ConfigError

HEADER = "# Settings of Kept. 'kept config explain' lists all of them with their values.\n"
Path = tuple[str | int, ...]
"""Place of a value in a file: keys of groups, and numbers of list items."""
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
    _, metadata = find_setting(name)
    value = None if values is None else read_typed(name, values)
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
        change = SettingChange(name, value, loaded.user_file.path, where, bool(metadata.get("secret")), before, after)
        if change.is_changed:
            check_text(loaded.user_file.path, after, loaded.config.agent_id)
            if not dry_run:
                write_atomic(real_path, after.encode())
        return change


def check_text(path: str, text: str, agent: str) -> None:
    """Raise ConfigError if a text cannot be the user's settings. ``path`` is for the message."""
    if len(text.encode()) > MAX_BYTES:
        raise ConfigError(f"{path}: would have more than {MAX_BYTES:,} bytes, too many for settings.")
    tree, _ = user_settings(path, text.encode(), agent, [])
    build(Settings, tree)


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


# changing a text: the lines of one value change, and all others stay byte for byte

_NOTHING: Any = object()


def put_entry(text: str, agent: str, values: Mapping[str, str]) -> str:
    """Return the text with values in the agent's entry of agents.list, which is added if there is none."""
    text = text or HEADER
    for key, value in values.items():
        text = set_value(text, find_path(_load(text), [key], agent=agent), value, agent=agent)
    return text


def remove_value(text: str, path: Path) -> str:
    """Return the text without the value at a path, and without groups that are empty then."""
    return set_value(text, path, _NOTHING)


def set_value(text: str, path: Path, value: Any, *, agent: str | None = None) -> str:
    """Return the text with a value set at a path. ``agent`` is the id of a list entry that has to be made first. Raise
    ConfigError unless exactly that is what Kept reads then."""
    import yaml

    if "\r\n" in text:
        return set_value(text.replace("\r\n", "\n"), path, value, agent=agent).replace("\n", "\r\n")
    value = list(value) if isinstance(value, tuple) else value
    expected = _without_empty(_load(text) or {})
    try:
        _change(expected, path, value, agent)
        places = _find_places(yaml.compose(text, Loader=yaml.SafeLoader), path)
        rest = path[len(places) - 1 :]
        if rest and getattr(places[-1].node, "flow_style", None):  # such as {a: 1}, which is written anew
            changed = _replace(text, places[-1], find_value(expected, path[: len(places) - 1]))
        elif value is _NOTHING:
            changed = _remove(text, places)
        else:
            changed = _insert(text, places[-1], rest, value, agent) if rest else _replace(text, places[-1], value)
        is_right = _without_empty(_load(changed) or {}) == _without_empty(expected)
    except (yaml.YAMLError, TypeError, AttributeError, LookupError, ValueError):  # not the lists and groups of settings
        is_right = False
    if not is_right:
        raise ConfigError(
            "The settings file cannot be changed without changing its other settings.",
            hint="Nothing was changed. Change it in an editor; 'kept config path' shows where it is.",
        )
    return changed


def _change(tree: Any, path: Path, value: Any, agent: str | None) -> None:
    for step, following in pairwise(path):
        if isinstance(tree, list) and step == len(tree):
            tree.append({"id": agent})
        elif isinstance(tree, dict) and tree.get(step) is None:
            tree[step] = [] if isinstance(following, int) else {}
        tree = tree[step]
    if value is _NOTHING:
        del tree[path[-1]]
    else:
        tree[path[-1]] = value


@frozen
class _Node:
    """A value in the text, as a node of PyYAML; None is all of a text that says nothing."""

    node: Any
    key: Any = None
    """Node of its key; None for the whole text and for an item of a list."""

    def end(self, text: str) -> int:
        """Return the position after the value, without the comments below it."""
        node = self.node
        while not getattr(node, "flow_style", True) and node.value:
            node = node.value[-1][1] if isinstance(node.value[-1], tuple) else node.value[-1]
        return len(text[: node.end_mark.index].rstrip())


def _find_places(root: Any, path: Path) -> list[_Node]:
    """Return the values on the way to a path, the whole text first, as far as each is in lines of its own."""
    places = [_Node(root)]
    for step in path:
        node = places[-1].node
        items = [] if getattr(node, "flow_style", True) else node.value
        if isinstance(step, int):
            places += map(_Node, items[step : step + 1])
        else:
            (*fitting,) = (_Node(value, key) for key, value in items if key.value == step)
            if len(fitting) > 1:
                raise ValueError("a key is given twice")
            places += fitting
        if places[-1].node is node:
            break
    return places


def _replace(text: str, place: _Node, value: Any) -> str:
    """Return the text with another value at a place. Raise ValueError if a comment would be lost."""
    head = text[: place.node.start_mark.index] if place.key is None else f"{text[: place.key.end_mark.index]}: "
    end = place.end(text)
    # An empty value begins where the comment beside it does, which stays.
    after = place.node.start_mark if place.key is None or place.node.value == "" else place.key.end_mark
    if re.search(r"\s#.*\n", text[after.index : end]):
        raise ValueError("a comment is in the way")
    return head + _written(value) + text[end:]


def _insert(text: str, place: _Node, rest: Path, value: Any, agent: str | None) -> str:
    """Return the text with a value below a place, after the steps that are missing."""
    at, column = len(text), 0
    if place.node is not None:  # without a group or a list there, the key has no value yet
        is_group = hasattr(place.node, "flow_style")
        column = place.node.start_mark.column if is_group else place.key.start_mark.column + 2
        at = _next_line(text, place.end(text))
    lines = []
    for step, following in pairwise((*rest, None)):
        key = f"- id: {_written(agent)}" if isinstance(step, int) else f"{step}:"
        lines.append(f"{'':{column}}{key}{f' {_written(value)}' if following is None else ''}\n")
        column += 2
    before = text[:at]
    return "".join((before, "\n" if before and not before.endswith("\n") else "", *lines, text[at:]))


def _remove(text: str, places: list[_Node]) -> str:
    """Return the text without the lines of the last of the places, and of those above it that have nothing else."""
    end = places[-1].end(text)
    while len(places) > 2 and len(places[-2].node.value) == 1 and places[-2].key is not None:
        if "#" in text[places[-2].key.end_mark.index : places[-1].node.start_mark.index]:
            # The comment is about the group, which stays.
            text = f"{text[: places[-2].key.end_mark.index]}: {{}}{text[places[-2].key.end_mark.index + 1 :]}"
            break
        places = places[:-1]
    start = places[-1].key.start_mark.index
    begin = text.rfind("\n", 0, start) + 1
    if text[begin:start].strip():  # it follows the dash of an item
        return text[:start] + text[end:].lstrip()
    return text[:begin] + text[_next_line(text, end) :]


def _next_line(text: str, at: int) -> int:
    return text.find("\n", at) + 1 or len(text)


def _written(value: Any) -> str:
    """Return a value in YAML, in one line."""
    import yaml

    text = yaml.safe_dump([value], default_flow_style=True, allow_unicode=True, width=float("inf"), sort_keys=False)
    return text.strip()[1:-1]


def _load(text: str) -> Any:
    try:
        return load_yaml(text)
    except YamlRefused as exc:
        raise ConfigError(f"The settings file: {exc.problem}.", hint=exc.hint or "Nothing was changed.") from exc


def _without_empty(tree: Any) -> Any:
    """Return a copy of a tree without empty groups and lists, which may stay where a setting was removed."""
    if isinstance(tree, dict):
        items = ((key, _without_empty(value)) for key, value in tree.items())
        return {key: value for key, value in items if value not in ({}, [])}
    return [_without_empty(item) for item in tree] if isinstance(tree, list) else tree
