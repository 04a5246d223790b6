"""An index of its own for a test, on the store that the fixture `store` names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kept.store.index import Index
from kept.store.vector_scan import VectorLimits

if TYPE_CHECKING:
    from tests.support.teams import Team


@pytest.fixture
def open_index(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Open the index of the test, as often as it is called: each as another process would."""
    opened: list[Any] = []

    def open_one(limits: VectorLimits | None = None) -> Any:
        if store == "sqlite":
            opened.append(Index(str(tmp_path / "index.sqlite"), limits))
        else:
            from kept.store.postgres.index import PostgresIndex

            team: Team = request.getfixturevalue("shared_team")
            opened.append(PostgresIndex(team.database, str(tmp_path), limits))
        return opened[-1]

    yield open_one
    for index in opened:
        index.close()


@pytest.fixture
def index(open_index: Callable[..., Any]) -> Any:
    return open_index()
