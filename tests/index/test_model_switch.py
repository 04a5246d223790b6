"""A process with older settings does not undo a switch to another model."""

from dataclasses import replace

import pytest

from kept.base.clock import SystemClock
from kept.config import Config, load_config
from kept.embedding.model_catalogue import CATALOGUE
from kept.notes.workspace import Workspace
from kept.search.query import IndexQuery, parse_query
from kept.search.service import IndexService
from tests.support.embedding_models import write_folder
from tests.support.files import write_file
from tests.support.model_wheels import catalogue_model, files_of

TEXTS = ["the cat sat on the mat", "bread in the oven", "the king and the queen", "money in the bank"]


@pytest.fixture
def tiny(home, tmp_path, monkeypatch):
    folder = write_folder(home / "models" / "tiny")
    monkeypatch.setitem(CATALOGUE, "tiny", catalogue_model("tiny", files_of(folder), dims=8))


@pytest.fixture
def services(home, workspace):
    """Open services of the same index with a model each."""
    for number, text in enumerate(TEXTS):
        write_file(workspace / f"memory/{number}.md", f"{text}\n")
    opened: list[IndexService] = []

    def open_with(model: str, **settings: object) -> IndexService:
        values = {"memory_search.model": model, **settings}
        config = load_config(home=str(home), workspace=str(workspace), settings=values).config
        opened.append(IndexService(config, Workspace.of(config), SystemClock(), uses_signal=False))
        return opened[-1]

    yield open_with
    for service in opened:
        service.close()


def search(service: IndexService, text: str):
    config: Config = service.config
    query = replace(config.memory_search.query, min_score=0.0)
    return service.search(IndexQuery(parse_query(text), query))


def test_a_process_with_older_settings_does_not_undo_the_switch(tiny, services, workspace):
    old, new = services("multilingual"), services("tiny")
    old.sync()
    assert new.sync().rebuilt
    found = search(old, "cat on the mat")
    assert (len(found.hits) > 0, found.degraded[0].startswith("Searching by word only")) == (True, True)
    write_file(workspace / "memory/new.md", "the queen ran fast\n")
    report = old.sync(by_request=False)
    assert (report.rebuilt, report.embedded, report.indexed) == (None, 0, 1)
    assert search(new, "cat").model == "tiny"
    later = services("multilingual")
    assert later.sync().rebuilt
    assert search(later, "cat").model == "multilingual-384"
