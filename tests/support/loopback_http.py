"""HTTP servers on loopback for tests: what all of them do alike."""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class LoopbackHttp(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    owner: Any

    def handle_error(self, request: Any, client_address: Any) -> None:
        kind = sys.exc_info()[0]
        # Clients may hang up early. Any other error is a bug in this server.
        if kind is None or not issubclass(kind, OSError | ValueError):
            super().handle_error(request, client_address)


class LoopbackServer:
    """Serves in a thread until `stop`, or until the end of a `with` block. Handlers find it as `self.server.owner`."""

    def __init__(self, handler: type[LoopbackHandler]) -> None:
        self.stopped = threading.Event()
        self._http = LoopbackHttp(("127.0.0.1", 0), handler)
        self._http.owner = self
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if not self.stopped.is_set():
            self.stopped.set()
            self._http.shutdown()
            self._http.server_close()


class LoopbackHandler(BaseHTTPRequestHandler):
    """Base of handlers. Derive from BaseHTTPRequestHandler too: linters know its names of methods."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two packets; send the second at once
    server: LoopbackHttp

    def read_body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def send(self, status: int, body: Any = b"", headers: tuple[tuple[str, str], ...] = ()) -> None:
        """Answer with bytes, or with a value as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in (("content-type", "application/json"), *headers):
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def break_off(self) -> None:
        """Reset the connection instead of closing it."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def log_message(self, *_: Any) -> None:
        pass
