"""Folders in which other programs keep their conversations, and exports among the downloads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal

from kept.sessions.importers.export_file import is_zip
from kept.sessions.importers.foreign_format import EXPORTS, Format, guess_format
from kept.values import frozen

Program = Literal["claude-code", "codex", "openclaw", "pi"]
PROGRAMS: dict[Program, str] = {"claude-code": "Claude Code", "codex": "Codex", "openclaw": "OpenClaw", "pi": "pi"}
_MAX_DOWNLOADS = 100
_MAX_NAMED_EXPORTS = 10


@frozen
class UserFolders:
    """Everything that the location of a program's files depends on."""

    home: str
    environ: Mapping[str, str]

    def program_folders(self, program: Program) -> list[str]:
        """Return where a program keeps its conversations, the usual folder first. They need not exist."""
        match program:
            case "claude-code":
                roots = self._from("CLAUDE_CONFIG_DIR", ".claude", os.path.join(".config", "claude"))
                return [os.path.join(root, "projects") for root in roots]
            case "codex":
                root = self._from("CODEX_HOME", ".codex")[0]
                return [os.path.join(root, "sessions"), os.path.join(root, "archived_sessions")]
            case "openclaw":
                return self._from("OPENCLAW_STATE_DIR", ".openclaw", ".clawdbot")
            case "pi":
                root = self._from("PI_CODING_AGENT_DIR", os.path.join(".pi", "agent"))[0]
                return [os.path.join(root, "sessions")]

    def existing_folders(self, program: Program) -> list[str]:
        return [folder for folder in self.program_folders(program) if os.path.isdir(folder)]

    def find_exports(self) -> list[tuple[str, Format]]:
        """Return exports of chat services in the folder Downloads, newest first, as they were downloaded."""
        folder = os.path.join(self.home, "Downloads")
        try:
            paths = [entry.path for entry in os.scandir(folder) if entry.name.lower().endswith(".zip")]
            newest = sorted(paths, key=os.path.getmtime, reverse=True)[:_MAX_DOWNLOADS]
        except OSError:
            return []
        guesses = ((path, guess_format(path)) for path in newest if is_zip(path))
        return [(path, guess) for path, guess in guesses if guess in EXPORTS][:_MAX_NAMED_EXPORTS]

    def _from(self, variable: str, *names: str) -> list[str]:
        """Return the folder that a variable names, or the usual ones below the home folder."""
        named = self.environ.get(variable, "").strip()
        if named:
            return [os.path.abspath(os.path.expanduser(named))]
        return [os.path.join(self.home, name) for name in names]
