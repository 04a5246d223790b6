"""The command line in this process: a process for each of hundreds of damaged files would take minutes."""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from kept.cli.root import cli


class Commands:
    def __init__(self, home: Path, workspace: Path) -> None:
        self.home = home
        self.workspace = workspace

    def run(self, *args: str, stdin: str = "") -> str:
        """What a command prints to standard output. It may end with any code, but not with an error."""
        options = ["--home", str(self.home), "--workspace", str(self.workspace)]
        settings = ["--set", "memory_search.provider=none", "--set", "model.provider=extractive"]
        out, err = _stream(), _stream()
        given = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
        with redirect_stdout(out), redirect_stderr(err), patch.object(sys, "stdin", given):
            cli.main([*options, *settings, *args], prog_name="kept", standalone_mode=False)
        out.flush()
        return out.buffer.getvalue().decode()  # type: ignore[attr-defined]


def _stream() -> io.TextIOWrapper:
    """As `kept` sets up its own: what cannot be encoded is spelt out."""
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
