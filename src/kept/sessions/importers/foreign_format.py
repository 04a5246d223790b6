"""Formats that can be imported, and where other programs keep their conversations."""

from __future__ import annotations

import os
from typing import Literal

Format = Literal["openclaw", "claude-code", "codex", "pi", "chatgpt", "claude-ai"]
Program = Literal["claude-code", "codex", "openclaw", "pi"]
PROGRAMS: dict[Program, str] = {"claude-code": "Claude Code", "codex": "Codex", "openclaw": "OpenClaw", "pi": "pi"}


def program_folders(program: Program) -> list[str]:
    """Return where a program keeps its conversations, the usual folder first. They need not exist."""
    match program:
        case "claude-code":
            roots = _folders("CLAUDE_CONFIG_DIR", ".claude", os.path.join(".config", "claude"))
            return [os.path.join(root, "projects") for root in roots]
        case "codex":
            root = _folders("CODEX_HOME", ".codex")[0]
            return [os.path.join(root, "sessions"), os.path.join(root, "archived_sessions")]
        case "openclaw":
            return _folders("OPENCLAW_STATE_DIR", ".openclaw", ".clawdbot")
        case "pi":
            root = _folders("PI_CODING_AGENT_DIR", os.path.join(".pi", "agent"))[0]
            return [os.path.join(root, "sessions")]


def existing_folders(program: Program) -> list[str]:
    return [folder for folder in program_folders(program) if os.path.isdir(folder)]


def _folders(variable: str, *names: str) -> list[str]:
    """Return the folder that a variable names, or the usual ones below the home folder."""
    named = os.environ.get(variable, "").strip()
    if named:
        return [os.path.abspath(os.path.expanduser(named))]
    return [os.path.expanduser(os.path.join("~", name)) for name in names]
