"""Many clients that search at once, in the two ways that a team has them. `benchmarks.stores` prints what they take.

`ask_server`: agents and editors on many machines are MCP clients of one `kept serve`, each with a connection of its
own. `ask_readers`: programs that have a memory of their own, as `kept mcp`, gateways and scripts do. They are threads
in five processes, each thread with a memory, an index and a connection of its own.

Clients ask one question after the other for some seconds. All are warm before the clock starts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx

from benchmarks.corpus import SEED, Corpus
from benchmarks.server_clock import ServerClock, cpu_s, memory_bytes
from benchmarks.serving import ACCEPT, send, start
from kept import Memory
from kept.errors import KeptError

SECONDS = 30.0
PROCESSES = 5
_WARM_UP = 20


@dataclass
class ClientRun:
    """What clients measured: the time of each search, and what all of them took together."""

    seconds: list[float] = field(default_factory=list)
    failed: int = 0
    took_s: float = 0.0
    cpu_s: float = 0.0
    memory_bytes: int = 0


def percentile(ordered: Sequence[float], share: int) -> float:
    return ordered[len(ordered) * share // 100]


# MCP clients of one server


def ask_server(
    workspace: str, home: str, environment: dict[str, str], server: ServerClock, questions: list[str], clients: int
) -> ClientRun:
    with tempfile.TemporaryDirectory(prefix="kept-clients-") as place:
        env = {"PATH": os.environ["PATH"], "HOME": place, "KEPT_HOME": home, "KEPT_WORKSPACE": workspace, **environment}
        secret = _create_token(env)
        process, url = start(env)
        try:
            return asyncio.run(_ask_server(url, process.pid, server, secret, questions, clients))
        finally:
            process.terminate()
            process.wait()


def _create_token(env: dict[str, str]) -> str:
    name = f"bench-{time.time_ns():x}"
    kept = os.path.join(os.path.dirname(sys.executable), "kept")
    command = [kept, "token", "create", name, "--scope", "read", "--expires", "1d", "--json"]
    created = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env)
    return str(json.loads(created.stdout)["secret"])


async def _ask_server(
    url: str, process: int, server: ServerClock, secret: str, questions: list[str], clients: int
) -> ClientRun:
    run = ClientRun()
    headers = {"Authorization": f"Bearer {secret}", **ACCEPT}

    async def ask(number: int, until_s: float) -> None:
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=120) as client:
            while time.monotonic() < until_s:
                began = time.perf_counter()
                try:
                    answer = await send(client, "memory_search", questions[number % len(questions)])
                    run.failed += answer.status_code != 200 or '"isError":false' not in answer.text
                except httpx.TransportError as exc:
                    print(f"{type(exc).__name__} after {time.perf_counter() - began:.1f} s", file=sys.stderr)
                    run.failed += 1
                run.seconds.append(time.perf_counter() - began)
                number += 1

    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=120) as client:
        for question in questions[:_WARM_UP]:
            await send(client, "memory_search", question)
    began, cpu = time.monotonic(), cpu_s(process) + server.cpu_s()
    await asyncio.gather(*(ask(number * 7, began + SECONDS) for number in range(clients)))
    run.took_s, run.cpu_s = time.monotonic() - began, cpu_s(process) + server.cpu_s() - cpu
    run.memory_bytes = memory_bytes(process) + server.memory_bytes()
    return run


# readers with a memory each


def ask_readers(
    workspace: str, home: str, environment: dict[str, str], server: ServerClock, questions: list[str], clients: int
) -> ClientRun:
    command = [sys.executable, "-m", "benchmarks.store_clients", "--workspace", workspace, "--home", home]
    command += ["--questions", str(len(questions))]
    share = -(-clients // PROCESSES)
    processes = [
        subprocess.Popen(
            [*command, "--clients", str(min(share, clients - first)), "--first", str(first)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        for first in range(0, clients, share)
    ]
    run = ClientRun()
    try:
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise SystemExit("a reader did not start")
        began, served = time.monotonic(), server.cpu_s()
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for process in processes if process.stdout is not None]
        run.took_s, run.cpu_s = time.monotonic() - began, server.cpu_s() - served
        run.memory_bytes = server.memory_bytes() + sum(memory_bytes(process.pid) for process in processes)
    finally:
        for process in processes:
            process.communicate()
    for answer in answers:
        run.seconds += answer["seconds"]
        run.failed += answer["failed"]
        run.cpu_s += answer["cpu_s"]
    return run


def read(workspace: str, home: str, questions: list[str], first: int, clients: int) -> None:
    """Open memories, say when they are warm, wait for a line, search, and print what was measured."""
    memories = [Memory.open(workspace=workspace, home=home) for _ in range(clients)]
    run = ClientRun()

    def ask(memory: Memory, number: int, until_s: float) -> None:
        while time.monotonic() < until_s:
            began = time.perf_counter()
            try:
                memory.search(questions[number % len(questions)])
            except KeptError:
                run.failed += 1
            run.seconds.append(time.perf_counter() - began)
            number += 1

    for memory in memories:
        for question in questions[:2]:
            memory.search(question)
    print("ready", flush=True)
    sys.stdin.readline()
    cpu, until_s = time.process_time(), time.monotonic() + SECONDS
    threads = [
        threading.Thread(target=ask, args=[memory, (first + number) * 7, until_s])
        for number, memory in enumerate(memories)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps({"seconds": run.seconds, "failed": run.failed, "cpu_s": time.process_time() - cpu}), flush=True)
    sys.stdin.readline()  # until its memory was measured
    for memory in memories:
        memory.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store_clients", description="Search at once.")
    parser.add_argument("--workspace", required=True)
    parser.add_argument("--home", required=True)
    parser.add_argument("--questions", type=int, required=True)
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--clients", type=int, required=True)
    chosen = parser.parse_args()
    read(chosen.workspace, chosen.home, Corpus(SEED).questions(chosen.questions), chosen.first, chosen.clients)


if __name__ == "__main__":
    main()
