"""Tools of an agent besides those of its memory: Python functions, and tools of MCP servers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kept.agent.function_tool import AgentTool, FunctionTool, ToolAnswer, as_tools
from kept.agent.mcp_tools import McpServer
from kept.clock import Clock
from kept.config import McpServerSettings
from kept.context.shortening import shorten
from kept.errors import UsageError
from kept.limits import CHARS_PER_TOKEN, utf8_safe
from kept.llm.base import ToolSpec


class ExtraTools:
    """All tools that the program and the settings add. ``reserved`` are names that they cannot have."""

    def __init__(
        self,
        functions: Sequence[Callable[..., Any] | FunctionTool],
        servers: Mapping[str, McpServerSettings],
        *,
        reserved: Sequence[str],
        max_result_chars: int,
        clock: Clock,
    ) -> None:
        self._functions = [tool for tool in as_tools(functions) if tool.permission != "deny"]
        for tool in self._functions:
            if tool.spec.name in reserved:
                raise UsageError(
                    f"'{tool.spec.name}' is a tool of the memory.", hint="Wrap yours: FunctionTool(function, name='…')."
                )
        self._servers = [McpServer(name, settings, clock) for name, settings in servers.items()]
        self._max_result_chars = max_result_chars

    async def prepare(self) -> list[str]:
        """Connect to the servers that are not connected. Return problems for the person."""
        problems = await asyncio.gather(*(server.prepare() for server in self._servers))
        return [problem for problem in problems if problem]

    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self._tools().values())

    def find(self, name: str) -> AgentTool | None:
        return self._tools().get(name)

    async def call(self, tool: AgentTool, arguments: Mapping[str, Any]) -> ToolAnswer:
        """Run a tool, and bound what it returns: it is stored, and becomes part of the context."""
        answer = await tool.call(arguments)
        limit = self._max_result_chars // CHARS_PER_TOKEN
        return ToolAnswer(shorten(utf8_safe(answer.text), limit, "the result was too long"), answer.is_error)

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in self._servers))

    def _tools(self) -> dict[str, AgentTool]:
        """Return the tools by name. A function comes before a tool of a server with the same name."""
        tools: dict[str, AgentTool] = {tool.spec.name: tool for tool in self._functions}
        for server in self._servers:
            for tool in server.tools:
                tools.setdefault(tool.spec.name, tool)
        return tools
