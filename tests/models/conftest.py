"""A chat model on loopback."""

from collections.abc import Iterator

import pytest

from tests.support.chat_server import ModelServer


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server
