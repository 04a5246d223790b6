"""Count the functions and files of Kept that run for one operation: python -m benchmarks.walks [--list NAME] [--cpu N]

Each operation runs through the real command, with a profiler that records every function of the package that is
called. What runs while a module is imported, lambdas and comprehensions are not counted.

``--cpu N`` measures the CPU time of the gateway for each of N chat messages instead, without the profiler.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TRACER = """
import importlib.util, os, signal, sys, threading
calls, imports = {}, threading.local()
package = os.path.dirname(importlib.util.find_spec("kept").origin) + os.sep
def profile(frame, event, arg):
    code = frame.f_code
    if code.co_name == "<module>" and event in ("call", "return"):
        imports.depth = getattr(imports, "depth", 0) + (1 if event == "call" else -1)
    elif event == "call" and not getattr(imports, "depth", 0):
        if code.co_filename.startswith(package) and not code.co_name.startswith("<"):
            key = (code.co_filename.removeprefix(package), code.co_qualname)
            calls[key] = calls.get(key, 0) + 1
def dump(*_):
    with open(os.environ["WALK_FILE"] + ".part", "w") as file:
        for (name, function), count in list(calls.items()):
            file.write(f"{name} {function} {count}\\n")
    os.replace(os.environ["WALK_FILE"] + ".part", os.environ["WALK_FILE"])
    calls.clear()
signal.signal(signal.SIGUSR1, dump)
threading.setprofile(profile)
from kept.cli import main
sys.setprofile(profile)
try:
    main()
finally:
    sys.setprofile(None)
    dump()
"""

NOTES = {
    "MEMORY.md": "# Long-term memory\n\nThe parrot is called Kiwi and is green.\n",
    "memory/2026-03-14.md": "# 2026-03-14\n\nThe staging database moved to port 5433.\n",
    "memory/ideas.md": "# Ideas\n\nPaint the fence blue in spring.\n",
}

Walk = dict[tuple[str, str], int]
"""Calls by file and function."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.walks", description=__doc__)
    parser.add_argument("--list", metavar="NAME", help="print the functions of one walk, by file")
    parser.add_argument("--cpu", metavar="N", type=int, help="measure the CPU time of N chat messages")
    options = parser.parse_args()
    if options.cpu:
        with tempfile.TemporaryDirectory(prefix="kept-walks-") as scratch:
            print(f"{measure_cpu(Path(scratch), options.cpu) * 1000:.1f} ms of CPU time for a chat message")
        return
    with tempfile.TemporaryDirectory(prefix="kept-walks-") as scratch:
        walks = run_all(Path(scratch))
    print(f"{'operation':<28}{'functions':>10}{'files':>7}{'calls':>8}")
    for name, walk in walks.items():
        print(f"{name:<28}{len(walk):>10}{len({file for file, _ in walk}):>7}{sum(walk.values()):>8}")
    for (file, function), count in sorted(walks.get(options.list or "", {}).items()):
        print(f"{file:<40} {function:<60} {count}")


def run_all(scratch: Path) -> dict[str, Walk]:
    env = prepare(scratch)
    walks = {"add": trace(env, "add", "Dinner with Ada on Friday."), "search": trace(env, "search", "which port?")}
    with model_server() as url, gateway(env, url) as (base, process):
        for text in ("Hello", "Good morning", "Good evening"):  # the first ones load and warm up, the third indexes
            post(base, text)
            snapshot(env, process)
        post(base, "What colour is the parrot?")
        walks["chat message"] = snapshot(env, process)
        for number in range(6):
            post(base, f"Tell me more about it, part {number}. " + "The parrot likes seeds and company. " * 40)
        snapshot(env, process)
        post(base, "/compact")
        walks["compaction"] = snapshot(env, process)
    walks["MCP call"] = trace_mcp(env)
    return walks


def measure_cpu(scratch: Path, messages: int) -> float:
    """Return the CPU time of the gateway for a message of a conversation, in seconds, with what it does afterwards."""
    env = prepare(scratch)
    plain = [sys.executable, "-c", "from kept.cli import main; main()"]
    with model_server() as url, gateway(env, url, [*plain, "gateway"]) as (base, process):
        for text in ("Hello", "Good morning", "Good evening"):
            post(base, text)
        time.sleep(2)
        before = cpu_time(process.pid)
        for number in range(messages):
            post(base, f"What colour is the parrot number {number}?")
        time.sleep(2)
        return (cpu_time(process.pid) - before) / messages


