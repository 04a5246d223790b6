from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.files import write_file
from tests.support.serve_process import LINKED, TOKENS, ServeProcess, create_token


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home and a workspace for a server that several tests share."""
    folder = tmp_path_factory.mktemp("served")
    write_file(folder / "workspace/MEMORY.md", "# Memory\n\n- Staging moved to port 5433.\n")
    write_file(folder / "workspace/SOUL.md", "Be kind.\n")
    write_file(folder / "workspace/memory/claude.md", "Use tabs.\n")
    write_file(folder / "workspace/memory/projects/otter/PROJECT.md", "---\nremote: x\n---\n")
    write_file(folder / "workspace/memory/private/ada/2026-03-01.md", "# 2026-03-01\n\nAda collects marimbas.\n")
    write_file(folder / "workspace/memory/private/bob@http/2026-03-01.md", "# 2026-03-01\n\nBob fears zeppelins.\n")
    (folder / "home/workspace-second").mkdir(parents=True)
    write_file(folder / "home/config.yaml", LINKED)
    return folder


@pytest.fixture(scope="session")
def tokens(place: Path) -> dict[str, str]:
    made = {name: create_token(place / "home", name, *scopes) for name, scopes in TOKENS.items()}
    made["ada"] = create_token(place / "home", "ada", "write", person="ada")
    made["second"] = create_token(place / "home", "second", "admin", agent="second")
    return made


@pytest.fixture(scope="session")
def server(place: Path, tokens: dict[str, str]) -> Iterator[ServeProcess]:
    settings = {"gateway.serve.token_rate_per_s": 0, "gateway.serve.address_rate_per_s": 0}
    options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    running = ServeProcess(place, *options)
    try:
        yield running
    finally:
        code = running.stop()
    assert code == 0
