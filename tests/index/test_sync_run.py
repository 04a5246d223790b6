"""What indexing does, what it costs, and what it leaves alone."""

import hashlib
import os
from dataclasses import replace

import pytest

from kept import Memory
from kept.base.records import Problem
from kept.index.sync_run import SyncRun
from kept.server.doctor import examine
from kept.testing import FakeEmbedder
from tests.support.workspaces import index_path, open_memory, paths, write_note

SECTIONS = "# Zoo\n\n## Penguins\n\nFed at noon.\n\n## Lions\n\nFed at dusk.\n"


def test_renaming_a_note_makes_no_embedding_call(tmp_path):
    workspace = tmp_path / "workspace"
    note = write_note(workspace, "memory/2026-01-01.md", SECTIONS)
    embedder = FakeEmbedder()
    with open_memory(tmp_path, embedder=embedder) as memory:
        memory.sync()
        calls = embedder.calls
        note.rename(workspace / "memory" / "2026-01-02.md")
        report = memory.sync()
        assert (report.embedded, report.removed, embedder.calls) == (0, 1, calls)
        assert paths(memory.search("lions dusk"))[0] == "memory/2026-01-02.md"


def test_an_index_of_an_older_schema_is_replaced_and_its_embeddings_are_used(tmp_path):
    write_note(tmp_path / "workspace", "memory/a.md", "The parrot is green.\n")
    embedder = FakeEmbedder()
    with open_memory(tmp_path, embedder=embedder) as memory:
        memory.sync()
        with memory.index_service.inspecting() as (index, _), index.writing():
            index.db.execute("ALTER TABLE chunks DROP COLUMN channel")
            index.db.execute("ALTER TABLE files DROP COLUMN mark")
            index.db.execute("DELETE FROM meta WHERE key = 'schema'")
            index.db.execute("UPDATE meta SET value = json_set(value, '$.schema', 1) WHERE key = 'recipe'")
    embedder.texts.clear()
    with open_memory(tmp_path, embedder=embedder) as memory:
        assert memory.status().dirty
        assert paths(memory.search("parrot")) == ["memory/a.md"]
    assert embedder.texts == ["parrot"]


def test_an_unchanged_workspace_costs_nothing(tmp_path):
    workspace = tmp_path / "workspace"
    for number in range(5):
        write_note(workspace, f"memory/{number}.md", f"note {number}\n")
    embedder = FakeEmbedder()
    with open_memory(tmp_path, embedder=embedder) as memory:
        assert memory.sync().indexed == 5
        memory.sync()  # those that were written within a tick of being read are read once more
        calls, before = embedder.calls, index_path(tmp_path).stat().st_mtime_ns
        report = memory.sync()
        assert (report.indexed, report.removed, report.unchanged) == (0, 0, 5)
        assert embedder.calls == calls
        assert index_path(tmp_path).stat().st_mtime_ns == before


def test_no_note_is_changed_by_indexing(tmp_path):
    workspace = tmp_path / "workspace"
    (workspace / "memory").mkdir(parents=True)
    odd = [b"\xef\xbb\xbfwith a BOM\r\n", b"latin \xe9\xff\n", b"no newline", b"", b"nul \0 byte\n", b"\r\r\r"]
    for number, raw in enumerate(odd):
        (workspace / "memory" / f"{number}.md").write_bytes(raw)

    def digests():
        files = sorted((workspace / "memory").rglob("*"))
        return [
            (f.name, f.stat().st_mtime_ns, hashlib.sha256(f.read_bytes()).hexdigest()) for f in files if f.is_file()
        ]

    before = digests()
    with open_memory(tmp_path) as memory:
        report = memory.sync()
        memory.sync(force=True)
        memory.search("latin")
        memory.status()
    assert digests() == before
    assert {problem.path for problem in report.problems} == {"memory/1.md", "memory/4.md"}


