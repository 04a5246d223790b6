"""Changes the user's settings file. Comments and order stay; the write is atomic, under a lock, and checked before.

Only this module imports ruamel.yaml, which keeps comments and is slow to import.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from kept.base.durable import make_private_folder, write_atomic
from kept.base.file_lock import locked
from kept.base.safe_yaml import YamlRefused, load_yaml
from kept.base.values import frozen
from kept.config.layers import LoadedConfig, layers_of_tree
from kept.config.read import MAX_BYTES, parse_settings, read_settings, snake
from kept.config.setting import find_setting, read_value, spell
from kept.errors import ConfigError

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
    _, metadata = find_setting(name)
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
    return _edit(text, lambda tree: _put(tree, path, value, agent))


def remove_value(text: str, path: Path) -> str:
    """Return the text without the value at a path, and without groups that are empty then."""
    return _edit(text, lambda tree: _remove(tree, path))


def _edit(text: str, change: Callable[[Any], None]) -> str:
    """Return the text after a change of its tree. Raise ConfigError unless exactly that is what Kept reads then."""
    from ruamel.yaml.error import YAMLError

    expected = copy.deepcopy(_load(text)) or {}
    try:
        change(expected)
        changed = _rewrite(text.replace("\r\n", "\n"), change)
        is_right = _without_empty(_load(changed) or {}) == _without_empty(expected)
    except (YAMLError, TypeError, AttributeError, LookupError):  # not the lists and groups of settings
        is_right = False
    if not is_right:
        raise ConfigError(
            "The settings file cannot be changed without changing its other settings.",
            hint="Nothing was changed. Change it in an editor; 'kept config path' shows where it is.",
        )
    return changed.replace("\n", "\r\n") if "\r\n" in text else changed


def _rewrite(text: str, change: Callable[[Any], None]) -> str:
    import io

    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedMap

    document = YAML()
    document.preserve_quotes = True
    document.width = 10_000  # no line is folded
    document.brace_single_entry_mapping_in_flow_sequence = True
    group = re.search(r"^( *)[^\s#-][^\n]*:[ \t]*(?:#[^\n]*)?\n( +)[^\s#-]", text, re.MULTILINE)
    items = re.search(r"^( *)[^\s#-][^\n]*:[ \t]*(?:#[^\n]*)?\n(?: *#[^\n]*\n)*( *)-( +)", text, re.MULTILINE)
    dash, width = (len(items[2]) - len(items[1]), 1 + len(items[3])) if items else (2, 2)
    document.indent(len(group[2]) - len(group[1]) if group else 2, sequence=dash + width, offset=dash)
    tree = document.load(text)
    lead = ""
    if tree is None:  # nothing but comments, which the library would lose
        tree, lead = CommentedMap(), text if not text or text.endswith("\n") else f"{text}\n"
    change(tree)
    out = io.StringIO()
    document.dump(tree, out)
    return lead + out.getvalue()


def _load(text: str) -> Any:
    try:
        return load_yaml(text)
    except YamlRefused as exc:
        raise ConfigError(f"The settings file: {exc.problem}.", hint=exc.hint or "Nothing was changed.") from exc


def _without_empty(tree: Any) -> Any:
    """Return a tree without empty groups and lists, which may stay where a setting was removed."""
    if isinstance(tree, dict):
        items = ((key, _without_empty(value)) for key, value in tree.items())
        return {key: value for key, value in items if value not in ({}, [])}
    return [_without_empty(item) for item in tree] if isinstance(tree, list) else tree


# changing a tree: plain, or the library's, in which a comment belongs to the value before it


def _put(tree: Any, path: Path, value: Any, agent: str | None) -> None:
    comment = ""
    for step, following in pairwise(path):
        if step == len(tree) if isinstance(tree, list) else tree.get(step) is None:
            comment += _take_comment(tree, step)
            if isinstance(tree, list):
                tree.append(_written(tree, {"id": agent}, block=True))
            else:
                tree[step] = _written(tree, [] if isinstance(following, int) else {}, block=True)
        tree = tree[step]
    comment += _take_comment(tree, path[-1])
    tree[path[-1]] = _written(tree, value)
    _give_comment(tree, path[-1], comment)


def _remove(tree: Any, path: Path, comment: str = "") -> None:
    group, step = find_value(tree, path[:-1]), path[-1]
    comment = comment or _take_comment(group, step)
    keys = [*range(len(group))] if isinstance(group, list) else [*group]
    at = keys.index(step)
    del group[step]
    if at > 0:
        _give_comment(*_last(group, keys[at - 1]), comment)
    elif len(group):
        _give_comment(group, 0 if isinstance(group, list) else keys[1], comment, before=True)
    elif len(path) > 1:
        parent, above = find_value(tree, path[:-2]), _comment_above(group)
        if above or isinstance(path[-2], int) or (comment and len(path) == 2):  # the comments need a place
            parent[path[-2]] = _written(parent, type(group)())
            if above:
                parent.ca.items[path[-2]][-1] = None
            _give_comment(parent, path[-2], above + comment)
        else:
            _remove(tree, path[:-1], comment)


def _written(tree: Any, value: Any, *, block: bool = False) -> Any:
    """Return a value as the library should write it: a list in one line, and a text that YAML would read as something
    else in quotes. In a plain tree, return it as it is."""
    if not hasattr(tree, "ca"):
        return value
    from ruamel.yaml.comments import CommentedMap, CommentedSeq
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    if isinstance(value, dict | list):
        group: Any = CommentedSeq(_written(tree, item) for item in value) if isinstance(value, list) else CommentedMap()
        for key, item in value.items() if isinstance(value, dict) else ():
            group[key] = _written(tree, item)
        if not block:
            group.fa.set_flow_style()
        return group
    try:
        is_plain = not isinstance(value, str) or load_yaml(value) == value
    except YamlRefused:
        is_plain = False
    return value if is_plain else DoubleQuotedScalarString(value)


def _last(group: Any, key: Any) -> tuple[Any, Any]:
    """Return the innermost group and key with which the text of a value ends."""
    value = group[key]
    while isinstance(value, dict | list) and value and hasattr(value, "fa") and not value.fa.flow_style():
        group, key = value, len(value) - 1 if isinstance(value, list) else next(reversed(value))
        value = group[key]
    return group, key


def _comment_above(group: Any) -> str:
    """Return the comment lines between the key of a group and its first key."""
    tokens = getattr(group, "ca", None) and group.ca.comment and group.ca.comment[1]
    return "".join(f"{'':{token.start_mark.column}}{token.value}" for token in tokens or ())


def _take_comment(group: Any, key: Any) -> str:
    """Remove and return the comment lines after a value, or after the last one of the group if it has no such key."""
    if not hasattr(group, "ca") or group.fa.flow_style() or not group:
        return ""
    keys = range(len(group)) if isinstance(group, list) else [*group]
    group, key = _last(group, key if key in keys else keys[-1])
    tokens, slot = group.ca.items.get(key), 0 if isinstance(group, list) else 2
    if not tokens or tokens[slot] is None:
        return ""
    beside, _, below = tokens[slot].value.partition("\n")
    tokens[slot].value = f"{beside}\n"
    if not beside:
        tokens[slot] = None
    return str(below)


def _give_comment(group: Any, key: Any, comment: str, *, before: bool = False) -> None:
    """Put comment lines after a value, or before its key."""
    if not comment:
        return
    from ruamel.yaml.error import CommentMark
    from ruamel.yaml.tokens import CommentToken

    tokens = group.ca.items.setdefault(key, [None, None, None, None])
    if before:
        indents = [len(line) - len(line.lstrip()) for line in comment.splitlines()]
        lines = zip(comment.splitlines(), indents, strict=True)
        tokens[1] = [CommentToken(f"{line.strip()}\n", CommentMark(indent)) for line, indent in lines]
        return
    slot = 0 if isinstance(group, list) else 2
    if tokens[slot] is None:
        tokens[slot] = CommentToken("\n", CommentMark(0))
    tokens[slot].value += comment
