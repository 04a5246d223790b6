from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kept.client.remote_memory import RemoteMemory
from kept.client.server_connection import Login, write_login
from kept.storage.files.file_storage import FileStorage
from tests.support.files import write_file
from tests.support.serve_process import LINKED, ServeProcess, create_token


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Home and workspace of a server that a test has for itself."""
    write_file(tmp_path / "workspace/MEMORY.md", "# Memory\n\n- Staging moved to port 5433.\n")
    write_file(tmp_path / "workspace/memory/private/bob@http/2026-03-01.md", "# 2026-03-01\n\nBob fears zeppelins.\n")
    write_file(tmp_path / "home/config.yaml", LINKED)
    return tmp_path


@pytest.fixture
def server(place: Path) -> Iterator[ServeProcess]:
    create_token(place / "home", "first", "read")
    running = ServeProcess(place)
    yield running
    running.stop()


@pytest.fixture
def log_in(server: ServeProcess, place: Path) -> Callable[..., Path]:
    """Return a function that makes the home of a laptop with a token."""

    def make(*scopes: str, **limits: str) -> Path:
        name = f"laptop-{'-'.join(scopes)}{len([*place.glob('laptop*')])}"
        home = place / name
        home.mkdir()
        write_login(FileStorage(str(home)), Login.of(server.url, create_token(place / "home", name, *scopes, **limits)))
        return home

    return make


@pytest.fixture
def remote(log_in: Callable[..., Path]) -> Iterator[RemoteMemory]:
    with RemoteMemory.open(FileStorage(str(log_in("admin")))) as memory:
        yield memory
