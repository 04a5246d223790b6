"""HTTP connections that are counted and timed. Importing this needs uvicorn."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from kept.base.net.serving import GRANT, ServerLimits

_FULL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class LimitedProtocol(H11Protocol):
    limits: ClassVar[ServerLimits]
    room: ClassVar[int]
    open: ClassVar[dict[LimitedProtocol, None]]
    """Connections of this server, oldest first."""
    _phase: Any = None
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.open) >= self.room and not self._make_room():
            self.transport = transport
            transport.write(_FULL)
            transport.close()
            return
        self.open[self] = None
        super().connection_made(transport)
        self._update_deadline()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._update_deadline()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._update_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self.open.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def _make_room(self) -> bool:
        """Drop the oldest connection that waits for a request. Return False if all are being answered."""
        oldest = next((connection for connection in self.open if connection._is_waiting()), None)
        if oldest is None:
            return False
        del self.open[oldest]
        oldest.transport.abort()
        return True

    def _is_waiting(self) -> bool:
        """Return whether no request is being answered: none has arrived yet, the last is done, or its body does not
        end and no token or cookie came with it."""
        if self.cycle is None or self.cycle.response_complete:
            return True
        return self.conn.their_state is h11.SEND_BODY and GRANT not in self.cycle.scope

    def _update_deadline(self) -> None:
        """Set a deadline for what the client has to send next. Bytes that trickle in do not extend it."""
        phase = self.conn.their_state
        if phase is self._phase or self.transport.is_closing():
            return
        self._phase = phase
        if self._deadline is not None:
            self._deadline.cancel()
        timeout_s = {h11.IDLE: self.limits.head_s, h11.SEND_BODY: self.limits.body_s}.get(phase)
        if timeout_s is not None:
            self._deadline = self.loop.call_later(timeout_s, self.transport.abort)


def limited_protocol(limits: ServerLimits) -> type[LimitedProtocol]:
    """Return the protocol of one server. Its connections share the limits."""
    shared = {"limits": limits, "room": limits.room(), "open": {}}
    return type("ServerProtocol", (LimitedProtocol,), shared)
