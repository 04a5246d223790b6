"""Tools of an agent besides those of its memory: Python functions, and tools of MCP servers.

The schema of a function comes from its signature, the description from its docstring. pydantic reads the signature and
checks the arguments of a call before the function runs.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from kept.clock import Clock
from kept.config import McpServerSettings
from kept.context.shortening import shorten
from kept.errors import UsageError
from kept.limits import CHARS_PER_TOKEN, clip, utf8_safe
from kept.llm.base import ToolSpec
from kept.values import frozen

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from kept.agent.mcp_tools import McpServer, McpTool

Permission = Literal["allow", "ask", "deny"]
"""``allow``: the model may call it. ``ask``: a person decides about each call. ``deny``: it is not offered."""
TIMEOUT_S = 60.0
MAX_RESULT_CHARS = 50_000
"""Longest result of a tool of your own or of an MCP server. A longer one is cut."""


@frozen
class ToolAnswer:
    """Result of a tool for the model. An error is a result too: the model reads it and can react."""

    text: str
    is_error: bool = False


class FunctionTool:
    """Function that a model may call, under its own name. A function that is not async runs in a thread.

    >>> Agent(memory, sessions, model, tools=[weather, FunctionTool(send_mail, permission="ask")])
    """

    def __init__(self, function: Callable[..., Any], *, permission: Permission = "allow") -> None:
        try:
            from pydantic import PydanticUserError, TypeAdapter
        except ImportError:
            raise UsageError("Functions as tools need pydantic.", hint="Install it: pip install pydantic.") from None
        self.permission: Permission = permission
        self._is_async = inspect.iscoroutinefunction(function)
        name = function.__name__
        try:
            routine: Any = function
            self._adapter: TypeAdapter[Any] = TypeAdapter(routine)
            schema = self._adapter.json_schema()
        except (PydanticUserError, NameError, ValueError) as exc:
            reason = clip(str(exc).splitlines()[0], 300)
            raise UsageError(f"The signature of '{name}' cannot be read: {reason}") from exc
        self.spec = ToolSpec(name, inspect.getdoc(function) or name, schema)

    async def call(self, arguments: Mapping[str, Any]) -> ToolAnswer:
        from pydantic import ValidationError
        from pydantic_core import ArgsKwargs

        name, values = self.spec.name, ArgsKwargs((), dict(arguments))
        try:
            async with asyncio.timeout(TIMEOUT_S):
                if self._is_async:
                    result = await self._adapter.validate_python(values)
                else:
                    result = await asyncio.to_thread(self._adapter.validate_python, values)
        except TimeoutError:  # a thread cannot be stopped
            return ToolAnswer(f"{name} took longer than {TIMEOUT_S:g} s. It may still be carried out.", is_error=True)
        except ValidationError as exc:
            problems = (f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in exc.errors())
            return ToolAnswer(f"{name}: {clip('; '.join(problems), 500)}", is_error=True)
        except Exception as exc:  # noqa: BLE001 - the author's function may raise anything, and the model has to know
            return ToolAnswer(f"{name} failed: {type(exc).__name__}: {clip(str(exc), 500)}", is_error=True)
        return ToolAnswer(result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str))


class ExtraTools:
    """All tools that the program and the settings add. ``reserved`` are names that they cannot have."""

    def __init__(
        self,
        functions: Sequence[Callable[..., Any] | FunctionTool],
        servers: Mapping[str, McpServerSettings],
        *,
        reserved: Sequence[str],
        clock: Clock,
    ) -> None:
        tools = [item if isinstance(item, FunctionTool) else FunctionTool(item) for item in functions]
        names = [*reserved, *(tool.spec.name for tool in tools)]
        for tool in tools:
            if names.count(tool.spec.name) > 1:
                raise UsageError(f"Two tools are called '{tool.spec.name}'.", hint="Rename one.")
        self._functions = [tool for tool in tools if tool.permission != "deny"]
        self._servers: list[McpServer] = []
        if servers:
            from kept.agent.mcp_tools import McpServer

            self._servers = [McpServer(name, settings, clock) for name, settings in servers.items()]

    async def prepare(self) -> list[str]:
        """Connect to the servers that are not connected. Return problems for the person."""
        problems = await asyncio.gather(*(server.prepare() for server in self._servers))
        return [problem for problem in problems if problem]

    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self._tools().values())

    def find(self, name: str) -> FunctionTool | McpTool | None:
        return self._tools().get(name)

    async def call(self, tool: FunctionTool | McpTool, arguments: Mapping[str, Any]) -> ToolAnswer:
        """Run a tool, and bound what it returns: it is stored, and becomes part of the context."""
        answer = await tool.call(arguments)
        limit = MAX_RESULT_CHARS // CHARS_PER_TOKEN
        return ToolAnswer(shorten(utf8_safe(answer.text), limit, "the result was too long"), answer.is_error)

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in self._servers))

    def _tools(self) -> dict[str, FunctionTool | McpTool]:
        """Return the tools by name. A function comes before a tool of a server with the same name."""
        tools: dict[str, FunctionTool | McpTool] = {tool.spec.name: tool for tool in self._functions}
        for server in self._servers:
            for tool in server.tools:
                tools.setdefault(tool.spec.name, tool)
        return tools
