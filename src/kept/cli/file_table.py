"""Notes and conversations as a table of plain text, cut to the width of a terminal.

Not drawn by rich: importing it costs more than reading the list.
"""

from __future__ import annotations

from collections.abc import Sequence

from kept.cli.output import style
from kept.cli.streams import printable
from kept.cli.terminal_layout import columns, cut, text_width
from kept.listings import FileSummary
from kept.wording import size_text

_LONGEST_PATH = 60


def file_lines(files: Sequence[FileSummary], *, dates: bool) -> list[str]:
    """Return a line for each file: when, how large, which, and what it begins with."""
    paths = [printable(file.path).replace("\n", " ") for file in files]
    sizes = [size_text(file.size) for file in files]
    path_width = min(max(map(text_width, paths), default=0), _LONGEST_PATH)
    size_width = max(map(len, sizes), default=0)
    lines = []
    for file, path, size in zip(files, paths, sizes, strict=True):
        when = str(file.timestamp)[:10] if dates else str(file.timestamp)[11:16]
        lead = f"{when}  {size:>{size_width}}  "
        about = _about(file)
        room = columns() - len(lead) - max(path_width, text_width(path)) - 4
        shown_path = style(path, fg="cyan") + " " * max(0, path_width - text_width(path))
        lines.append(f"{lead}{shown_path}  {cut(about, room)}".rstrip())
    return lines


def _about(file: FileSummary) -> str:
    """Return title and first words. The title of a daily note repeats its name, that of a conversation may be its
    first words."""
    is_repeated = file.title in file.path or file.excerpt.startswith(file.title.removesuffix("…"))
    title = "" if is_repeated else file.title
    return printable(": ".join(part for part in (title, file.excerpt) if part)).replace("\n", " ")
