"""MCP clients of a `kept mcp` process. They send plain JSON, so that they can also send what no library would."""

import json
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.command_forks import KEPT

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
ACCEPT = {"Accept": "application/json, text/event-stream"}


class StdioClient:
    """`kept mcp` as a process that speaks over standard input and output."""

    def __init__(self, env: dict[str, str], cwd: Path, *options: str, after: tuple[str, ...] = ()) -> None:
        command = [KEPT, *options, "mcp", *after]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "encoding": "utf-8"}
        self.process = subprocess.Popen(command, env=env, cwd=cwd, **pipes)
        self._number = 0
        # Kill a server that hangs, which also ends the reading of its output.
        self._watchdog = threading.Timer(60, self.process.kill)
        self._watchdog.start()

    def greet(self) -> dict[str, Any]:
        answer = self.ask("initialize", HELLO)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer["result"]

    def send(self, message: Any) -> None:
        self.send_line(json.dumps(message))

    def send_line(self, line: str) -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def begin(self, method: str, params: dict[str, Any] | None = None) -> int:
        self._number += 1
        self.send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params or {}})
        return self._number

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        number = self.begin(method, params)
        return self.read_until(lambda message: message.get("id") == number)

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        return self.ask("tools/call", {"name": name, "arguments": arguments})["result"]

    def read(self) -> dict[str, Any]:
        line = self.process.stdout.readline()
        assert line, "the server has ended: " + self.errors()
        message = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        return message

    def read_until(self, fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while True:
            message = self.read()
            if fits(message):
                return message

    def errors(self) -> str:
        return self.process.stderr.read()

    def finish(self) -> tuple[int, str, str]:
        """Close the input, as a client does when it leaves. Return the exit code and the remaining output."""
        out, err = self.process.communicate(timeout=60)
        self._watchdog.cancel()
        return self.process.returncode, out, err

    def close(self) -> None:
        self._watchdog.cancel()
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
