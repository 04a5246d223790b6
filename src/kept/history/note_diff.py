"""The difference that a change made, as a unified diff."""

from __future__ import annotations

import difflib

from kept.errors import HistoryDamaged
from kept.history.note_change import NoteChange
from kept.history.note_history import NoteHistory

_CONTEXT_LINES = 2


def diff_change(history: NoteHistory, change: NoteChange) -> str:
    """Return the unified diff of a change. A version that cannot be read is named instead."""
    try:
        before, after = history.read_version(change.before), history.read_version(change.after)
    except HistoryDamaged as exc:
        return f"({exc.message})\n"
    diff = diff_versions(before, after, change.was or change.path, change.path)
    return f"{diff}(text of this change was forgotten)\n" if change.forgotten else diff


def diff_versions(before: bytes | None, after: bytes | None, old_path: str, path: str) -> str:
    if before == after:
        return f"rename from {old_path}\nrename to {path}\n" if old_path != path else ""
    lines = difflib.unified_diff(
        _text_lines(before),
        _text_lines(after),
        "/dev/null" if before is None else old_path,
        "/dev/null" if after is None else path,
        n=_CONTEXT_LINES,
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _text_lines(content: bytes | None) -> list[str]:
    text = (content or b"").decode("utf-8", "replace")
    lines = text.split("\n")
    last = lines.pop()
    return [f"{line}\n" for line in lines] + ([last] if last else [])
