from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conftest import write
from mcp_server.mcp_client import StdioClient


@pytest.fixture
def server_env(environment: dict[str, str], workspace: Path) -> dict[str, str]:
    return {**environment, "KEPT_WORKSPACE": str(workspace)}


@pytest.fixture
def notes(workspace: Path) -> Path:
    write(workspace / "MEMORY.md", "# Memory\n\n- The espresso machine is descaled every March.\n")
    write(workspace / "memory/2026-03-13.md", "# 2026-03-13\n\nStaging moved to port 5433.\n")
    write(workspace / "memory/über tee & kaffee.md", "# Tee\n\nAm liebsten Assam.\n")
    return workspace


@pytest.fixture
def start(server_env: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., StdioClient]]:
    started: list[StdioClient] = []

    def begin(*options: str, env: dict[str, str] | None = None) -> StdioClient:
        started.append(StdioClient({**server_env, **(env or {})}, tmp_path, *options))
        return started[-1]

    yield begin
    for one in started:
        one.close()


@pytest.fixture
def client(start: Callable[..., StdioClient], notes: Path) -> StdioClient:
    made = start()
    made.greet()
    return made
