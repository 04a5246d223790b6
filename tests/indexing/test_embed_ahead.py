"""Another model is embedded ahead of the switch, and a process with older settings does not undo the switch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kept.clock import SystemClock
from kept.config import Config, load_config
from kept.embedding.model_catalogue import CATALOGUE
from kept.indexing import embed_ahead as module
from kept.indexing.embed_ahead import EmbedProgress, embed_ahead
from kept.indexing.service import IndexService
from kept.records import Filter
from kept.search.query import parse_query
from kept.workspace.workspace import Workspace
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
    return service.search(parse_query(text), query, Filter())


def test_the_old_vectors_answer_while_the_new_ones_are_computed(tiny, services):
    old, new = services("multilingual"), services("tiny")
    old.sync()
    reports: list[EmbedProgress] = []
    answers = []

    def report(progress: EmbedProgress) -> None:
        reports.append(progress)
        answers.append(search(old, "cat on the mat"))

    assert embed_ahead(new, report) == len(TEXTS)
    assert reports[-1].texts == reports[-1].total_texts == len(TEXTS)
    assert reports[-1].left_s == 0
    assert all(answer.model == "multilingual-384" and not answer.degraded for answer in answers)
    assert new.sync().cached == len(TEXTS)


def test_a_run_that_was_stopped_goes_on_where_it_was(tiny, services, monkeypatch):
    monkeypatch.setattr(module, "_SLICE_CHARS", 1)
    new = services("tiny")

    def stop(progress: EmbedProgress) -> None:
        if progress.texts == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed_ahead(new, stop)
    assert embed_ahead(new) == 1
    assert embed_ahead(new) == 0


@pytest.mark.parametrize("settings", [{"memory_search.cache.enabled": False}, {"memory_search.cache.max_entries": 2}])
def test_without_room_in_the_cache_the_rebuild_embeds(tiny, services, settings):
    new = services("tiny", **settings)
    assert embed_ahead(new) == 0
    assert new.sync().embedded == len(TEXTS)


def test_a_process_with_older_settings_follows_the_switch(tiny, services, workspace):
    old, new = services("multilingual"), services("tiny")
    old.sync()
    assert new.sync().rebuilt
    assert search(old, "cat on the mat").model == "tiny"
    write_file(workspace / "memory/new.md", "the queen ran fast\n")
    report = old.sync_background()
    assert (report.rebuilt, report.embedded, report.pending) == (None, 1, 0)
    later = services("multilingual")
    assert later.sync().rebuilt
    assert search(new, "cat").model == "multilingual-384"
