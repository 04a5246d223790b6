"""The programs that can be connected: where their settings are on each system, and what an entry looks like."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Literal

from kept import __version__
from kept.agent.recent_context import Sent
from kept.base.values import frozen
from kept.errors import UsageError
from kept.gateway.app import ServerCommand

Scope = Literal["user", "project"]
NAME = "kept"
"""Name of our entry among a client's servers, of the plugin, and of its marketplace."""


@frozen
class ClientEnvironment:
    """Everything that the location of a settings file depends on."""

    home: str
    project: str
    platform: str
    environ: Mapping[str, str]


@frozen
class Client:
    name: str
    title: str
    keys: tuple[str, ...]
    """Path to the list of servers in the file."""
    file: str
    """Path in its folder."""
    next_step: str
    """What the user has to do after connecting."""
    folder: str | None = None
    """Its folder in the home folder, or None for that of desktop applications."""
    variable: str = ""
    """Names another folder."""
    project_file: str | None = None
    """Path below the project's folder, or None for a client without settings per project."""
    has_type: bool = False
    """True if an entry states its transport."""


_ALL = (
    Client(
        "claude-code",
        "Claude Code",
        ("mcpServers",),
        "settings.json",
        "Restart Claude Code. 'kept import claude-code' brings in your sessions with it so far.",
        folder=".claude",
        variable="CLAUDE_CONFIG_DIR",
        project_file=".mcp.json",
        has_type=True,
    ),
    Client(
        "claude-desktop",
        "Claude Desktop",
        ("mcpServers",),
        "Claude/claude_desktop_config.json",
        "Restart Claude Desktop.",
    ),
    Client(
        "cursor",
        "Cursor",
        ("mcpServers",),
        "mcp.json",
        "Enable it in Cursor's settings, under MCP.",
        folder=".cursor",
        project_file=".cursor/mcp.json",
    ),
    Client(
        "codex",
        "Codex",
        ("mcp_servers",),
        "config.toml",
        "Restart Codex; /mcp shows it. 'kept import codex' brings in your sessions with it so far.",
        folder=".codex",
        variable="CODEX_HOME",
        project_file=".codex/config.toml",
    ),
    Client(
        "vscode",
        "VS Code",
        ("servers",),
        "Code/User/mcp.json",
        "Start it with 'MCP: List Servers'.",
        project_file=".vscode/mcp.json",
        has_type=True,
    ),
    Client(
        "openclaw",
        "OpenClaw",
        ("mcp", "servers"),
        "openclaw.json",
        "Restart the gateway; 'openclaw mcp doctor kept --probe' tries it.",
        folder=".openclaw",
        variable="OPENCLAW_STATE_DIR",
    ),
)
CLIENTS = {client.name: client for client in _ALL}


def locate(client: Client, scope: Scope, environment: ClientEnvironment) -> str:
    """Return the path of the file that lists a client's servers."""
    if scope == "project":
        if client.project_file is None:
            raise UsageError(f"{client.title} has no settings for a single project.", hint="Leave out --scope.")
        return os.path.join(environment.project, client.project_file)
    if client.name == "openclaw" and (named := environment.environ.get("OPENCLAW_CONFIG_PATH")):
        return named
    applications = environment.environ.get("XDG_CONFIG_HOME") or ".config"
    if environment.platform == "darwin":
        applications = "Library/Application Support"
    folder = environment.environ.get(client.variable) or client.folder or applications
    return os.path.join(environment.home, folder, client.file)


def entry_for(client: Client, command: ServerCommand, project: str | None = None) -> dict[str, Any]:
    """Return the entry that starts the server, for a project if one is named."""
    entry: dict[str, Any] = {"type": "stdio"} if client.has_type else {}
    options = ("--project", project) if project else ()
    return {**entry, "command": command.program, "args": command.args("mcp", *options)}


# the plugin for Claude Code: the MCP server, and hooks that add recent context and capture conversations. It is written
# to Kept's home as a marketplace with one plugin, which Claude Code's settings then name.

FOLDER = "claude-code"
"""Folder of the plugin in the home of Kept."""
_DESCRIPTION = "Long-term memory: notes, daily logs and past conversations, recalled by meaning and by word."
_START_TIMEOUT_S = 30
_CAPTURE_TIMEOUT_S = 60

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


def plugin_files(command: ServerCommand, sent: Sent) -> dict[str, bytes]:
    """Return the content of every file by its path in the plugin's folder."""
    author = {"name": "Kept"}
    shown = {"name": NAME, "description": _DESCRIPTION, "author": author}
    marketplace = {
        "name": NAME,
        "owner": author,
        "metadata": {"description": "Kept's plugin for Claude Code."},
        "plugins": [{**shown, "source": f"./{NAME}"}],
    }
    server = {"mcpServers": {NAME: {"command": command.program, "args": command.args("mcp")}}}
    return {
        ".claude-plugin/marketplace.json": _json(marketplace),
        f"{NAME}/.claude-plugin/plugin.json": _json({**shown, "version": __version__}),
        f"{NAME}/.mcp.json": _json(server),
        f"{NAME}/hooks/hooks.json": _json({"hooks": _hooks(command, sent)}),
        f"{NAME}/README.md": _README.format(sent=SENT[sent]).encode(),
    }


def _hooks(command: ServerCommand, sent: Sent) -> dict[str, Any]:
    capture, start = (
        [{"hooks": [{"type": "command", "command": line, "timeout": timeout_s}]}]
        for line, timeout_s in (
            (command.shell("hook", "capture"), _CAPTURE_TIMEOUT_S),
            (command.shell("hook", "session-start", "--send", sent), _START_TIMEOUT_S),
        )
    )
    at_start = {} if sent == "nothing" else {"SessionStart": start}
    return {**at_start, "Stop": capture, "PreCompact": capture, "SessionEnd": capture}


def settings_entries(folder: str) -> list[tuple[tuple[str, ...], Any]]:
    """Return the entries of Claude Code's settings that enable the plugin, each with its path."""
    source = {"source": {"source": "directory", "path": folder}}
    return [(("extraKnownMarketplaces", NAME), source), (("enabledPlugins", f"{NAME}@{NAME}"), True)]


def _json(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode()
