"""The server: what the SDK asks it, answered from the tools. Everything that touches a disk runs in a thread."""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError

from kept import __version__
from kept.errors import KeptError, status_of
from kept.mcp.progress import ProgressRelay
from kept.mcp.texts import (
    INSTRUCTIONS,
    RECALL_DESCRIPTION,
    RECALL_NAME,
    RECALL_TITLE,
    RECALL_TOPIC,
    recall_text,
)
from kept.tools.catalogue import TOOLS, Tool

if TYPE_CHECKING:
    from kept.live import LiveIndex
    from kept.tools.toolbox import Toolbox, ToolOutcome

Context = ServerRequestContext[Any, Any]
T = TypeVar("T")

_MAX_TOPIC_CHARS = 1_000

log = logging.getLogger(__name__)


class MemoryServer:
    """Answers over a memory that is opened by the first call that needs it: a client is greeted without waiting, and
    what is wrong with the memory is said where it is used."""

    def __init__(self, open_toolbox: Callable[[], Toolbox]) -> None:
        self._open_toolbox = open_toolbox
        self._opening = threading.Lock()
        self._toolbox: Toolbox | None = None
        self._live: LiveIndex | None = None
        self.protocol: Server[Any] = Server(
            "kept",
            version=__version__,
            title="Kept",
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
        )

    def toolbox(self) -> Toolbox:
        with self._opening:
            if self._toolbox is None:
                self._toolbox = self._open_toolbox()
            return self._toolbox

    def close(self) -> None:
        with self._opening:
            if self._live is not None:
                self._live.stop()
            if self._toolbox is not None:
                self._toolbox.close()

    def _keep_live(self) -> None:
        """From now on the index follows the notes by itself, once there is one. Until then it is left to the first
        search, which can tell the client how far it is."""
        memory = self.toolbox().memory
        with self._opening:
            if self._live is None and os.path.exists(memory.index_service.path):
                from kept.live import LiveIndex

                self._live = LiveIndex(memory).start()

    # tools

    async def _list_tools(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        # A client that asks for the tools is about to use them.
        threading.Thread(target=self._warm_up, name="kept-warm-up", daemon=True).start()
        return types.ListToolsResult(tools=[_tool(one) for one in TOOLS])

    def _warm_up(self) -> None:
        try:
            self._keep_live()
        except KeptError as exc:
            log.info("not kept live: %s", exc.code)  # the first call says it to whoever can do something about it

    async def _call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        relay = ProgressRelay(ctx.session.report_progress)
        run = functools.partial(self._run, params.name, params.arguments or {}, relay)
        async with anyio.create_task_group() as tasks:
            if ctx.meta and ctx.meta.get("progress_token") is not None:
                tasks.start_soon(relay.run)
            # A client that gives up is let go at once; what was asked is brought to its end by the thread.
            outcome = await anyio.to_thread.run_sync(run, abandon_on_cancel=True)
            tasks.cancel_scope.cancel()
        return _result(outcome)

    def _run(self, name: str, arguments: dict[str, Any], relay: ProgressRelay) -> ToolOutcome:
        from kept.tools.toolbox import error_outcome

        try:
            outcome = self.toolbox().run(name, arguments, progress=relay.callback)
            self._warm_up()
            return outcome
        except KeptError as exc:
            return error_outcome(exc)
        except Exception as exc:
            # A server outlives a call that went wrong in a way that nobody has thought of.
            log.exception("tool %s failed", name)
            return error_outcome(KeptError(f"Something went wrong that should not: {type(exc).__name__}."))

    # resources

    async def _list_resources(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        from kept.mcp.resources import MIME_TYPE, list_notes

        listed, more = await _in_thread(lambda: list_notes(self.toolbox().memory, params.cursor if params else None))
        resources = [
            types.Resource(
                uri=one.uri,
                name=one.name,
                title=one.title,
                mime_type=MIME_TYPE,
                size=one.size,
                annotations=types.Annotations(last_modified=one.modified),
            )
            for one in listed
        ]
        return types.ListResourcesResult(resources=resources, next_cursor=more)

    async def _list_templates(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        from kept.mcp.resources import DAILY, MIME_TYPE
        from kept.tools.citation import NOTES

        note = types.ResourceTemplate(
            uri_template=NOTES + "{+path}", name="note", title="A note by its path", mime_type=MIME_TYPE
        )
        daily = types.ResourceTemplate(
            uri_template=DAILY + "{date}",
            name="daily",
            title="The log of a day",
            mime_type=MIME_TYPE,
        )
        return types.ListResourceTemplatesResult(resource_templates=[note, daily])

    async def _read_resource(self, ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        from kept.mcp.resources import MIME_TYPE, read_resource

        text = await _in_thread(lambda: read_resource(self.toolbox().memory, params.uri))
        contents = types.TextResourceContents(uri=params.uri, text=text, mime_type=MIME_TYPE)
        return types.ReadResourceResult(contents=[contents])

    # prompts

    async def _list_prompts(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        topic = types.PromptArgument(name="topic", description=RECALL_TOPIC, required=False)
        recall = types.Prompt(name=RECALL_NAME, title=RECALL_TITLE, description=RECALL_DESCRIPTION, arguments=[topic])
        return types.ListPromptsResult(prompts=[recall])

    async def _get_prompt(self, ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        if params.name != RECALL_NAME:
            raise MCPError(types.INVALID_PARAMS, f"There is no prompt '{params.name}'. There is: {RECALL_NAME}.")
        topic = " ".join((params.arguments or {}).get("topic", "").split())[:_MAX_TOPIC_CHARS]
        content = types.TextContent(type="text", text=recall_text(topic))
        message = types.PromptMessage(role="user", content=content)
        return types.GetPromptResult(description=RECALL_DESCRIPTION, messages=[message])


async def _in_thread(action: Callable[[], T]) -> T:
    try:
        return await anyio.to_thread.run_sync(action, abandon_on_cancel=True)
    except KeptError as exc:
        raise MCPError(status_of(exc).jsonrpc, f"{exc.message} {exc.hint}".strip(), {"code": exc.code}) from exc


def _tool(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.parameters,
        output_schema=tool.output,
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.read_only,
            destructive_hint=False,  # what writes only appends
            idempotent_hint=tool.idempotent,
            open_world_hint=False,
        ),
    )


def _result(outcome: ToolOutcome) -> types.CallToolResult:
    content: list[Any] = [types.TextContent(type="text", text=outcome.text)]
    if outcome.is_error:
        # Without structured content: clients hold that against the schema of an answer.
        return types.CallToolResult(content=content, is_error=True)
    return types.CallToolResult(content=content, structured_content=outcome.data)