def cpu_time(pid: int) -> float:
    """Return the CPU time of a process so far, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def prepare(scratch: Path) -> dict[str, str]:
    workspace = scratch / "workspace"
    for path, text in NOTES.items():
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).write_text(text, encoding="utf-8")
    env = {name: value for name, value in os.environ.items() if not name.startswith("KEPT_")}
    return {
        **env,
        "KEPT_HOME": str(scratch / "home"),
        "KEPT_WORKSPACE": str(workspace),
        "WALK_FILE": str(scratch / "walk.txt"),
    }


def command(*args: str) -> list[str]:
    return [sys.executable, "-c", TRACER, *args]


def trace(env: Mapping[str, str], *args: str) -> Walk:
    subprocess.run(command(*args), env=dict(env), check=True, stdout=subprocess.DEVNULL)
    return read_walk(env)


def read_walk(env: Mapping[str, str]) -> Walk:
    walk: Walk = {}
    for line in Path(env["WALK_FILE"]).read_text().splitlines():
        file, function, count = line.rsplit(" ", 2)
        walk[file, function] = int(count)
    return walk


def snapshot(env: Mapping[str, str], process: subprocess.Popen[Any]) -> Walk:
    """Return what ran since the last snapshot, once the process has been idle for a moment."""
    time.sleep(2)
    Path(env["WALK_FILE"]).unlink(missing_ok=True)
    process.send_signal(signal.SIGUSR1)
    while not Path(env["WALK_FILE"]).exists():
        time.sleep(0.05)
    return read_walk(env)


@contextmanager
def gateway(
    env: Mapping[str, str], model_url: str, program: list[str] | None = None
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    settings = {
        "KEPT_MODEL__PROVIDER": "anthropic",
        "KEPT_MODEL__NAME": "claude-test",
        "KEPT_MODEL__BASE_URL": model_url,
        "ANTHROPIC_API_KEY": "none",
        "KEPT_GATEWAY__HTTP__PORT": "0",
        "KEPT_GATEWAY__HTTP__ENABLED": "true",
    }
    process = subprocess.Popen(
        program or command("gateway"),
        env={**env, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout
    try:
        for line in process.stdout:
            if "http://" in line:
                yield line[line.index("http://") :].split(",")[0].strip(), process
                break
    finally:
        process.terminate()
        process.communicate(timeout=30)


def post(url: str, text: str) -> dict[str, Any]:
    body = json.dumps({"user": "ada", "text": text}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        reply: dict[str, Any] = json.load(response)
    if not reply.get("reply"):
        raise RuntimeError(f"the gateway answered {reply}")
    return reply


def trace_mcp(env: Mapping[str, str]) -> Walk:
    process = subprocess.Popen(command("mcp"), env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin
    assert process.stdout

    def call(number: int, method: str, params: dict[str, Any]) -> None:
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n")
        process.stdin.flush()
        while f'"id":{number}' not in process.stdout.readline().replace(" ", ""):
            pass

    client = {"name": "walks", "version": "1"}
    call(1, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
    search = {"name": "memory_search", "arguments": {"query": "parrot"}}
    call(2, "tools/call", search)
    snapshot(env, process)
    call(3, "tools/call", search)
    walk = snapshot(env, process)
    process.stdin.close()
    process.wait(30)
    return walk


@contextmanager
def model_server() -> Iterator[str]:
    """Serve a chat model on loopback in Anthropic's streaming format: one tool call, then a text."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            last = request["messages"][-1]["content"]
            is_result = isinstance(last, list) and any(block.get("type") == "tool_result" for block in last)
            wants_tool = bool(request.get("tools")) and not is_result
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            for event in stream_events(wants_tool=wants_tool):
                self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


def stream_events(*, wants_tool: bool) -> Iterator[dict[str, Any]]:
    usage = {"input_tokens": 100, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "claude-test", "usage": usage}
    yield {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None}}
    if wants_tool:
        block = {"type": "tool_use", "id": "t1", "name": "memory_search", "input": {}}
        yield {"type": "content_block_start", "index": 0, "content_block": block}
        delta = {"type": "input_json_delta", "partial_json": '{"query": "parrot"}'}
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
    else:
        yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        for text in ("The parrot ", "is green."):
            yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    yield {"type": "content_block_stop", "index": 0}
    reason = "tool_use" if wants_tool else "end_turn"
    delta = {"stop_reason": reason, "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 20}}
    yield {"type": "message_stop"}


if __name__ == "__main__":
    main()
