"""The plugin for Claude Code: the MCP server, and hooks that add recent context and capture conversations.

It is written to Kept's home as a marketplace with one plugin, which Claude Code's settings then name.
"""

from __future__ import annotations

import json
import os
from typing import Any

from kept import __version__
from kept.server_command import ServerCommand

MARKETPLACE = "kept"
PLUGIN = "kept"
FOLDER = "claude-code"
"""Folder of the plugin in the home of Kept."""
_DESCRIPTION = "Long-term memory: notes, daily logs and past conversations, recalled by meaning and by word."
_START_TIMEOUT_S = 30
_CAPTURE_TIMEOUT_S = 60

README = """# Kept for Claude Code

Written by `kept connect claude-code`; `kept connect claude-code --undo` removes it again.

It starts `kept mcp`, so that Claude can search, read and write your long-term memory. When a session begins, a hook
adds your recent notes and the end of the last conversation in the same folder to the context, quoted and marked as
data. When Claude stops, when a session ends and before it is compacted, a hook copies the conversation into Kept.

Kept calls no model for this. But whatever Claude Code reads is part of its session, so it goes to the provider of the
model with the next request: what the hook adds at the beginning of every session, and what the tools return.
"""


def plugin_files(command: ServerCommand) -> dict[str, bytes]:
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
        f"{PLUGIN}/hooks/hooks.json": _json({"hooks": hooks(command)}),
        f"{PLUGIN}/README.md": README.encode(),
    }


def hooks(command: ServerCommand) -> dict[str, Any]:
    capture = _hook(command.shell("hook", "capture"), _CAPTURE_TIMEOUT_S)
    return {
        "SessionStart": _hook(command.shell("hook", "session-start"), _START_TIMEOUT_S),
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
