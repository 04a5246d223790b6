"""Runs commands on a pseudo terminal and in pipes, each in a fork of one process that has imported them all.

Reads JSON from standard input: {"runs": [{"args": [...], "stdin": "..."}]}. Writes a list of {"args", "on", "code",
"out"} to standard output. A command that serves until it is stopped gets SIGTERM once it says that it does.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import pty
import select
import signal
import sys
import time

SERVING = {"--watch": b" chunks", "gateway": b"/v1/messages", "web": b"Stop with Ctrl-C", "serve": b"Serving at"}
"""What a command that serves says once it does."""
PATIENCE_S = 60
LIBRARIES = (
    "openai",
    "mcp",
    "kept.server.mcp.server",
    "kept.models.openai",
    "uvicorn",
)
"""Imported once instead of in every fork."""


def child(args: list[str], stdin: int, out: int, err: int) -> None:
    for number, source in enumerate((stdin, out, err)):
        os.dup2(source, number)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = io.TextIOWrapper(open(1, "wb", 0, closefd=False), encoding="utf-8", write_through=True)  # noqa: SIM115
    sys.stderr = io.TextIOWrapper(open(2, "wb", 0, closefd=False), encoding="utf-8", write_through=True)  # noqa: SIM115
    sys.argv = ["kept", *args]
    code = 70
    try:
        from kept.cli.root import run

        run()
    except SystemExit as exc:
        code = exc.code if isinstance(exc.code, int) else 0 if exc.code is None else 1
    except BaseException:  # noqa: BLE001
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run_once(args: list[str], stdin: str, *, terminal: bool) -> dict[str, object]:
    if terminal:
        ours, theirs = pty.openpty()
    else:
        ours, theirs = os.pipe()
    stdin_reader, stdin_writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(stdin_writer)
        child(args, theirs if terminal and not stdin else stdin_reader, theirs, theirs)
    os.close(theirs)
    os.close(stdin_reader)
    os.write(stdin_writer, stdin.encode())
    os.close(stdin_writer)
    if terminal and not stdin:
        os.write(ours, b"\x04")  # Ctrl-D, for what reads the terminal
    out, stopped = b"", False
    deadline = time.monotonic() + PATIENCE_S
    while True:
        if not select.select([ours], [], [], max(0.0, deadline - time.monotonic()))[0]:
            os.kill(pid, signal.SIGKILL)  # the exit code -9 names the command that did not end
            break
        try:
            part = os.read(ours, 65536)
        except OSError:  # how a terminal ends
            break
        if not part:
            break
        out += part
        if not stopped and any(name in args and marker in out for name, marker in SERVING.items()):
            stopped = True
            os.kill(pid, signal.SIGTERM)
    os.close(ours)
    _, status = os.waitpid(pid, 0)
    shown = out.decode("utf-8", "surrogateescape")
    return {
        "args": args,
        "on": "terminal" if terminal else "pipe",
        "code": os.waitstatus_to_exitcode(status),
        "out": shown,
    }


def main() -> None:
    from kept.cli.root import COMMANDS

    modules = {f"kept.cli.{place.partition(':')[0]}" for place in COMMANDS.values()}
    for module in (*modules, "kept.cli.root", "kept.gateway.app", *LIBRARIES):
        importlib.import_module(module)
    runs = json.load(sys.stdin)["runs"]
    done = [run_once(run["args"], run["stdin"], terminal=terminal) for run in runs for terminal in (True, False)]
    json.dump(done, sys.stdout)


if __name__ == "__main__":
    main()
