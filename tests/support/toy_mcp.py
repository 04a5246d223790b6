"""Settings for the MCP server of the tests, and calls of its tools."""

import sys
from pathlib import Path
from typing import Any

from kept.models.base import ToolUse

SERVER = str(Path(__file__).with_name("toy_mcp_server.py"))


def toy(*args: str, **more: Any) -> dict[str, Any]:
    """Settings of a server called toy."""
    given = {"command": sys.executable, "args": [SERVER, *args], "permission": "allow", **more}
    return {f"mcp_servers.toy.{name}": value for name, value in given.items()}


def use(name: str, **arguments: Any) -> list[ToolUse]:
    return [ToolUse("1", f"toy__{name}", arguments)]
