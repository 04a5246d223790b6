"""A server of OpenAI's protocol, and memories that embed with it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kept import Memory
from kept.index.sources import IndexLimits
from tests.support import embedding_servers as servers
from tests.support.fake_time import FakePace
from tests.support.workspaces import open_memory


@pytest.fixture
def server() -> Iterator[servers.OpenAI]:
    with servers.OpenAI() as server:
        yield server


@pytest.fixture
def defaults() -> dict[str, Any]:
    """Settings of all memories of a module, below memory_search."""
    return {}


@pytest.fixture
def opened(tmp_path, workspace, server, defaults) -> Iterator[Callable[..., Memory]]:
    """Open memories as new processes would. Their embedders are made from settings and retry without waiting."""
    memories: list[Memory] = []

    def open_with(**more: Any) -> Memory:
        remote = {"provider": "openai", "remote.base_url": server.base_url, "remote.api_key": servers.KEY}
        settings = {f"memory_search.{name}": value for name, value in {**remote, **defaults, **more}.items()}
        memories.append(open_memory(tmp_path, settings=settings, limits=IndexLimits(retry_policy=FakePace().pace())))
        return memories[-1]

    yield open_with
    for memory in memories:
        memory.close()
