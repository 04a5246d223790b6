"""`kept serve` as a process, with tokens, and requests to it."""

import datetime as dt
import json
import queue
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from kept.server.tokens import make_token, token_book
from kept.storage.contract import Storage
from kept.storage.files.file_storage import FileStorage
from tests.support.commands import KEPT, kept_environment
from tests.support.mcp_client import ACCEPT
from tests.support.waiting import PATIENCE_S

SETTINGS = ("--set", "model.provider=extractive")
LINKED = """
agents:
  defaults:
    session:
      identity_links:
        ada: ["telegram:5054", "http:ada"]
  list:
    - id: second
"""

TOKENS = {
    "reader": ("read",),
    "writer": ("write",),
    "reviewer": ("review",),
    "editor": ("write", "review"),
    "admin": ("admin",),
}
"""Tokens of the server that several tests share, with their scopes."""


def create_token(home: Path | Storage, name: str, *scopes: str, **options: Any) -> str:
    """Create a token for the home, as `kept token create` does."""
    now = dt.datetime.now(dt.UTC).replace(microsecond=0)
    token, secret = make_token(name, scopes, now, **options)
    storage = FileStorage(str(home)) if isinstance(home, Path) else home
    token_book(storage).change(lambda book: book.with_token(token, now))
    return secret


def revoke_token(home: Path, name: str) -> None:
    token_book(FileStorage(str(home))).change(lambda book: book.revoke(name, dt.datetime.now(dt.UTC)))


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


class ServerProcess:
    """A running server. A thread reads its standard error into `lines`."""

    def __init__(self, tmp_path: Path, *command: str, **env: str) -> None:
        self.lines: list[str] = []
        self._arrived: queue.Queue[str] = queue.Queue()
        self.process = self._start(command, {**kept_environment(tmp_path), **env})
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _start(self, command: tuple[str, ...], environment: dict[str, str]) -> Any:
        quiet = subprocess.DEVNULL
        return subprocess.Popen(command, env=environment, stdin=quiet, stdout=quiet, stderr=subprocess.PIPE, text=True)

    def _read(self) -> None:
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))
            self._arrived.put(line)
        self._arrived.put("")

    def wait_for(self, text: str) -> str:
        while text not in (line := self._arrived.get(timeout=PATIENCE_S)):
            assert line, self.lines
        return line

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        self.process.kill()
        self.wait()

    def wait(self) -> int:
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        self.process.stderr.close()
        return code


class ServeProcess(ServerProcess):
    """`kept serve`, and requests to it."""

    def __init__(self, tmp_path: Path, *options: str, command: tuple[str, ...] = ()) -> None:
        serve = (KEPT, "serve", "--port", "0", "--log-format", "json", *SETTINGS, *options)
        super().__init__(tmp_path, *(command or serve))
        match = re.search(r"http://[^/\"]+", self.wait_for("http://"))
        assert match, self.lines
        self.url = match.group()
        self.port = int(self.url.rpartition(":")[2])

    def requests(self) -> list[dict[str, Any]]:
        """Return what was logged of requests."""
        return [entry for line in [*self.lines] if (entry := json.loads(line)).get("event") == "request"]

    def client(self, token: str | None = None) -> httpx.Client:
        headers = bearer(token) if token else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE_S, trust_env=False)

    def ask(self, token: str | None, method: str, params: dict[str, Any] | None = None) -> httpx.Response:
        """Send a request over MCP."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
        with self.client(token) as client:
            return client.post("/mcp", json=body, headers=ACCEPT)

    def call(self, token: str | None, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool over MCP, and return its result."""
        answer = self.ask(token, "tools/call", {"name": tool, "arguments": arguments})
        assert answer.status_code == 200, answer.text
        return read_result(answer)

    @contextmanager
    def sign_in(self, token: str) -> Iterator[httpx.Client]:
        """Yield a browser that has sent the token to the pages."""
        with self.client() as browser:
            browser.headers["Origin"] = self.url
            answer = browser.post("/login", data={"token": token})
            assert answer.status_code == 303, (answer.status_code, answer.text[-600:])
            yield browser


def read_result(answer: httpx.Response) -> dict[str, Any]:
    (data,) = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
    return json.loads(data)["result"]
