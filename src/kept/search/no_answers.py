"""What a passage may have that answers nothing: headings with no text below them, and tasks that are done. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

_DONE = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s+\[[xX]\](?:\s|$)")
"""Beginning of a line with a task that is done."""


def may_answer(text: str) -> bool:
    """Return whether a passage has more than headings and tasks that are done."""
    return any(line.strip() and not line.startswith("#") and not _DONE.match(line) for line in text.split("\n"))


def is_done(text: str, matched: Iterable[str], stems: Callable[[str], list[str]]) -> bool:
    """Return whether all words of a query that a passage has are in tasks that are done."""
    done: list[str] = []
    others: list[str] = []
    for line in text.split("\n"):
        (done if _DONE.match(line) else others).append(line)
    in_done, elsewhere = {*stems("\n".join(done))}, {*stems("\n".join(others))}
    words = [stems(word) for word in matched] if done else []
    return bool(words) and all(in_done.issuperset(word) and not elsewhere.issuperset(word) for word in words)
