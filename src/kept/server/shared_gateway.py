"""`SharedGateway`: messages behind several servers on one database.

The server that holds the lease of the gateway answers them, runs the schedules and polls the chat channels. The others
pass requests for messages on to it. If it stops, or is killed or frozen, its lease runs out, and another one goes on
with what was accepted: a message is in the inbox before anybody answers it, and the inbox refuses an old lease.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING

from kept.base.json_values import from_tree, to_tree
from kept.base.limits import read_object
from kept.base.net.serving import App, Receive, Scope, Send, refuse
from kept.base.values import frozen
from kept.errors import DocumentNotFound, KeptError, LeaseLost, LockBusy
from kept.storage.contract import Lease, Storage, Write
from kept.storage.open import GATEWAY_LEASE

if TYPE_CHECKING:
    import httpx
    from starlette.requests import Request

    from kept.gateway.channels.gateway import Gateway
    from kept.gateway.responder import Responder

ADDRESS = "gateway.json"
"""Document of the home: where the server listens that answers messages."""
_RETRY_S = 2.0
_HEARTBEAT_S = 5.0
"""Time between two looks at the lease, which is good for 15."""
_PASSED_ON = "x-kept-passed-on"
_OWN_HEADERS = ("connection", "keep-alive", "transfer-encoding", "content-length", "te", "trailer", "upgrade")
"""Headers of one connection, which are not passed on."""

log = logging.getLogger(__name__)

OpenGateway = Callable[[AsyncExitStack], "Gateway"]


@frozen
class GatewayAddress:
    url: str


class SharedGateway:
    def __init__(self, home: Storage, open_gateway: OpenGateway, url: str) -> None:
        """``open_gateway`` opens what answers messages, and gets what closes its models. ``url`` is where the other
        servers reach this one."""
        self.gateway: Gateway | None = None
        self._home, self._open_gateway = home, open_gateway
        self._address = json.dumps(to_tree(GatewayAddress(url))).encode()
        self._app: App | None = None
        self._stopping = asyncio.Event()
        self._http: httpx.AsyncClient | None = None

    @property
    def responders(self) -> Mapping[str, Responder]:
        """The responders of this server, while it answers."""
        return self.gateway.responders if self.gateway is not None else {}

    def make_endpoints(self) -> App:
        return self

    # answering

    async def run(self) -> None:
        """Answer messages whenever this server holds the lease, until `stop` is called."""
        problem = ""
        while not self._stopping.is_set():
            with ExitStack() as held:
                try:
                    lease = await asyncio.to_thread(held.enter_context, self._home.lease(GATEWAY_LEASE, wait_s=0))
                    await self._answer(lease)
                except (LockBusy, LeaseLost):
                    pass  # another server answers
                except KeptError as exc:
                    if exc.message != problem:  # it is tried again and again
                        log.warning("messages are not answered here: %s", exc.message)
                    problem = exc.message
            await self._pause(_RETRY_S)
        if self._http is not None:
            await self._http.aclose()

    async def _answer(self, lease: Lease) -> None:
        async with AsyncExitStack() as models:
            gateway = self._open_gateway(models)
            keeping = asyncio.create_task(self._keep(lease, gateway))
            try:
                self._app, self.gateway = gateway.make_endpoints(), gateway
                await gateway.run()
            finally:
                self._app = self.gateway = None
                keeping.cancel()
                await asyncio.wait([keeping])

    async def _keep(self, lease: Lease, gateway: Gateway) -> None:
        """Tell the other servers where this one is, again and again. Without the lease, stop at once: another server
        goes on."""
        while True:
            try:
                await asyncio.to_thread(self._home.commit, [Write(ADDRESS, self._address)], lease=lease)
            except LeaseLost:
                gateway.stop()
                gateway.stop()
                return
            except KeptError as exc:
                log.warning("the lease of the gateway cannot be checked: %s", exc.message)
            await asyncio.sleep(_HEARTBEAT_S)

    def stop(self) -> None:
        """Finish the accepted messages, then stop. A second call leaves them to another server."""
        self._stopping.set()
        if self.gateway is not None:
            self.gateway.stop()

    async def _pause(self, time_s: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), time_s)
        except TimeoutError:
            pass

    # passing on

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.requests import Request

        if self._app is not None:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        address = await asyncio.to_thread(self._find_address)
        if address is None or _PASSED_ON in request.headers:
            message = "No server answers messages at the moment. Another one takes over within 20 seconds."
            await refuse(send, 503, "gateway_missing", message, _HEARTBEAT_S)
            return
        await self._pass_on(request, address.url, send)

    def _find_address(self) -> GatewayAddress | None:
        try:
            return from_tree(GatewayAddress, read_object(self._home.documents.read(ADDRESS).data))
        except (DocumentNotFound, ValueError):
            return None

    async def _pass_on(self, request: Request, url: str, send: Send) -> None:
        import httpx
        from starlette.responses import StreamingResponse

        # A reply may take minutes; its heartbeats come every 15 seconds.
        self._http = self._http or httpx.AsyncClient(timeout=httpx.Timeout(60, read=600), trust_env=False)
        headers = [(name, value) for name, value in request.headers.items() if name not in _OWN_HEADERS]
        passed = self._http.build_request(
            request.method,
            url + request.url.path,
            params=request.url.query.encode(),
            headers=[*headers, (_PASSED_ON, "1")],
            content=request.stream(),
        )
        try:
            answer = await self._http.send(passed, stream=True)
        except httpx.HTTPError:
            message = "The server that answers messages cannot be reached. Another one takes over within 20 seconds."
            await refuse(send, 503, "gateway_unreachable", message, _HEARTBEAT_S)
            return
        passed_on = {name: value for name, value in answer.headers.items() if name not in _OWN_HEADERS}
        response = StreamingResponse(_body(answer), answer.status_code, passed_on)
        await response(request.scope, request.receive, send)


async def _body(answer: httpx.Response) -> AsyncIterator[bytes]:
    """Yield the body as it comes. A server that goes away meanwhile ends it: the client asks for the state again."""
    import httpx

    try:
        async for part in answer.aiter_raw():
            yield part
    except httpx.HTTPError:
        log.warning("an answer was broken off: the server that gave it is gone")
    finally:
        await answer.aclose()
