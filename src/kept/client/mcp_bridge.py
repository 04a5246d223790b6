"""Passes MCP on: each line of standard input goes to the server as a request, and its answers to standard output."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any

from kept.client.server_connection import ServerConnection
from kept.errors import KeptError

_PATH = "/mcp"
_ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
_THREADS = 8
_INTERNAL = -32603


class McpBridge:
    """One client of MCP on this machine. Requests are passed on at once, and answered as they are done."""

    def __init__(self, connection: ServerConnection, output: IO[bytes]) -> None:
        self._connection, self._output = connection, output
        self._lock = threading.Lock()
        self._version: dict[str, str] = {}

    def run(self, lines: IO[bytes]) -> None:
        """Pass on all lines, until there are no more."""
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="kept-mcp") as threads:
            for line in lines:
                if line.strip():
                    threads.submit(self._pass_on, line)

    def _pass_on(self, line: bytes) -> None:
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            request = None
        number = request.get("id") if isinstance(request, dict) else None
        try:
            for answer in self._answers(line):
                if isinstance(request, dict) and request.get("method") == "initialize":
                    self._remember_version(answer)
                self._write(answer)
        except KeptError as exc:
            if number is not None:
                error = {"code": _INTERNAL, "message": f"{exc.message} {exc.hint}".strip(), "data": {"code": exc.code}}
                self._write(json.dumps({"jsonrpc": "2.0", "id": number, "error": error}).encode())

    def _answers(self, line: bytes) -> Iterator[bytes]:
        """Yield what the server answers: one object, or several as events."""
        with self._connection.stream(_PATH, line, {**_ACCEPT, **self._version}) as answer:
            if answer.headers.get("content-type", "").startswith("text/event-stream"):
                for text in answer.iter_lines():
                    if text.startswith("data:") and text[5:].strip():
                        yield text[5:].strip().encode()
            elif body := answer.read().strip():
                yield body

    def _remember_version(self, answer: bytes) -> None:
        """Name the version of the protocol that was agreed on in all later requests, as it asks."""
        result: Any = json.loads(answer).get("result") or {}
        if version := result.get("protocolVersion"):
            self._version = {"MCP-Protocol-Version": version}

    def _write(self, answer: bytes) -> None:
        with self._lock:
            self._output.write(answer.replace(b"\n", b" ") + b"\n")
            self._output.flush()


def run_bridge(connection: ServerConnection) -> None:
    McpBridge(connection, sys.stdout.buffer).run(sys.stdin.buffer)
