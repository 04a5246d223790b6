"""Running the server over standard input and output, until its client is gone; and as an application for HTTP."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kept.errors import UsageError

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from kept.agent.tools.toolbox import Toolbox
    from kept.server.mcp.server import MemoryServer

PATH = "/mcp"
MAX_BODY_BYTES = 4_000_000


def load_server(open_toolbox: Callable[[], Toolbox], **options: Any) -> MemoryServer:
    """Return a `MemoryServer` with these options."""
    # Importing the SDK creates very many objects that live until the end: searching them for garbage takes a sixth of
    # the time, so collection is off during the import, and skips these objects for good.
    gc.disable()
    try:
        from kept.server.mcp.server import MemoryServer
    except ImportError as exc:
        raise UsageError("'kept mcp' needs the package 'mcp'.", hint="Install it: pip install 'kept[mcp]'") from exc
    finally:
        gc.enable()
    gc.freeze()
    return MemoryServer(open_toolbox, **options)


def run_stdio(server: MemoryServer) -> None:
    """Serve until standard input ends. Meanwhile the SDK sends everything that is printed to standard error."""
    import anyio
    from mcp.server.stdio import stdio_server

    from kept.server.mcp.server import repair_messages

    async def serve() -> None:
        async with stdio_server() as (lines, writing), repair_messages(lines) as reading:
            await server.protocol.run(reading, writing, server.protocol.create_initialization_options())

    # A thread that waits for standard input cannot be stopped. The process may simply end: nothing is lost.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        anyio.run(serve)
    except* BrokenPipeError:
        pass  # the client is gone
    finally:
        server.close()


def make_mcp_app(agent: Toolbox) -> Starlette:
    """Return the application behind `/mcp`. Each request stands for itself, so clients need not begin again after a
    restart of the server."""
    from mcp.server.transport_security import TransportSecuritySettings

    server = load_server(lambda: agent, is_shared=True, searches=agent.memory.settings.enabled)
    return server.protocol.streamable_http_app(
        streamable_http_path=PATH,
        # The guard checks Host and Origin.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        max_request_body_size=MAX_BODY_BYTES,
        stateless_http=True,
    )
