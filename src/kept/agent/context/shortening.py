"""Shorten texts and workspace files that exceed their part of the window, and record what was left out. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kept.base.limits import CHARS_PER_TOKEN, estimate_tokens, weigh
from kept.base.values import frozen
from kept.notes.workspace import INFORMING, INSTRUCTING

_HEAD_SHARE = 0.7


def shorten(text: str, limit_tokens: int, note: str) -> str:
    """Return the beginning and the end of a text that is too long, with a remark between them.

    ``note`` is part of that remark, such as where to find the whole text.
    """
    if weigh(text) <= limit_tokens * CHARS_PER_TOKEN:
        return text
    remark = f"\n[… {estimate_tokens(text) - limit_tokens:,} tokens left out here; {note} …]\n"
    room = max(0, limit_tokens - estimate_tokens(remark))
    head_tokens = round(room * _HEAD_SHARE)
    head_chars = _count_fitting_chars(text, head_tokens)
    tail_chars = _count_fitting_chars(text[::-1], room - head_tokens)
    return f"{text[:head_chars]}{remark}{text[len(text) - tail_chars :]}"


def keep_head(name: str, text: str, limit_tokens: int) -> tuple[str, int | None]:
    """Return the first lines of a note, as many as fit, and the number of the first line that is left out.

    They stay the same while lines are added to the end, so a provider's cache of the prompt stays valid.
    """
    if estimate_tokens(text) <= limit_tokens:
        return text, None
    remark = f"[… the rest of {name} is left out here …]"
    lines = text.split("\n")
    count = _count_fitting(lines, max(0, limit_tokens - estimate_tokens(remark)))
    return "\n".join((*lines[:count], remark)), count + 1


def _count_fitting(lines: list[str], limit_tokens: int) -> int:
    left = limit_tokens * CHARS_PER_TOKEN
    for count, line in enumerate(lines):
        left -= weigh(line) + 1
        if left < 0:
            return count
    return len(lines)


def _count_fitting_chars(text: str, limit_tokens: int) -> int:
    """Return how many leading characters fit. Binary search, because characters of some scripts count more."""
    low, high = 0, min(len(text), limit_tokens * CHARS_PER_TOKEN)
    while low < high:
        middle = (low + high + 1) // 2
        if weigh(text[:middle]) <= limit_tokens * CHARS_PER_TOKEN:
            low = middle
        else:
            high = middle - 1
    return low


@frozen
class WorkspaceFile:
    name: str
    text: str


@frozen
class ShownFile:
    """Workspace file as a prompt shows it."""

    name: str
    text: str
    cut_from: int | None = None
    """First missing line, if it is shown in part."""

    def shows(self, line: int) -> bool:
        """Return whether a line is surely part of the prompt."""
        return self.cut_from is None or line < self.cut_from


def choose_shown(files: Sequence[WorkspaceFile], *, file_tokens: int, files_tokens: int) -> tuple[ShownFile, ...]:
    """Return the files that are not empty in their order, instructions first, within their limits.

    Long instructions leave half of the room to what the files with facts need. Of a long file the beginning is shown.
    """
    order = (*INSTRUCTING, *INFORMING)
    ordered = sorted(
        (file for file in files if file.text.strip()),
        key=lambda file: order.index(file.name) if file.name in order else len(order),
    )
    sizes = {file.name: min(file_tokens, estimate_tokens(file.text)) for file in ordered}
    facts = sum(size for name, size in sizes.items() if name not in INSTRUCTING)
    reserved = min(facts, files_tokens // 2)
    left = files_tokens - reserved
    shown_files = []
    for file in ordered:
        if reserved and file.name not in INSTRUCTING:
            left, reserved = left + reserved, 0
        text, cut_from = keep_head(file.name, file.text.strip("\n"), min(file_tokens, left))
        left = max(0, left - estimate_tokens(text))
        shown_files.append(ShownFile(file.name, text, cut_from))
    return tuple(shown_files)
