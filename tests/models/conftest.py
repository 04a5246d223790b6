"""What the tests of models stand on: a server on loopback, and no keys but the test's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from models.server import ModelServer

FOREIGN = ("ANTHROPIC_", "OPENAI_", "CLAUDE", "AWS_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy")


@pytest.fixture(autouse=True)
def no_keys(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*environment]:
        if name.startswith(FOREIGN):
            monkeypatch.delenv(name, raising=False)
            del environment[name]


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server
