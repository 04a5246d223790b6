"""The programs that can be connected: where their settings lie on each system, and the shape of an entry."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

from kept.connect.command import ServerCommand
from kept.errors import UsageError
from kept.values import frozen

Scope = Literal["user", "project"]
Format = Literal["json", "jsonc", "json5", "toml"]
SERVER = "kept"


@frozen
class ClientEnvironment:
    """What decides where a file is."""

    home: str
    project: str
    platform: str
    environ: Mapping[str, str]

    def settings_folder(self) -> str:
        """Where programs with a window keep their settings."""
        if self.platform == "darwin":
            return os.path.join(self.home, "Library", "Application Support")
        if self.platform == "win32":
            return self.environ.get("APPDATA") or os.path.join(self.home, "AppData", "Roaming")
        return self.environ.get("XDG_CONFIG_HOME") or os.path.join(self.home, ".config")


@frozen
class Client:
    name: str
    title: str
    format: Format
    keys: tuple[str, ...]
    """Where in the file its servers are listed."""
    typed: bool
    """Whether an entry says that it is a program on a pipe."""
    scopes: tuple[Scope, ...]
    after: str
    """What is left for the user to do."""


CLIENTS = {
    one.name: one
    for one in (
        Client(
            "claude-code", "Claude Code", "json", ("mcpServers",), True, ("user", "project"), "Restart Claude Code."
        ),
        Client(
            "claude-desktop", "Claude Desktop", "json", ("mcpServers",), False, ("user",), "Restart Claude Desktop."
        ),
        Client(
            "cursor",
            "Cursor",
            "jsonc",
            ("mcpServers",),
            False,
            ("user", "project"),
            "Enable it in Cursor's settings, under MCP.",
        ),
        Client("codex", "Codex", "toml", ("mcp_servers",), False, ("user", "project"), "Restart Codex; /mcp shows it."),
        Client(
            "vscode", "VS Code", "jsonc", ("servers",), True, ("user", "project"), "Start it with 'MCP: List Servers'."
        ),
        Client(
            "openclaw",
            "OpenClaw",
            "json5",
            ("mcp", "servers"),
            False,
            ("user",),
            "Restart the gateway; 'openclaw mcp doctor kept --probe' tries it.",
        ),
    )
}


def locate(client: Client, scope: Scope, around: ClientEnvironment) -> str:
    """The file that lists a client's servers."""
    if scope not in client.scopes:
        raise UsageError(f"{client.title} has no settings for a single project.", hint="Leave out --scope.")
    if scope == "project":
        places = {
            "claude-code": (".mcp.json",),
            "cursor": (".cursor", "mcp.json"),
            "codex": (".codex", "config.toml"),
            "vscode": (".vscode", "mcp.json"),
        }
        return os.path.join(around.project, *places[client.name])
    match client.name:
        case "claude-code":
            return os.path.join(claude_folder(around), "settings.json")
        case "claude-desktop":
            return os.path.join(around.settings_folder(), "Claude", "claude_desktop_config.json")
        case "cursor":
            return os.path.join(around.home, ".cursor", "mcp.json")
        case "codex":
            folder = around.environ.get("CODEX_HOME") or os.path.join(around.home, ".codex")
            return os.path.join(folder, "config.toml")
        case "vscode":
            return os.path.join(around.settings_folder(), "Code", "User", "mcp.json")
        case _:
            folder = around.environ.get("OPENCLAW_STATE_DIR") or os.path.join(around.home, ".openclaw")
            return around.environ.get("OPENCLAW_CONFIG_PATH") or os.path.join(folder, "openclaw.json")


def claude_folder(around: ClientEnvironment) -> str:
    return around.environ.get("CLAUDE_CONFIG_DIR") or os.path.join(around.home, ".claude")


def entry_for(client: Client, command: ServerCommand) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "stdio"} if client.typed else {}
    return {**entry, "command": command.program, "args": command.args("mcp")}
