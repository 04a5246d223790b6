"""MCP server for tests, as a program: `python toy_mcp_server.py [--http PORT] [--fail] [--silent]`."""

import os
import sys
import time

from mcp.server.mcpserver import MCPServer

server = MCPServer("toy")


@server.tool()
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return f"{a} + {b} = {a + b}"


@server.tool()
def whoami() -> str:
    """Return the process id and what the environment holds."""
    return f"pid {os.getpid()} token {os.environ.get('TOY_TOKEN')} key {os.environ.get('OPENAI_API_KEY')}"


@server.tool()
def crash() -> str:
    """End the server."""
    os._exit(3)


@server.tool()
def hang() -> str:
    """Take for ever."""
    time.sleep(600)
    return "never"


@server.tool()
def shout(text: str, times: int = 1) -> str:
    """Repeat a text."""
    return text * times


@server.tool()
def wrong() -> str:
    """Fail."""
    raise ValueError("this tool is broken")


if __name__ == "__main__":
    if "--fail" in sys.argv:
        print("cannot read the licence file", file=sys.stderr)
        sys.exit(1)
    if "--http" in sys.argv:
        server.run("streamable-http", port=int(sys.argv[sys.argv.index("--http") + 1]))
    else:
        server.run("stdio")
