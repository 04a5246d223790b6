"""A process that has imported the command, and forks for each run of it.

Most of a short command's time is spent importing. A fork has the arguments, environment, folder and streams of its run,
and nothing of an earlier one: the server itself never runs a command.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import sys
import threading
import time
from typing import Any, NoReturn

PACKAGES = (
    *("agent", "base.redact", "base.words", "cli", "config", "forgetting", "index", "notes", "search", "server.live"),
    "sessions",
)
"""Packages that commands import. Not those that bring an SDK or a web server."""
OTHERS = ("apsw", "simsimd", "yaml", "kept.gateway.app", "kept.cli.get")
MAX_REQUEST_BYTES = 1 << 20
MAX_FILES = 1024


def serve(requests: socket.socket) -> dict[str, Any] | None:
    """Fork for each request, and tell its sender the process id and the exit code. Return the run in the fork, and
    None when no requests can come any more."""
    wakeups, wakeup = socket.socketpair()
    wakeups.setblocking(False)
    wakeup.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakeup.fileno())
    reports: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(requests, selectors.EVENT_READ)
        selector.register(wakeups, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if wakeups in ready:
                wakeups.recv(4096)
                _report_ended(reports)
            if requests in ready:
                body, files, _, _ = socket.recv_fds(requests, MAX_REQUEST_BYTES, 4)
                if not body:
                    return None
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    return {**json.loads(body), "files": files[:3]}
                reports[pid] = socket.socket(fileno=files[3])
                reports[pid].sendall(pid.to_bytes(4, "big"))
                for file in files[:3]:
                    os.close(file)


def _report_ended(reports: dict[int, socket.socket]) -> None:
    for pid in [*reports]:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            with reports.pop(pid) as report:
                report.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))


def become(run: dict[str, Any]) -> None:
    """Take on the arguments, environment, folder and streams of a run, as a process that has just been started."""
    for target, file in enumerate(run["files"]):
        os.dup2(file, target)
    os.closerange(3, MAX_FILES)
    os.chdir(run["cwd"])
    os.environ.clear()
    os.environ.update(run["env"])
    time.tzset()
    sys.argv = run["args"]
    sys.path[0] = os.path.dirname(run["args"][0])
    main: Any = sys.modules["__main__"]
    main.__file__, main.__spec__ = run["args"][0], None
    sys.stdin = sys.__stdin__ = _reopen(sys.stdin, "r")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _reopen(sys.stdout, "w")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _reopen(sys.stderr, "w")  # type: ignore[misc]


def _reopen(stream: Any, mode: str) -> Any:
    """Open a standard stream again, since it may have become a terminal."""
    number = stream.fileno()
    opened = open(number, mode, encoding=stream.encoding, errors=stream.errors, closefd=False)  # noqa: SIM115
    opened.reconfigure(line_buffering=opened.line_buffering or number == 2, write_through=stream.write_through)
    return opened


def preload(more: list[str]) -> None:
    """Import what commands import, but no module that needs numpy: Kept works differently in a process that has it."""
    sys.modules["numpy"] = None  # type: ignore[assignment]
    for package in PACKAGES:
        path = importlib.import_module(f"kept.{package}").__path__
        for module in pkgutil.walk_packages(path, f"kept.{package}."):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)
    for name in (*OTHERS, *more):
        importlib.import_module(name)
    del sys.modules["numpy"]


def run_command() -> NoReturn:
    """Run the command and end this process. Of what Python does at its end, leave out only the destruction of all
    modules, which takes longer than a short command."""
    from kept.cli import main

    code: str | int | None = 0
    try:
        main()
    except SystemExit as exc:
        code = exc.code
    if isinstance(code, str):
        sys.exit(code)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    preload(sys.argv[2:])
    gc.freeze()
    requested = serve(socket.socket(fileno=int(sys.argv[1])))
    if requested is not None:
        become(requested)
        run_command()
