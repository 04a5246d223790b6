"""Fixtures for every test: a home and a workspace of its own, a memory without a model, and the real command."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from kept import Memory
from kept.base.net import client
from kept.storage.open import open_database
from kept.testing import FakeEmbedder
from tests.support.commands import Outcome, run_kept
from tests.support.coroutine_tests import pytest_pyfunc_call  # noqa: F401 - pytest finds it here
from tests.support.fake_time import FakePace
from tests.support.postgres import PostgresServer, new_schema, running_postgres
from tests.support.workspaces import open_memory

# A run is the same today and tomorrow; `--hypothesis-profile=explore` looks for what nobody has thought of yet.
settings.register_profile("kept", deadline=None, max_examples=100, derandomize=True, database=None)
settings.register_profile("explore", deadline=None, max_examples=3000, database=None)
settings.load_profile("kept")

UNWANTED_PREFIXES = ("KEPT_", "ANTHROPIC_", "AWS_", "CLAUDE", "GEMINI_", "GOOGLE_", "OLLAMA_", "OPENAI_", "VOYAGE_")
UNWANTED_NAMES = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "COLUMNS", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Hide the settings, keys, home and colours of whoever runs the tests."""
    for name in [*os.environ]:
        if name.startswith(UNWANTED_PREFIXES) or name in (*UNWANTED_NAMES, *PROXIES):
            monkeypatch.delenv(name)
    (tmp_path / "user").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("KEPT_HOME", str(tmp_path / "home"))
    return {**os.environ}


@pytest.fixture(autouse=True)
def closed_breaker() -> None:
    """Forget failed calls of earlier tests in this process."""
    client.DOWN.clear()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where KEPT_HOME points. The folder does not exist yet, as on a fresh machine."""
    return tmp_path / "home"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def embedder() -> FakeEmbedder:
    return FakeEmbedder()


@pytest.fixture
def fake() -> FakePace:
    return FakePace()


@pytest.fixture
def memory(tmp_path: Path, workspace: Path, embedder: FakeEmbedder) -> Iterator[Callable[..., Memory]]:
    """Open memories of the workspace with the fake embedder. Arguments replace these defaults."""
    opened: list[Memory] = []

    def open_one(**options: Any) -> Memory:
        opened.append(open_memory(tmp_path, **{"embedder": embedder, "create": False, **options}))
        return opened[-1]

    yield open_one
    for memory in opened:
        memory.close()


@pytest.fixture
def kept(environment: dict[str, str], workspace: Path, tmp_path: Path) -> Callable[..., Outcome]:
    """Run the real command in a process of its own, on the workspace unless the arguments name another."""

    def run(*args: str | Path, stdin=b"", env=None, cwd=tmp_path) -> Outcome:
        full = {**environment, "KEPT_WORKSPACE": str(workspace), **(env or {})}
        return run_kept(*args, stdin=stdin, env=full, cwd=cwd)

    return run


@pytest.fixture
def time_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Change the time zone of this process."""

    def use(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield use
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def database_address(postgres: PostgresServer) -> Iterator[str]:
    """Address of a database with a schema of its own."""
    yield f"{postgres.url()}&schema={new_schema()}"
    open_database.cache_clear()
