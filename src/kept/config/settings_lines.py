"""Lines of a settings file: where a setting is, where a new one belongs, and the text without one.

Works on block style, which people write. The caller checks the result, and changes anything else another way.
"""

from __future__ import annotations

from typing import Any

from kept.values import frozen

Step = str | int
Path = tuple[Step, ...]
"""Where a value is in a file: keys of mappings, and numbers of list items."""


@frozen
class Insertion:
    """Place for new lines."""

    line: int
    """Number of lines before it."""
    column: int
    depth: int
    """Number of steps of the path that the file has already."""


def open_document(text: str) -> Any:
    """Return a reader and writer that keeps comments, order and quotes, and indents lists as the text does."""
    from ruamel.yaml import YAML

    document = YAML()
    document.preserve_quotes = True
    document.width = 10_000  # no line is folded
    dash, width = _list_indent(text)
    document.indent(mapping=2, sequence=dash + width, offset=dash)
    return document


def find_insertion(text: str, path: Path) -> Insertion | None:
    """Return where lines for a new value belong, or None if the file has the value or needs another kind of change."""
    tree = open_document(text).load(text)
    depth = 0
    for step in path:
        following = _child(tree, step)
        if following is None:
            break
        tree, depth = following, depth + 1
    if depth == len(path) or not tree or not hasattr(tree, "fa") or tree.fa.flow_style():
        return None
    if isinstance(tree, dict) and path[depth] in tree:  # it is there, without a value
        return None
    is_list = isinstance(tree, list)
    line, column = tree.lc.item(0) if is_list else tree.lc.key(next(iter(tree)))
    lines = text.splitlines()
    if is_list:
        column = _indent(lines[line])
    return Insertion(_end(lines, line, column, items=is_list), column, depth)


def without_lines(text: str, path: Path) -> str:
    """Return the text without the lines of a key, from the key to the next one that is as deep."""
    tree = open_document(text).load(text)
    for step in path[:-1]:
        tree = tree[step]
    line, column = tree.lc.key(path[-1])
    lines = text.splitlines(keepends=True)
    end = line + 1
    for number in range(line + 1, len(lines)):
        stripped = lines[number].strip()
        is_item = _indent(lines[number]) == column and stripped.startswith("- ")
        if stripped and _indent(lines[number]) <= column and not is_item:
            break
        if stripped:
            end = number + 1
    return "".join(lines[:line] + lines[end:])


def _child(tree: Any, step: Step) -> Any:
    if isinstance(tree, dict):
        return tree.get(step)
    is_item = isinstance(tree, list) and isinstance(step, int) and step < len(tree)
    return tree[step] if is_item else None


def _end(lines: list[str], start: int, column: int, *, items: bool) -> int:
    """Return the number of lines up to the last one of a group, without the comments after it."""
    end = start + 1
    for number in range(start + 1, len(lines)):
        stripped = lines[number].strip()
        if not stripped or stripped.startswith("#"):
            continue
        indent = _indent(lines[number])
        if indent < column or (items and indent == column and not stripped.startswith("-")):
            break
        if not items and indent == column and stripped.startswith("- "):  # the next item of a list around the group
            break
        end = number + 1
    return end


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _list_indent(text: str) -> tuple[int, int]:
    """Return how far the dashes of the first list are indented below its key, and how far the text after a dash."""
    above = 0
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("- "):
            return max(0, _indent(line) - above), len(stripped) - len(stripped[1:].lstrip(" "))
        if stripped and not stripped.startswith("#"):
            above = _indent(line)
    return 2, 2
