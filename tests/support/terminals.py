"""Run the real command on a pseudo terminal of a given width."""

import fcntl
import os
import pty
import re
import struct
import termios
from pathlib import Path

from tests.support.commands import TIMEOUT_S, start_on

SEQUENCE = re.compile(r"\x1b\[[0-9;]*m|\x1b\]8;;[^\x1b\x07]*\x1b\\")
"""Colours and links: all that Kept writes to a terminal besides text."""


def run_on_terminal(args: list[str], environment: dict[str, str], *, columns: int = 80, typed: bytes = b"") -> str:
    """Return what a command writes to a terminal, with '\\n' as line ends. ``typed`` is what a person types."""
    control, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    env = {"TERM": "xterm-256color", **environment}
    run = start_on((terminal, terminal, terminal), *args, env=env, cwd=Path.cwd())
    os.close(terminal)
    os.write(control, typed)
    output = b""
    while True:
        try:
            part = os.read(control, 65536)
        except OSError:  # Linux reports the end of a terminal so
            break
        if not part:
            break
        output += part
    run.wait(TIMEOUT_S)
    os.close(control)
    return output.decode().replace("\r\n", "\n")


def without_styles(text: str) -> str:
    return SEQUENCE.sub("", text)
