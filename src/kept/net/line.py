"""A connection that can be cut while somebody waits on it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx


class Line:
    """A connection that one call at a time uses, and that another thread can cut."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        self.was_cut = False
        self._lock = threading.Lock()
        self._stream: Any = None
        self._timer: threading.Timer | None = None

    def begin(self, timeout_s: float) -> None:
        with self._lock:
            self._timer = threading.Timer(timeout_s, self.cut)
            self._timer.daemon = True
            self._timer.start()

    def end(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            with self._lock:
                self._stream = info["return_value"]
                if self.was_cut:
                    self._shut()

    def cut(self) -> None:
        """A thread that waits for bytes is not woken by closing its socket, but it is by shutting it down."""
        with self._lock:
            if self._timer is not None:
                self.was_cut = True
                self._shut()

    def _shut(self) -> None:
        connected = self._stream.get_extra_info("socket") if self._stream is not None else None
        if connected is not None:
            try:
                socket.socket.shutdown(connected, socket.SHUT_RDWR)
            except OSError:
                pass  # it is closed already


def close_lines(lines: list[Line]) -> None:
    while lines:
        lines.pop().client.close()
