"""Formats that can be imported: which of them a file looks like, and where other programs keep their conversations."""

from __future__ import annotations

import os
import re
from itertools import islice
from typing import Any, Literal

from kept.sessions.importers.source import ZIP_ERRORS, ExportPart, ExportRefused, find_parts, load_json

Format = Literal["openclaw", "claude-code", "codex", "pi", "chatgpt", "claude-ai"]
NOUNS: dict[Format, str] = {
    "openclaw": "an OpenClaw transcript",
    "claude-code": "a Claude Code transcript",
    "codex": "a Codex transcript",
    "pi": "a pi transcript",
    "chatgpt": "a ChatGPT export",
    "claude-ai": "a Claude.ai export",
}
EXPORTS: tuple[Format, ...] = ("chatgpt", "claude-ai")
"""Formats of chat services: JSON documents, in a zip file as a rule."""
_SAME_FILES: tuple[Format, ...] = ("pi", "openclaw")
_START_BYTES = 256_000
_LINES_READ = 50
_CHATGPT = re.compile(rb'"mapping"\s*:\s*\{')
_CLAUDE_AI = re.compile(rb'"chat_messages"\s*:\s*\[')
_CODEX_TYPES = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")


def guess_format(path: str) -> Format | None:
    """Return the format that a file looks like, by its first bytes. None if it looks like none of them."""
    try:
        parts = find_parts(path)
        return next((guess for part in parts if (guess := guess_part(part)) is not None), None)
    except (OSError, ExportRefused):
        return None


def guess_part(part: ExportPart) -> Format | None:
    try:
        with part.open() as file:
            start = file.read(_START_BYTES)
    except (OSError, ExportRefused, *ZIP_ERRORS):  # the import itself reports it
        return None
    if _CHATGPT.search(start):
        return "chatgpt"
    if _CLAUDE_AI.search(start):
        return "claude-ai"
    trees = map(load_json, islice(start.splitlines(), _LINES_READ))
    guesses = (_guess_record(tree) for tree in trees if isinstance(tree, dict))
    return next((guess for guess in guesses if guess is not None), None)


def are_alike(first: Format, second: Format) -> bool:
    """Return whether two programs write the same files. OpenClaw writes those of pi."""
    return first == second or (first in _SAME_FILES and second in _SAME_FILES)


def _guess_record(tree: dict[str, Any]) -> Format | None:
    kind = tree.get("type")
    if kind in _CODEX_TYPES and isinstance(tree.get("payload"), dict):
        return "codex"
    if isinstance(tree.get("sessionId"), str) or "parentUuid" in tree or "leafUuid" in tree:
        return "claude-code"
    if kind == "session" and isinstance(tree.get("id"), str):
        return "pi"
    if kind == "message":
        return "pi" if isinstance(tree.get("message"), dict) else "codex" if "role" in tree else None
    return "codex" if kind is None and {"id", "timestamp", "instructions"} <= tree.keys() else None


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
