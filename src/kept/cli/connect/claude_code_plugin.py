"""The plugin for Claude Code: the MCP server, and hooks that add recent context and capture conversations.

It is written to Kept's home as a marketplace with one plugin, which Claude Code's settings then name.
"""

from __future__ import annotations

import json
import os
from typing import Any, Literal

from kept import __version__
from kept.gateway.server_command import ServerCommand

MARKETPLACE = "kept"
PLUGIN = "kept"
FOLDER = "claude-code"
"""Folder of the plugin in the home of Kept."""
_DESCRIPTION = "Long-term memory: notes, daily logs and past conversations, recalled by meaning and by word."
_START_TIMEOUT_S = 30
_CAPTURE_TIMEOUT_S = 60

Sent = Literal["recent", "memory", "nothing"]
"""What the hook at the start of a session adds to the context, which the client sends to its model."""
SENT: dict[Sent, str] = {
    "recent": "MEMORY.md, the notes of the project, the daily notes of yesterday and today, and the end of the last "
    "conversation in the same folder",
    "memory": "MEMORY.md and the notes of the project",
    "nothing": "nothing",
}
_README = """# Kept for Claude Code

Written by `kept connect claude-code`; `kept connect claude-code --undo` removes it again.

It starts `kept mcp`, so that Claude can search, read and write your long-term memory. What a tool returns is part of
the session: it goes to the provider of the model.

Sent at the start of each session, in every folder: {sent}. It is quoted, marked as data, and at most 8,000 characters
long. `kept connect claude-code --send recent|memory|nothing` changes that.

When Claude stops, when a session ends and before it is compacted, a hook copies the conversation into Kept, on this
machine. The hooks themselves call no model.
"""


def default_sent(layout: str) -> Sent:
    """Return what is sent unless the person chooses: a vault may be a diary."""
    return "memory" if layout == "vault" else "recent"


def plugin_files(command: ServerCommand, sent: Sent) -> dict[str, bytes]:
    """Return the content of every file by its path in the plugin's folder."""
    author = {"name": "Kept"}
    entry = {"name": PLUGIN, "source": f"./{PLUGIN}", "description": _DESCRIPTION, "author": author}
    marketplace = {
        "name": MARKETPLACE,
        "owner": author,
        "metadata": {"description": "Kept's plugin for Claude Code."},
        "plugins": [entry],
    }
    manifest = {
        "name": PLUGIN,
        "version": __version__,
        "description": _DESCRIPTION,
        "author": author,
        "license": "MIT",
        "keywords": ["memory"],
    }
    server = {"mcpServers": {"kept": {"command": command.program, "args": command.args("mcp")}}}
    return {
        ".claude-plugin/marketplace.json": _json(marketplace),
        f"{PLUGIN}/.claude-plugin/plugin.json": _json(manifest),
        f"{PLUGIN}/.mcp.json": _json(server),
        f"{PLUGIN}/hooks/hooks.json": _json({"hooks": hooks(command, sent)}),
        f"{PLUGIN}/README.md": _README.format(sent=SENT[sent]).encode(),
    }


def hooks(command: ServerCommand, sent: Sent) -> dict[str, Any]:
    capture = _hook(command.shell("hook", "capture"), _CAPTURE_TIMEOUT_S)
    start = _hook(command.shell("hook", "session-start", "--send", sent), _START_TIMEOUT_S)
    return {
        **({} if sent == "nothing" else {"SessionStart": start}),
        "Stop": capture,
        "PreCompact": capture,
        "SessionEnd": capture,
    }


def _hook(command: str, timeout_s: int) -> list[dict[str, Any]]:
    return [{"hooks": [{"type": "command", "command": command, "timeout": timeout_s}]}]


def settings_entries(folder: str) -> list[tuple[tuple[str, ...], Any]]:
    """Return the entries of Claude Code's settings that enable the plugin, each with its path."""
    source = {"source": {"source": "directory", "path": folder}}
    return [
        (("extraKnownMarketplaces", MARKETPLACE), source),
        (("enabledPlugins", f"{PLUGIN}@{MARKETPLACE}"), True),
    ]


def plugin_folder(kept_home: str) -> str:
    return os.path.join(kept_home, FOLDER)


def _json(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode()
