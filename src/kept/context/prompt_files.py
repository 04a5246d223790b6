"""Choose what of the workspace files is part of the system prompt. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kept.context.shortening import TrimmedText, keep_head, shorten_lines
from kept.limits import estimate_tokens
from kept.values import frozen
from kept.workspace.workspace import INFORMING, INSTRUCTING, LONG_TERM


@frozen
class WorkspaceFile:
    name: str
    text: str


@frozen
class ShownFile:
    """Workspace file as a prompt shows it."""

    name: str
    text: str
    cut: TrimmedText | None = None
    """What is missing, if it is shown in part."""

    def shows(self, line: int) -> bool:
        """Return whether a line is surely part of the prompt."""
        return self.cut is None or (self.cut.from_line is not None and line < self.cut.from_line)


def is_long_term(name: str) -> bool:
    """Return whether a file is a long-term memory: that of all, or that of a person."""
    return name.rpartition("/")[2] in LONG_TERM


def choose_shown(files: Sequence[WorkspaceFile], *, file_tokens: int, files_tokens: int) -> tuple[ShownFile, ...]:
    """Return the files that are not empty in their order, instructions first, within their limits.

    Long instructions leave half of the room to what the files with facts need. Of long-term memory the beginning is
    shown; of other long files the beginning and the end.
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
        shorten_file = keep_head if is_long_term(file.name) else shorten_lines
        text, cut = shorten_file(file.name, file.text.strip("\n"), min(file_tokens, left))
        left = max(0, left - estimate_tokens(text))
        shown_files.append(ShownFile(file.name, text, cut))
    return tuple(shown_files)
