"""HTTP servers on loopback for tests: what all of them do alike."""

from __future__ import annotations

import socket
import struct
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class LoopbackHttp(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        kind = sys.exc_info()[0]
        # Clients may hang up early. Any other error is a bug in this server.
        if kind is None or not issubclass(kind, OSError | ValueError):
            super().handle_error(request, client_address)


class LoopbackHandler(BaseHTTPRequestHandler):
    """Base of handlers. Derive from BaseHTTPRequestHandler too: linters know its names of methods."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two packets; send the second at once

    def break_off(self) -> None:
        """Reset the connection instead of closing it."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def log_message(self, *_: Any) -> None:
        pass
