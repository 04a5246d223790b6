"""Changes one setting in the text of a settings file, and leaves comments, order and formatting as they are. Pure.

Only this module and `settings_lines` import ruamel.yaml, which keeps comments and is slow to import.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from kept.config.read import snake
from kept.config.settings_lines import Path, Step, find_insertion, open_document, without_lines
from kept.errors import ConfigError
from kept.safe_yaml import YamlRefused, load_yaml

_BY_HAND = "Nothing was changed. Change it in an editor: kept config edit"


def find_path(tree: Any, keys: Sequence[str], *, agent: str | None) -> Path:
    """Return where a setting is, or belongs, in a tree as read from a file.

    ``agent`` is the agent in whose entry of agents.list it belongs; None is for all agents. Keys that the file has in
    camelCase stay so.
    """
    if keys[0] == "gateway":
        start: Path = ()
    elif agent is None:
        start = ("agents", "defaults")
    else:
        start = ("agents", "list", _entry_number(tree, agent))
    path: Path = ()
    for step in (*start, *keys):
        path = (*path, _spelling(_at(tree, path), step))
    return path


def find_value(tree: Any, path: Path) -> Any:
    """Return the value at a path, or None."""
    return _at(tree, path)


def set_value(text: str, path: Path, value: Any, *, agent: str | None) -> str:
    """Return the text with a value set at a path. ``agent`` is the id of a list entry that has to be made first."""
    expected = _changed(load_yaml(text), path, value, agent=agent)
    document = open_document(text)
    tree = document.load(text)
    if tree is None:  # nothing but comments, which the library would lose
        lead = text if not text or text.endswith("\n") else f"{text}\n"
        return _checked(lead + _dump(document, expected), expected)
    inserted = _with_inserted(text, path, value, agent=agent)
    if inserted is not None and _reads_as(inserted, expected):
        return inserted
    inner = tree
    for at, step in enumerate(path[:-1]):
        inner = _descend(inner, step, path[at + 1], agent)
    inner[path[-1]] = _quoted(value)
    return _checked(_dump(document, tree), expected)


def remove_value(text: str, path: Path) -> str:
    """Return the text without the value at a path, and without groups that are empty then."""
    tree = load_yaml(text)
    for depth in range(1, len(path) + 1):
        shorter = path[:depth]
        if isinstance(shorter[-1], int) or (depth < len(path) and not _is_only(tree, path, depth)):
            continue
        without = without_lines(text, shorter)
        keeps_comments = depth == len(path) or "#" not in _removed(text, without)
        if keeps_comments and _reads_as(without, _removed_tree(tree, shorter)):
            return without
    document = open_document(text)
    inner = root = document.load(text)
    for step in path[:-1]:
        inner = inner[step]
    del inner[path[-1]]
    return _checked(_dump(document, root), _removed_tree(tree, path))


# reading a tree


def _at(tree: Any, path: Path) -> Any:
    for step in path:
        if isinstance(tree, dict):
            tree = tree.get(step)
        elif isinstance(tree, list) and isinstance(step, int) and step < len(tree):
            tree = tree[step]
        else:
            return None
    return tree


def _spelling(group: Any, step: Step) -> Step:
    if not isinstance(group, dict) or isinstance(step, int):
        return step
    return next((key for key in group if isinstance(key, str) and snake(key) == step), step)


def _entry_number(tree: Any, agent: str) -> int:
    """Return the number of an agent's entry, or the number that a new one gets."""
    entries = _at(tree, ("agents", "list")) or []
    numbers = (at for at, entry in enumerate(entries) if isinstance(entry, dict) and str(entry.get("id")) == agent)
    return next(numbers, len(entries))


def _is_only(tree: Any, path: Path, depth: int) -> bool:
    """Return whether the groups from a depth on contain nothing but the value at the path."""
    groups = [_at(tree, path[:at]) for at in range(depth, len(path))]
    return all(isinstance(group, dict) and len(group) == 1 for group in groups)


