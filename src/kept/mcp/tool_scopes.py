"""The scope that a token needs for each tool, and the tools as the holder of a token sees them."""

from __future__ import annotations

from collections.abc import Iterator

from kept.errors import UsageError
from kept.grants import Grant, TokenScope
from kept.tools.forget_tool import FORGET_TOOL
from kept.tools.tool_definitions import TOOLS, Tool
from kept.tools.toolbox import Toolbox

TOOL_SCOPES: dict[str, TokenScope] = {
    "memory_search": "read",
    "memory_get": "read",
    "memory_list": "read",
    "memory_status": "read",
    "sessions_search": "read",
    "memory_write": "write",
    "memory_forget": "admin",
}
"""A scope for each tool. A test compares the names with those of the tools. Everything else that a client can ask for,
such as notes as resources, needs the scope `read`, which every token has."""


def require_tool(grant: Grant | None, name: str) -> None:
    """Raise ScopeMissing unless a token allows a tool. A tool without a scope is refused."""
    if grant is None:
        return
    scope = TOOL_SCOPES.get(name)
    if scope is None:
        raise UsageError(f"There is no tool '{name[:64]}'.", hint=f"There are: {', '.join(TOOL_SCOPES)}.")
    grant.require(scope)


def iter_tools(grant: Grant | None) -> Iterator[Tool]:
    """Yield the tools that a token allows."""
    for tool in (*TOOLS, FORGET_TOOL):
        if grant is None or grant.allows(TOOL_SCOPES[tool.name]):
            yield tool


def toolbox_of(toolbox: Toolbox, grant: Grant | None) -> Toolbox:
    """Return the tools on the memory as the person sees it that a token is for."""
    if grant is None or grant.person is None:
        return toolbox
    return toolbox.seen_by(toolbox.memory.as_person(grant.person))
