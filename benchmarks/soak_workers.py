"""One process of the soak test: python -m benchmarks.soak_workers KIND SEED SECONDS

It uses the memory that the environment names and prints one line of JSON: the number of operations, and all errors.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.mcp_start import HELLO
from kept import Memory
from kept.errors import KeptError, LockBusy, StoreBusy

KEPT = os.path.join(os.path.dirname(sys.executable), "kept")
WORDS = [f"{kind}{number}" for kind in ("parrot", "harbour", "engine", "ledger") for number in range(60)]
NOTES_EACH = 12
"""Number of notes that a worker writes and changes, so that the memory does not grow without limit."""
_FAST = ("--set", "memory_search.sync.watch_debounce_ms=100")
_CALL_S = 120.0


class Worker:
    def __init__(self, name: str, seed: int, seconds: float) -> None:
        self.name = f"{name}-{seed}"
        self.random = random.Random(seed)
        self.end = time.monotonic() + seconds
        self.operations = 0
        self.lock_errors: list[str] = []
        self.rebuilt: list[str] = []
        self.failures: list[str] = []

    def repeat(self, *actions: Callable[[], object]) -> None:
        """Run random actions until the time is up, with pauses for the other processes."""
        while time.monotonic() < self.end:
            try:
                self.random.choice(actions)()
                self.operations += 1
            except (LockBusy, StoreBusy) as exc:
                self.lock_errors.append(str(exc))
            except (KeptError, OSError, ValueError) as exc:
                self.failures.append(f"{type(exc).__name__}: {exc}")
            time.sleep(self.random.uniform(0.02, 0.2))

    def look_at(self, text: str) -> None:
        """Record lines that report a rebuild."""
        for line in text.splitlines():
            if "rebuilt" in line or "is damaged" in line:
                self.rebuilt.append(line.strip()[:300])

    def words(self, count: int) -> str:
        return " ".join(self.random.choices(WORDS, k=count))

    def note(self) -> str:
        return f"memory/{self.name}/{self.random.randrange(NOTES_EACH)}.md"

    def report(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "operations": self.operations,
            "lock_errors": self.lock_errors,
            "rebuilt": self.rebuilt,
            "failures": self.failures,
        }


# through the Python API


def use_memory(worker: Worker, *wanted: str) -> None:
    with Memory.open() as memory:

        def search() -> None:
            worker.look_at("\n".join(memory.search(worker.words(2)).degraded))

        def status() -> None:
            worker.look_at("\n".join(memory.status().degraded))

        def sync() -> None:
            worker.look_at(memory.sync().rebuilt or "")

        def write() -> None:
            path = os.path.join(memory.workspace.root, worker.note())
            os.makedirs(os.path.dirname(path), exist_ok=True)
            temporary = f"{path}.tmp"
            with open(temporary, "w", encoding="utf-8") as file:
                file.write(
                    f"# {worker.words(1)}\n\n{worker.words(20)}.\n\n## {worker.words(1)}\n\n{worker.words(30)}.\n"
                )
            os.replace(temporary, path)

        def add() -> None:
            memory.add(worker.words(6), to=worker.note())

        actions = {"search": search, "status": status, "sync": sync, "write": write, "add": add}
        worker.repeat(*(actions[name] for name in wanted))


# through the command line


def use_commands(worker: Worker) -> None:
    def run(*command: str) -> None:
        ended = subprocess.run([KEPT, *command], capture_output=True, text=True, timeout=_CALL_S)
        worker.look_at(ended.stdout + ended.stderr)
        sys.stderr.write(ended.stderr)
        if ended.returncode:
            said = ended.stderr.strip()
            busy = "Another process" in said
            (worker.lock_errors if busy else worker.failures).append(f"kept {command[0]}: {ended.returncode} {said}")

    worker.repeat(
        lambda: run("search", worker.words(2)),
        lambda: run("search", worker.words(1), "--json"),
        lambda: run("add", worker.words(5), "--to", worker.note()),
        lambda: run("index"),
        lambda: run("status"),
    )


# through servers


@contextmanager
def started(worker: Worker, *command: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([KEPT, *_FAST, *command], text=True, **options)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        if process.wait(_CALL_S) not in (0, -signal.SIGTERM, 128 + signal.SIGTERM):
            worker.failures.append(f"kept {command[-1]} ended with {process.returncode}")


def use_watch(worker: Worker) -> None:
    with started(worker, "index", "--watch", stdout=subprocess.DEVNULL):
        use_memory(worker, "write", "search")


def use_mcp(worker: Worker) -> None:
    with started(worker, "mcp", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        send = _line_sender(server)
        send(HELLO)
        server.stdin.write('{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        numbers = iter(range(2, 10**9))

        def call(tool: str, **arguments: Any) -> None:
            request = {"jsonrpc": "2.0", "id": next(numbers), "method": "tools/call"}
            answer = send({**request, "params": {"name": tool, "arguments": arguments}})
            worker.look_at("\n".join(part.get("text", "") for part in answer["result"]["content"]))

        worker.repeat(
            lambda: call("memory_search", query=worker.words(2)),
            lambda: call("memory_write", text=worker.words(6), to=worker.note()),
            lambda: call("memory_status"),
        )


def _line_sender(server: subprocess.Popen[str]) -> Callable[[dict[str, Any]], Any]:
    def send(message: dict[str, Any]) -> Any:
        server.stdin.write(json.dumps(message) + "\n")
        server.stdin.flush()
        while True:
            line = server.stdout.readline()
            if not line:
                raise OSError("the server has ended")
            answer = json.loads(line)
            if answer.get("id") == message["id"]:
                return answer

    return send


def use_gateway(worker: Worker) -> None:
    model = ("--set", "model.provider=extractive", "--set", "gateway.http.port=0")
    with started(worker, *model, "gateway", stderr=subprocess.PIPE) as gateway:
        url = _url_of(gateway)

        def ask() -> None:
            body = json.dumps({"user": f"user{worker.random.randrange(6)}", "text": f"What about {worker.words(2)}?"})
            headers = {"Content-Type": "application/json"}
            request = urllib.request.Request(url, body.encode(), headers)
            with urllib.request.urlopen(request, timeout=_CALL_S) as answer:
                worker.look_at(answer.read().decode())

        worker.repeat(ask)
    for line in gateway.stderr or ():
        sys.stderr.write(line)
        worker.look_at(line)


def _url_of(gateway: subprocess.Popen[str]) -> str:
    for line in gateway.stderr or ():
        sys.stderr.write(line)
        if line.startswith("HTTP: "):
            return line.split()[1].rstrip(",")
    raise OSError("the gateway did not start")


KINDS: dict[str, Callable[[Worker], None]] = {
    "gateway": use_gateway,
    "watch": use_watch,
    "mcp": use_mcp,
    "search": lambda worker: use_memory(worker, "search", "search", "status"),
    "add": lambda worker: use_memory(worker, "add", "write", "search"),
    "index": lambda worker: use_memory(worker, "sync", "status"),
    "command": use_commands,
}


def main(kind: str, seed: str, seconds: str) -> None:
    worker = Worker(kind, int(seed), float(seconds))
    KINDS[kind](worker)
    print(json.dumps(worker.report()))


if __name__ == "__main__":
    main(*sys.argv[1:])
