from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.files import write_file
from tests.support.mcp_client import StdioClient
from tests.support.serve_process import ServeProcess


@pytest.fixture
def server_env(environment: dict[str, str], workspace: Path) -> dict[str, str]:
    return {**environment, "KEPT_WORKSPACE": str(workspace)}


@pytest.fixture
def notes(workspace: Path) -> Path:
    write_file(workspace / "MEMORY.md", "# Memory\n\n- The espresso machine is descaled every March.\n")
    write_file(workspace / "memory/2026-03-13.md", "# 2026-03-13\n\nStaging moved to port 5433.\n")
    write_file(workspace / "memory/über tee & kaffee.md", "# Tee\n\nAm liebsten Assam.\n")
    return workspace


@pytest.fixture
def start(server_env: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., StdioClient]]:
    started: list[StdioClient] = []

    def begin(*options: str, env: dict[str, str] | None = None) -> StdioClient:
        started.append(StdioClient({**server_env, **(env or {})}, tmp_path, *options))
        return started[-1]

    yield begin
    for server in started:
        server.close()


@pytest.fixture
def client(start: Callable[..., StdioClient], notes: Path) -> StdioClient:
    stdio = start()
    stdio.greet()
    return stdio


@pytest.fixture
def serve(tmp_path: Path, notes: Path) -> Iterator[Callable[..., ServeProcess]]:
    started: list[ServeProcess] = []

    def begin(*command: str) -> ServeProcess:
        started.append(ServeProcess(tmp_path, command=command))
        return started[-1]

    yield begin
    for server in started:
        server.stop()
