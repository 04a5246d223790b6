"""A stand-in for a network between Kept and PostgreSQL: passes everything on until it is told to cut."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress


class ConnectionCutter:
    """Unix socket in ``folder`` that leads to the server's. Cuts before the n-th message of either side, once."""

    def __init__(self, server_folder: str, folder: str) -> None:
        os.makedirs(folder, exist_ok=True)
        self.folder = folder
        self._target = os.path.join(server_folder, ".s.PGSQL.5432")
        self._lock = threading.Lock()
        self._left: dict[str, int] = {}
        self._open: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(os.path.join(folder, ".s.PGSQL.5432"))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self) -> str:
        return f"postgresql:///postgres?host={self.folder}&user=postgres"

    def cut(self, side: str, after: int) -> None:
        """Cut a connection when the ``client`` or the ``server`` has sent so many messages more."""
        with self._lock:
            self._left = {side: after}

    def close(self) -> None:
        self._listener.close()
        with self._lock:
            for end in self._open:
                _close(end)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._target)
                with self._lock:
                    self._open += [client, server]
                for side, source, sink in (("client", client, server), ("server", server, client)):
                    threading.Thread(target=self._pass_on, args=(side, source, sink), daemon=True).start()

    def _pass_on(self, side: str, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while (data := source.recv(1 << 16)) and not self._is_cut(side):
                sink.sendall(data)
        _close(source)
        _close(sink)

    def _is_cut(self, side: str) -> bool:
        with self._lock:
            if side not in self._left:
                return False
            self._left[side] -= 1
            if self._left[side] >= 0:
                return False
            self._left = {}
            return True


def _close(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