def test_a_dead_embedder_leaves_old_hits_searchable_and_new_text_found_by_word(tmp_path):
    workspace = tmp_path / "workspace"
    note = write_note(workspace, "memory/a.md", "The parrot is green.\n")
    embedder = FakeEmbedder()
    with open_memory(tmp_path, embedder=embedder) as memory:
        memory.sync()
        embedder.broken = True
        write_note(workspace, "memory/b.md", "The zeppelin is silver.\n")
        note.write_text("The parrot is green.\n\nIt bites.\n")
        report = memory.sync()
        assert not report.ok
        assert "found by word" in report.failures[0]
        assert report.pending == 2
        assert paths(memory.search("parrot")) == ["memory/a.md"]
        assert paths(memory.search("zeppelin")) == ["memory/b.md"]

        embedder.broken = False
        report = memory.sync()
        assert (report.ok, report.pending, report.embedded) == (True, 0, 2)
        assert memory.search("zeppelin").hits[0].vector_score is not None


def test_another_embedder_rebuilds_the_index_beside_the_old_one(tmp_path):
    write_note(tmp_path / "workspace", "memory/a.md", "The parrot is green.\n")
    with open_memory(tmp_path, embedder=FakeEmbedder(model="one")) as memory:
        memory.sync()
    other = FakeEmbedder(model="two", dims=32)
    with open_memory(tmp_path, embedder=other) as memory:
        assert memory.status().dirty
        report = memory.sync()
        assert report.rebuilt == "the embedder changed from one to two"
        assert other.texts == ["The parrot is green."]
        assert memory.search("parrot").hits[0].vector_score is not None
    with open_memory(tmp_path, embedder=FakeEmbedder(model="one")) as memory:
        report = memory.sync()
        assert (report.embedded, report.cached) == (0, 1)  # what was paid for once is still in the cache


def test_a_rebuild_that_fails_leaves_the_old_index_in_place(tmp_path):
    workspace = tmp_path / "workspace"
    write_note(workspace, "memory/a.md", "The parrot is green.\n")
    with open_memory(tmp_path, embedder=FakeEmbedder(model="one")) as memory:
        memory.sync()
    other = FakeEmbedder(model="two")
    other.broken = True
    with open_memory(tmp_path, embedder=other) as memory:
        write_note(workspace, "memory/b.md", "The zeppelin is silver.\n")
        report = memory.sync()
        assert "still in use" in report.failures[0]
        assert paths(memory.search("parrot")) == ["memory/a.md"]
        result = memory.search("zeppelin")
        assert paths(result) == ["memory/b.md"]
        assert any("does not hold vectors of two" in reason for reason in result.degraded)
    with open_memory(tmp_path, embedder=FakeEmbedder(model="one")) as memory:
        assert memory.search("parrot").hits[0].vector_score is not None


def test_other_chunk_sizes_rebuild_without_paying_for_the_same_texts_again(tmp_path):
    write_note(tmp_path / "workspace", "memory/a.md", SECTIONS)
    embedder = FakeEmbedder()
    with open_memory(tmp_path, embedder=embedder) as memory:
        memory.sync()
    with open_memory(tmp_path, embedder=embedder, settings={"memory_search.chunking.tokens": 100}) as memory:
        report = memory.sync()
        assert report.rebuilt == "the size of chunks changed"
        assert report.embedded == 0


def test_a_search_with_settings_for_one_run_does_not_rebuild_the_index(tmp_path):
    write_note(tmp_path / "workspace", "memory/a.md", "The parrot is green.\n")
    with open_memory(tmp_path, embedder=FakeEmbedder(model="one")) as memory:
        memory.sync()
    config, other = replace(memory.config, run_settings=("memory_search.provider",)), FakeEmbedder(model="two")
    with Memory(config, embedder=other) as memory:
        result = memory.search("parrot")
        assert paths(result) == ["memory/a.md"]
        assert "the embedder changed from one to two for this run only" in result.degraded[0]
        assert other.texts == []
    with open_memory(tmp_path, embedder=FakeEmbedder(model="one")) as memory:
        assert memory.search("parrot").degraded == ()
    with Memory(config, embedder=other) as memory:
        assert memory.sync().rebuilt == "the embedder changed from one to two"
        assert memory.search("parrot").degraded == ()


