"""Measure `kept serve` under load: requests a second and latency, for clients on this machine.

    python -m benchmarks.serving --notes 10000 --clients 1 8 32 --seconds 10

Starts real servers on one home, with a token; clients are spread over them. Each client keeps its connection and calls
`memory_search` over MCP, one question after the other; then it asks for `/v1/models`, which shows what the server
costs by itself. Clients and servers share the cores of this machine. `CPU ms` is what the servers used for a request.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import httpx

from benchmarks.corpus import SEED, Corpus, write_notes
from kept.config import load_config
from kept.memory import Memory
from kept.server.tokens import make_token, token_book
from kept.storage.files.file_storage import FileStorage

ACCEPT = {"Accept": "application/json, text/event-stream"}
UNLIMITED = ("gateway.serve.token_rate_per_s=0", "gateway.serve.address_rate_per_s=0", "model.provider=extractive")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving")
    parser.add_argument("--notes", type=int, default=10_000)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--seconds", type=float, default=10.0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kept-serving-bench-") as scratch:
        home, workspace = os.path.join(scratch, "home"), os.path.join(scratch, "workspace")
        write_notes(workspace, notes=chosen.notes)
        with Memory.of(load_config(home=home, workspace=workspace, environ={})) as memory:
            chunks = memory.sync().chunks
        now = dt.datetime.now(dt.UTC).replace(microsecond=0)
        token, secret = make_token("bench", ("read",), now)
        token_book(FileStorage(home)).change(lambda book: book.with_token(token, now))
        env = {"PATH": os.environ["PATH"], "HOME": scratch, "KEPT_HOME": home, "KEPT_WORKSPACE": workspace}
        process, url = start(env)
        try:
            print(f"{chosen.notes:,} notes, {chunks:,} chunks, {os.cpu_count()} cores")
            print(
                f"{'request':<14}{'clients':>8}{'requests/s':>12}{'p50 ms':>9}{'p95 ms':>9}{'CPU ms':>8}{'failed':>8}"
            )
            for name in ("memory_search", "/v1/models"):
                for clients in chosen.clients:
                    print(asyncio.run(measure(name, url, process.pid, secret, clients, chosen.seconds)), flush=True)
        finally:
            process.terminate()
            process.wait()


def start(env: dict[str, str]) -> tuple[subprocess.Popen, str]:
    settings = [part for setting in UNLIMITED for part in ("--set", setting)]
    command = [os.path.join(os.path.dirname(sys.executable), "kept"), "serve", "--port", "0", *settings]
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if match := re.search(r"Serving at (http://[^/]+)", line):
            return process, match.group(1)
    raise SystemExit("the server did not start")


async def measure(name: str, url: str, pid: int, secret: str, clients: int, seconds: float) -> str:
    questions = Corpus(SEED).questions(200)
    until_s = time.monotonic() + seconds
    times_ms: list[float] = []
    failed = 0

    async def run(number: int) -> None:
        nonlocal failed
        headers = {"Authorization": f"Bearer {secret}", **ACCEPT}
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as client:
            at = number
            while time.monotonic() < until_s:
                started_s = time.perf_counter()
                answer = await send(client, name, questions[at % len(questions)])
                times_ms.append((time.perf_counter() - started_s) * 1000)
                failed += answer.status_code != 200
                at += 1

    started_s, cpu_s = time.monotonic(), cpu_time_s(pid)
    await asyncio.gather(*(run(number) for number in range(clients)))
    took_s = time.monotonic() - started_s
    cpu_ms = (cpu_time_s(pid) - cpu_s) * 1000 / len(times_ms)
    p50, p95 = statistics.median(times_ms), sorted(times_ms)[int(len(times_ms) * 0.95)]
    return f"{name:<14}{clients:>8}{len(times_ms) / took_s:>12.0f}{p50:>9.1f}{p95:>9.1f}{cpu_ms:>8.1f}{failed:>8}"


def cpu_time_s(pid: int) -> float:
    """Return the CPU time that a process has used."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def send(client: httpx.AsyncClient, name: str, question: str) -> httpx.Response:
    if name.startswith("/"):
        return await client.get(name)
    params = {"name": name, "arguments": {"query": question}}
    return await client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})


if __name__ == "__main__":
    main()
