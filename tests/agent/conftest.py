"""The tools of a memory, and a chat model on loopback."""

import pytest

from kept.agent.tools.toolbox import Toolbox
from kept.sessions.store import SessionStore
from tests.support.chat_server import ModelServer


@pytest.fixture
def toolbox(memory, home):
    with SessionStore.open(home=home) as sessions:
        yield Toolbox(memory(), sessions)


@pytest.fixture
def server():
    with ModelServer() as server:
        yield server
