"""The plugin for Claude Code: the server, and hooks that bring recent context in and take what was said along.

It is written as a marketplace of one, in Kept's own folder, which Claude Code's settings then name.
"""

from __future__ import annotations

import json
import os
from typing import Any

from kept import __version__
from kept.connect.command import ServerCommand

MARKETPLACE = "kept"
PLUGIN = "kept"
FOLDER = "claude-code"
"""Below the home of Kept, where the plugin is written."""
_DESCRIPTION = "Long-term memory: notes, daily logs and past conversations, recalled by meaning and by word."
_START_TIMEOUT_S = 30
_CAPTURE_TIMEOUT_S = 60

README = """# Kept for Claude Code

Written by `kept connect claude-code`; `kept connect claude-code --undo` takes it away again.

It starts `kept mcp`, so that Claude can search, read and write your long-term memory. When a session begins, a hook
adds the recent notes and the end of the last conversation in the same folder to the context, quoted and marked as data.
When Claude stops, when a session ends and before it is compacted, a hook copies what was said into Kept, without asking
a model. Nothing leaves this machine.
"""


def plugin_files(command: ServerCommand) -> dict[str, bytes]:
    """Every file of it, by its path below the folder."""
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
    """What Claude Code's settings have to say so that the plugin is used."""
    source = {"source": {"source": "directory", "path": folder}}
    return [
        (("extraKnownMarketplaces", MARKETPLACE), source),
        (("enabledPlugins", f"{PLUGIN}@{MARKETPLACE}"), True),
    ]


def plugin_folder(kept_home: str) -> str:
    return os.path.join(kept_home, FOLDER)


def _json(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode()