def test_without_a_provider_the_vectors_that_are_there_stay(tmp_path):
    workspace = tmp_path / "workspace"
    write_note(workspace, "memory/a.md", "The parrot is green.\n")
    embedder = FakeEmbedder()
    with open_memory(tmp_path, embedder=embedder) as memory:
        memory.sync()
    with open_memory(tmp_path, settings={"memory_search.provider": "none"}) as memory:
        write_note(workspace, "memory/b.md", "The zeppelin is silver.\n")
        assert paths(memory.search("zeppelin")) == ["memory/b.md"]
    with open_memory(tmp_path, embedder=embedder) as memory:
        report = memory.sync()
        assert (report.rebuilt, report.embedded) == (None, 1)


def test_the_cache_forgets_what_was_used_longest_ago(tmp_path):
    workspace = tmp_path / "workspace"
    for number in range(6):
        write_note(workspace, f"memory/{number}.md", f"note about thing{number}\n")
    with open_memory(tmp_path, settings={"memory_search.cache.max_entries": 4}) as memory:
        memory.sync()
        assert memory.status().cache_entries == 4


def test_without_a_cache_nothing_is_kept_in_it(tmp_path):
    write_note(tmp_path / "workspace", "memory/a.md", SECTIONS)
    with open_memory(tmp_path) as memory:
        count = memory.sync().embedded
    with open_memory(tmp_path, settings={"memory_search.cache.enabled": False}) as memory:
        assert memory.sync(force=True).embedded == count  # what was cached before it was switched off is not used
        assert memory.status().cache_entries == 0
        assert memory.search("lions").hits[0].vector_score is not None


def test_two_workspaces_of_one_home_never_mix(tmp_path):
    write_note(tmp_path / "a" / "workspace", "memory/x.md", "The parrot is green.\n")
    write_note(tmp_path / "b" / "workspace", "memory/x.md", "The zeppelin is silver.\n")
    settings = {"memory_search.sync.on_search": False}
    home = tmp_path / "home"
    with (
        open_memory(tmp_path / "a", home=home, settings=settings) as first,
        open_memory(tmp_path / "b", home=home, settings=settings) as second,
    ):
        first.sync()
        second.sync()
        assert first.sync().indexed == 0
        assert second.sync().indexed == 0
        assert first.search("zeppelin").hits == ()
        assert paths(second.search("zeppelin")) == ["memory/x.md"]
        assert first.status().index_path != second.status().index_path


def test_a_note_that_grows_too_large_is_reported_and_leaves_the_index(tmp_path):
    note = write_note(tmp_path / "workspace", "memory/a.md", "The parrot is green.\n")
    with open_memory(tmp_path, settings={"memory_search.max_file_bytes": 1000}) as memory:
        memory.sync()
        note.write_text("The parrot is green.\n" * 100)
        report = memory.sync()
        assert "more than the limit" in report.problems[0].reason
        assert memory.search("parrot").hits == ()


# budgets


def test_a_note_beyond_its_budget_is_found_and_what_became_of_it_is_said(tmp_path):
    path = write_note(
        tmp_path / "workspace", "memory/log.md", "\n" * 100_000 + "# Birds\n\nthe heron nests by the weir\n"
    )
    reason = "too many lines, headings or nested blocks; cut by lines, without its headings"
    expected = (Problem("memory/log.md", reason),)
    with open_memory(tmp_path) as memory:
        assert memory.sync().problems == expected
        assert memory.search("heron").hits[0].start_line == 100_001
        os.utime(path)
        assert memory.sync().problems == expected
        assert memory.status().problems == expected
        assert memory.sync(force=True).problems == expected
        assert [check.detail for check in examine(memory) if check.name == "notes"] == [f"memory/log.md: {reason}"]


@pytest.mark.parametrize("force", [False, True])
def test_a_sync_that_waited_keeps_a_note_that_another_process_indexed_meanwhile(tmp_path, force):
    workspace = tmp_path / "workspace"
    write_note(workspace, "memory/old.md", "An otter.")
    with open_memory(tmp_path) as waiting, open_memory(tmp_path) as other:
        waiting.sync()
        planner = waiting.index_service.planner()
        (workspace / "memory/old.md").unlink()
        scan = planner.reader.scan()  # the waiting process has looked at the files, and waits for the lock
        write_note(workspace, "memory/new.md", "A heron.")
        assert paths(other.search("heron")) == ["memory/new.md"]
        report = SyncRun(planner, scan, force=force).run(wait_s=1)
        assert report.removed == 0
        assert paths(other.search("heron")) == ["memory/new.md"]
