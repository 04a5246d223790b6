"""Tools of an agent besides those of its memory: Python functions, and tools of MCP servers.

The schema of a function comes from its signature, the description from its docstring. pydantic reads the signature and
checks the arguments of a call before the function runs.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Literal, TextIO

from kept.agent.tools.toolbox import ToolOutcome
from kept.base.clock import Clock
from kept.base.digest import digest_bytes
from kept.base.limits import (
    CHARS_PER_TOKEN,
    clip,
    is_deep,
    one_line,
    printable_line,
    shorten,
    utf8_safe,
    utf8_safe_tree,
)
from kept.base.redact import redact
from kept.base.values import frozen
from kept.config.schema import McpServerSettings
from kept.errors import UsageError
from kept.models.base import MALFORMED, ToolSpec

if TYPE_CHECKING:
    from mcp import ClientSession
    from pydantic import TypeAdapter


Permission = Literal["allow", "ask", "deny"]
"""``allow``: the model may call it. ``ask``: a person decides about each call. ``deny``: it is not offered."""
TIMEOUT_S = 60.0
MAX_RESULT_CHARS = 50_000
"""Longest result of a tool of your own or of an MCP server. A longer one is cut."""


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

    async def call(self, arguments: Mapping[str, Any]) -> ToolOutcome:
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
            text = f"{name} took longer than {TIMEOUT_S:g} s. It may still be carried out."
        except ValidationError as exc:
            problems = (f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in exc.errors())
            text = f"{name}: {clip('; '.join(problems), 500)}"
        except Exception as exc:  # noqa: BLE001 - the author's function may raise anything, and the model has to know
            text = f"{name} failed: {type(exc).__name__}: {clip(str(exc), 500)}"
        else:
            is_text = isinstance(result, str)
            return ToolOutcome(result if is_text else json.dumps(result, ensure_ascii=False, default=str))
        return ToolOutcome(text, is_error=True)


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
        self._functions: dict[str, FunctionTool | McpTool] = {
            tool.spec.name: tool for tool in tools if tool.permission != "deny"
        }
        self.tools = self._functions
        """Tools that are offered, by name."""
        self.servers = [McpServer(name, settings, clock) for name, settings in servers.items()]

    async def prepare(self) -> list[str]:
        """Connect to the servers that are not connected. Return problems for the person."""
        problems = await asyncio.gather(*(server.prepare() for server in self.servers))
        self.tools = {**self._functions}
        for tool in (tool for server in self.servers for tool in server.tools):
            self.tools.setdefault(tool.spec.name, tool)  # a function comes before a tool of a server with its name
        return [problem for problem in problems if problem]

    async def call(self, tool: FunctionTool | McpTool, arguments: Mapping[str, Any]) -> ToolOutcome:
        """Run a tool, and bound what it returns: it is stored, and becomes part of the context."""
        outcome = await tool.call(arguments)
        limit = MAX_RESULT_CHARS // CHARS_PER_TOKEN
        return ToolOutcome(
            shorten(utf8_safe(outcome.text), limit, "the result was too long"), is_error=outcome.is_error
        )

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in self.servers))


# MCP servers. One is started when a turn first needs its tools, and again when it has died. Each connection lives in a
# task of its own, because the SDK requires that a connection is closed by the task that opened it.

START_TIMEOUT_S = 30.0
RETRY_S = 60.0
"""Pause after a server could not be started, during which turns do not wait for it."""
MAX_TOOLS = 128
"""Tools of one server that are offered."""
_DESCRIPTION_CHARS = 2_000
_MAX_SCHEMA_CHARS = 20_000
_MAX_SCHEMA_DEPTH = 30
_STDERR_CHARS = 2_000
_MAX_NAME = 64
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_STOP_TIMEOUT_S = 15.0
_PING_TIMEOUT_S = 5.0

log = logging.getLogger(__name__)


class ServerGone(Exception):
    """A server that could not be started, or has ended. The message is the reason."""


@frozen
class McpTool:
    """Tool of a server. ``spec`` has its name for the model, ``name`` is the one that the server knows."""

    spec: ToolSpec
    name: str
    permission: Permission
    server: McpServer

    async def call(self, arguments: Mapping[str, Any]) -> ToolOutcome:
        """Call the tool. A call that was under way when the server ended is not repeated: it may be carried out."""
        if MALFORMED in arguments:
            return ToolOutcome(f"{self.spec.name}: the arguments are not a JSON object.", is_error=True)
        server, timeout_s = self.server, self.server.settings.timeout_s
        try:
            await server.connect()
            async with asyncio.timeout(timeout_s):
                result = await server.session.call_tool(self.name, dict(arguments))
            return ToolOutcome(content_text(result), is_error=bool(getattr(result, "is_error", False)))
        except ServerGone as exc:
            text = f"The MCP server '{server.name}' cannot be used: {exc}"
        except TimeoutError:
            text = f"{self.name} took longer than {timeout_s:g} s. It may still be carried out."
        except Exception as exc:  # noqa: BLE001 - the SDK checks results and may raise anything about them
            text = f"{self.name} failed: {explain(exc)}"
            if not await server.is_alive():
                text = f"The MCP server '{server.name}' ended in the call. It is not known whether it was carried out."
        return ToolOutcome(text, is_error=True)


class McpServer:
    """Server of the settings, with the connection to it while there is one."""

    session: ClientSession

    def __init__(self, name: str, settings: McpServerSettings, clock: Clock) -> None:
        self.name = name
        self.settings = settings
        self.tools: tuple[McpTool, ...] = ()
        self._clock = clock
        self._failure = ""
        self._failed_at_ns = 0
        self._connecting = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    async def prepare(self) -> str:
        """Connect if there is no connection, and read the list of tools. Return a problem for the person, or nothing.

        A server that could not be started is not tried again at once: the person would wait for it in every turn.
        """
        if not self._failure or self._clock.time_ns() - self._failed_at_ns >= RETRY_S * 1e9:
            try:
                await self.connect()
                self._failure = ""
            except ServerGone as exc:
                self._failure = f"The MCP server '{self.name}' cannot be used: {exc}"
                self._failed_at_ns, self.tools = self._clock.time_ns(), ()
                log.warning("%s", self._failure)
        return self._failure

    async def close(self) -> None:
        self._stop.set()
        if self._task is not None and not self._task.done():
            _, left = await asyncio.wait([self._task], timeout=_STOP_TIMEOUT_S)
            for task in left:
                task.cancel()
                await asyncio.wait([task])

    async def connect(self) -> None:
        """Make sure that there is a connection. Raise ServerGone if that fails or takes too long."""
        async with self._connecting:  # several turns at once share it
            if await self.is_alive():
                return
            await self.close()
            self._stop = asyncio.Event()
            started: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._hold(started))
            try:
                async with asyncio.timeout(START_TIMEOUT_S):
                    self.tools = tuple(self._offer(await asyncio.shield(started)))
            except TimeoutError:
                await self.close()
                raise ServerGone(f"it did not answer within {START_TIMEOUT_S:g} s.") from None
            except asyncio.CancelledError:
                await self.close()
                raise

    async def is_alive(self) -> bool:
        """Return whether the server answers."""
        if self._task is None or self._task.done():
            return False
        try:
            async with asyncio.timeout(_PING_TIMEOUT_S):
                await self.session.send_ping()
        except Exception:  # noqa: BLE001 - whatever the SDK raises, a new connection is needed
            return False
        return True

    async def _hold(self, started: asyncio.Future[list[Any]]) -> None:
        """Hold a connection until it is closed."""
        errors, last_line = _collect_errors()
        try:
            async with AsyncExitStack() as stack:
                self.session = await _open_session(self.settings, errors, stack)
                tools = (await self.session.list_tools()).tools
                if not started.done():
                    started.set_result(list(tools))
                await self._stop.wait()
        except Exception as exc:  # noqa: BLE001 - the SDK and its transports raise many kinds, also in groups
            wrote = "".join(clip(printable_line(redact(line)), 300) for line in last_line)
            reason = explain(exc) + (f" It wrote: {wrote}" if wrote else "")
            if not started.done():
                started.set_exception(ServerGone(reason))
            else:
                log.warning("a connection to an MCP server ended: %s", reason)
        finally:
            errors.close()
            started.cancel()  # if it is not done

    def _offer(self, listed: Sequence[Any]) -> Iterator[McpTool]:
        """Yield the tools that the settings do not deny, in an order that does not depend on the server."""
        for tool in sorted(listed, key=lambda tool: str(tool.name))[:MAX_TOOLS]:
            permission = self.settings.tools.get(tool.name, self.settings.permission)
            schema = utf8_safe_tree(tool.input_schema)
            is_sane = isinstance(schema, dict) and not is_deep(schema, _MAX_SCHEMA_DEPTH)
            if permission == "deny" or not is_sane or len(json.dumps(schema)) > _MAX_SCHEMA_CHARS:
                continue  # denied, or nothing that can be sent to a model
            description = clip(utf8_safe(tool.description or tool.name), _DESCRIPTION_CHARS)
            spec = ToolSpec(tool_name(self.name, tool.name), description, schema)
            yield McpTool(spec, tool.name, permission, self)


def tool_name(server: str, tool: str) -> str:
    """Return the name of a tool for a model. Providers take 64 letters, digits, '_' and '-'."""
    name = "__".join(_NOT_IN_A_NAME.sub("_", part) for part in (server, tool))
    if len(name) <= _MAX_NAME and name == f"{server}__{tool}":
        return name
    digest = digest_bytes(f"{server}\0{tool}".encode("utf-8", "replace"))
    return f"{name[: _MAX_NAME - 9]}_{digest[:8]}"


def content_text(result: Any) -> str:
    """Return the content of a result as text. Pictures and sounds are named."""
    texts: list[str] = []
    for block in getattr(result, "content", None) or ():
        source = getattr(block, "resource", block)
        text, kind, uri = (getattr(source, name, None) for name in ("text", "mime_type", "uri"))
        if isinstance(text, str):
            texts.append(text)
        else:
            texts.append(f"[{one_line(str(kind or block.type))}{f', {one_line(str(uri))}' if uri else ''}: not shown]")
    structured = getattr(result, "structured_content", None)
    if not texts and structured is not None:
        texts.append(json.dumps(structured, ensure_ascii=False, default=str))
    return utf8_safe("\n\n".join(texts)) or "Done."


async def _open_session(settings: McpServerSettings, errors: TextIO, stack: AsyncExitStack) -> ClientSession:
    """Start or reach a server, and shake hands with it."""
    try:
        from mcp import ClientSession, StdioServerParameters, stdio_client
    except ImportError:
        raise ServerGone("the MCP library is not installed (pip install 'kept[mcp]').") from None
    if settings.url:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        timeout = httpx2.Timeout(START_TIMEOUT_S, read=max(START_TIMEOUT_S, settings.timeout_s))
        is_local = re.match(r"https?://(?:localhost|127\.|\[::1\])", settings.url) is not None
        client = httpx2.AsyncClient(headers=dict(settings.headers), timeout=timeout, trust_env=not is_local)
        await stack.enter_async_context(client)
        streams = await stack.enter_async_context(streamable_http_client(settings.url, http_client=client))
    else:
        parameters = StdioServerParameters(
            command=os.path.expanduser(settings.command or ""),
            args=list(settings.args),
            env=dict(settings.env),
            cwd=os.path.expanduser(settings.cwd) if settings.cwd else None,
            encoding_error_handler="replace",
        )
        streams = await stack.enter_async_context(stdio_client(parameters, errlog=errors))
    session = await stack.enter_async_context(ClientSession(*streams))
    await session.initialize()
    return session


def _collect_errors() -> tuple[TextIO, deque[str]]:
    """Return a file for what a program writes to standard error, and the last line of it."""
    source, target = os.pipe()
    last_line: deque[str] = deque(maxlen=1)

    def read() -> None:
        with open(source, encoding="utf-8", errors="replace") as file:
            while line := file.readline(_STDERR_CHARS):
                last_line.extend([line] if line.strip() else [])

    threading.Thread(target=read, name="kept-mcp-stderr", daemon=True).start()
    return open(target, "w", encoding="utf-8"), last_line


def explain(error: BaseException) -> str:
    """Return the reason of a failure in one line. Groups of errors are reduced to the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ServerGone):
        return str(error)
    if isinstance(error, FileNotFoundError):
        return f"the program '{error.filename}' was not found."
    reason = clip(printable_line(redact(str(error))), 300)
    return f"{type(error).__name__}{f': {reason}' if reason else ''}."
