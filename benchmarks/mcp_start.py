"""Measure how long a client waits for `kept mcp`: from the start to the first answer."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence

from benchmarks.measure import Cost

RUNS = 5
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
}


def first_answer(command: Sequence[str], env: Mapping[str, str]) -> Cost:
    """Return the median cost: the wall time until the first answer, and the CPU time of the whole server run."""
    costs = [_once(command, env) for _ in range(RUNS)]
    return Cost(
        statistics.median(one.cpu_s for one in costs),
        statistics.median(one.wall_s for one in costs),
        statistics.median(one.peak_mb for one in costs),
    )


def _once(command: Sequence[str], env: Mapping[str, str]) -> Cost:
    started = time.perf_counter()
    with subprocess.Popen(command, env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin
        assert server.stdout
        server.stdin.write(json.dumps(HELLO).encode() + b"\n")
        server.stdin.flush()
        answer = json.loads(server.stdout.readline())
        wall_s = time.perf_counter() - started
        server.stdin.close()
        _, status, usage = os.wait4(server.pid, 0)
        server.returncode = os.waitstatus_to_exitcode(status)
    if server.returncode or "result" not in answer:
        raise RuntimeError(f"kept mcp ended with {server.returncode} and answered {answer}")
    per_mb = 1024 if os.uname().sysname == "Linux" else 1024 * 1024
    return Cost(usage.ru_utime + usage.ru_stime, wall_s, usage.ru_maxrss / per_mb)