def _changed(tree: Any, path: Path, value: Any, *, agent: str | None) -> Any:
    """Return a copy of a tree with a value set, as plain data."""
    if not path:
        return list(value) if isinstance(value, tuple) else value
    step = path[0]
    if isinstance(step, int):
        items = list(tree or [])
        if step == len(items):
            items.append({"id": agent})
        items[step] = _changed(items[step], path[1:], value, agent=agent)
        return items
    group = dict(tree) if isinstance(tree, dict) else {}
    return group | {step: _changed(group.get(step), path[1:], value, agent=agent)}


def _removed_tree(tree: Any, path: Path) -> Any:
    if len(path) == 1:
        return {key: value for key, value in tree.items() if key != path[0]}
    if isinstance(tree, list):
        return [_removed_tree(item, path[1:]) if at == path[0] else item for at, item in enumerate(tree)]
    return tree | {path[0]: _removed_tree(tree[path[0]], path[1:])}


# changing the text


def _with_inserted(text: str, path: Path, value: Any, *, agent: str | None) -> str | None:
    """Return the text with new lines for a value that it does not have yet, or None if it has it or cannot take lines.

    The library would put them after the comments that follow, which are about the next setting.
    """
    insertion = find_insertion(text, path)
    if insertion is None:
        return None
    rest = path[insertion.depth :]
    is_item = isinstance(rest[0], int)
    addition = _changed([] if is_item else {}, (0, *rest[1:]) if is_item else rest, value, agent=agent)
    lines = [f"{'':<{insertion.column}}{line}\n" for line in _dump(open_document("- item"), addition).splitlines()]
    before = text.splitlines(keepends=True)[: insertion.line]
    if before and not before[-1].endswith("\n"):
        before[-1] += "\n"
    return "".join([*before, *lines, *text.splitlines(keepends=True)[insertion.line :]])


def _descend(tree: Any, step: Step, following: Step, agent: str | None) -> Any:
    """Return the group at a step. Make it if it is missing or empty."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

    if isinstance(step, int):
        if step == len(tree):
            tree.append(CommentedMap({"id": _quoted(agent)}))
    elif tree.get(step) is None:
        tree[step] = CommentedSeq() if isinstance(following, int) else CommentedMap()
    return tree[step]


def _quoted(value: Any) -> Any:
    """Return a value as the library should write it. A text that YAML would read as something else gets quotes."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    if isinstance(value, dict):
        group = CommentedMap({key: _quoted(item) for key, item in value.items()})
        group.fa.set_flow_style()
        return group
    if isinstance(value, list | tuple):
        items = CommentedSeq([_quoted(item) for item in value])
        items.fa.set_flow_style()
        return items
    if isinstance(value, str) and not _reads_as(value, value):
        return DoubleQuotedScalarString(value)
    return value


def _dump(document: Any, tree: Any) -> str:
    out = io.StringIO()
    document.dump(_quoted_tree(tree), out)
    return out.getvalue()


def _quoted_tree(tree: Any) -> Any:
    """Return plain data with the texts quoted where needed; a tree of the library has its quotes already."""
    if type(tree) is dict:
        return {key: _quoted_tree(value) for key, value in tree.items()}
    if type(tree) is list and any(isinstance(item, dict) for item in tree):
        return [_quoted_tree(item) for item in tree]
    return _quoted(tree) if type(tree) in (str, list) else tree


def _removed(text: str, without: str) -> str:
    rest = without.splitlines()
    return "\n".join(line for line in text.splitlines() if line not in rest)


def _checked(text: str, expected: Any) -> str:
    """Return the text if Kept reads from it what it should. Otherwise raise ConfigError: the file is too unusual."""
    if not _reads_as(text, expected):
        raise ConfigError("This file cannot be changed without changing its other settings.", hint=_BY_HAND)
    return text


def _reads_as(text: str, expected: Any) -> bool:
    try:
        value = load_yaml(text)
    except YamlRefused:
        return False
    value, expected = _empty_as_none(value), _empty_as_none(expected)
    return bool(value == expected and type(value) is type(expected))


def _empty_as_none(tree: Any) -> Any:
    """Return a tree in which an empty group is None, as a key with nothing after it is read. Both set nothing."""
    if isinstance(tree, dict):
        return {key: _empty_as_none(value) for key, value in tree.items()} or None
    return [_empty_as_none(item) for item in tree] if isinstance(tree, list) else tree
