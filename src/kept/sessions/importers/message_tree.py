"""Order of messages that form a tree: an answer that was generated again, or an edited question, is a branch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def order_branches(parents: Mapping[str, str | None], leaf: str | None) -> list[str]:
    """Return all messages, each after its parent, so that the branch of ``leaf`` comes last at every fork.

    A session continues from its last entry, so it continues on that branch. A message whose parent is missing begins
    a tree of its own; so does one of a loop.
    """
    current = _path_to(parents, leaf)
    children: dict[str, list[str]] = {message: [] for message in parents}
    roots = []
    for message, parent in parents.items():
        if parent is None or parent not in parents:
            roots.append(message)
        else:
            children[parent].append(message)
    ordered: dict[str, None] = {}
    for start in (*_current_last(roots, current), *parents):
        waiting = [start]
        while waiting:
            message = waiting.pop()
            if message not in ordered:
                ordered[message] = None
                waiting += reversed(_current_last(children[message], current))
    return [*ordered]


def find_leaves(parents: Mapping[str, str | None]) -> list[str]:
    with_children = {*parents.values()}
    return [message for message in parents if message not in with_children]


def _path_to(parents: Mapping[str, str | None], leaf: str | None) -> set[str]:
    path: set[str] = set()
    while leaf is not None and leaf in parents and leaf not in path:
        path.add(leaf)
        leaf = parents[leaf]
    return path


def _current_last(messages: Iterable[str], current: set[str]) -> list[str]:
    return sorted(messages, key=lambda message: message in current)
