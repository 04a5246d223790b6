"""An index of its own for a test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kept.index.sqlite.index import Index


@pytest.fixture
def open_index(tmp_path: Path) -> Iterator[Callable[..., Index]]:
    """Open the index of the test, as often as it is called: each as another process would."""
    opened: list[Index] = []

    def open_one() -> Index:
        opened.append(Index(str(tmp_path / "index.sqlite")))
        return opened[-1]

    yield open_one
    for index in opened:
        index.close()


@pytest.fixture
def index(open_index: Callable[..., Index]) -> Index:
    return open_index()
