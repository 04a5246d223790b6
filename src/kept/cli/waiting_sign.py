"""A sign at a terminal that an answer is being worked on. It is gone when the next text is written."""

from __future__ import annotations

import os
import sys

from kept.cli.output import use_colour
from kept.cli.streams import unguarded

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ASCII_FRAMES = "|/-\\"
_ERASE_LINE = "\r\x1b[K"
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"
"""Written as they are: `style` marks its sequences for the guarded stream, which escapes all others."""


class WaitingSign:
    """Line that is drawn again and again in the same place. It needs a terminal that can erase a line."""

    def __init__(self) -> None:
        self._is_shown = False
        self._ticks = 0
        self._can_draw = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        encoding = (sys.stdout.encoding or "").lower().replace("-", "")
        self._frames = _FRAMES if encoding == "utf8" else _ASCII_FRAMES

    def draw(self) -> None:
        """Draw the next frame. Call this only where a line begins."""
        if self._can_draw:
            frame = self._frames[self._ticks % len(self._frames)]
            self._ticks += 1
            self._write(f"\r{_DIM}{frame} thinking{_PLAIN}" if use_colour() else f"{_ERASE_LINE}{frame} thinking")
            self._is_shown = True

    def erase(self) -> None:
        if self._is_shown:
            self._write(_ERASE_LINE)
            self._is_shown = False

    def _write(self, text: str) -> None:
        stream = unguarded(sys.stdout)
        stream.write(text)
        stream.flush()
