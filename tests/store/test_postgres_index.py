"""The index in a team's database: several processes, damage, merging, forgetting and lost connections."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading

import pytest

from kept.errors import LockBusy
from kept.store.postgres import posting_tables
from kept.store.postgres.file_writer import FileWriter
from kept.store.postgres.filter_sql import glob_to_regex
from kept.store.postgres.index import PostgresIndex
from kept.testing import FakeEmbedder
from tests.support.index_dump import dump_index
from tests.support.waiting import PATIENCE_S
from tests.support.workspaces import open_memory, write_note

pytestmark = pytest.mark.parametrize("store", ["postgres"], indirect=True)

WORDS = "heron kingfisher otter willow reed bridge mill lock barge towpath".split()


def write_notes(workspace, rng: random.Random, count: int) -> None:
    for _ in range(count):
        lines = [" ".join(rng.choices(WORDS, k=8)) for _ in range(rng.randint(1, 5))]
        write_note(workspace, f"memory/{rng.randrange(30)}.md", "\n\n".join(f"## {line}\n\n{line}" for line in lines))


def equals_a_fresh_sqlite_index(tmp_path, memory) -> bool:
    settings = {
        "memory_search.store.driver": "sqlite",
        "memory_search.store.path": str(tmp_path / f"{os.urandom(4).hex()}.sqlite"),
    }
    with open_memory(tmp_path, settings=settings) as fresh:
        fresh.sync()
        return dump_index(memory) == dump_index(fresh)


@pytest.mark.parametrize("full_chunks", [12, 1_000_000])
def test_many_small_syncs_are_merged_and_purged_and_the_index_stays_that_of_the_notes(
    store, tmp_path, monkeypatch, full_chunks
):
    monkeypatch.setattr(posting_tables, "_FULL_CHUNKS", full_chunks)
    monkeypatch.setattr(posting_tables, "_MAX_SEGMENTS", 3)
    monkeypatch.setattr(posting_tables, "_LEAST_DEAD", 5)
    rng = random.Random(3)
    with open_memory(tmp_path) as memory:
        for _ in range(14):
            write_notes(tmp_path / "workspace", rng, 2)
            memory.sync()
            assert memory.search("heron").hits
            with memory.index_service.inspecting() as (index, _):
                assert index.find_damage() == []
                query = "SELECT level, count(*) FROM segments WHERE generation = %s GROUP BY level"
                levels = dict(index.live.session.fetch(query, [index.live.number]))
                assert levels.get(0, 0) <= 4
        assert levels.get(3, 0) > 1 if full_chunks == 12 else 3 not in levels
        assert equals_a_fresh_sqlite_index(tmp_path, memory)


def test_a_search_sees_at_once_what_another_process_has_indexed(store, tmp_path):
    write_note(tmp_path / "workspace", "memory/a.md", "The heron stands still.\n")
    with open_memory(tmp_path) as writer, open_memory(tmp_path) as reader:
        writer.sync()
        assert [hit.path for hit in reader.search("heron").hits] == ["memory/a.md"]
        write_note(tmp_path / "workspace", "memory/b.md", "Another heron stands beside it.\n")
        writer.sync()
        assert {hit.path for hit in reader.search("heron").hits} == {"memory/a.md", "memory/b.md"}


def test_one_process_indexes_at_a_time(store, tmp_path):
    write_note(tmp_path / "workspace", "memory/a.md", "The heron stands still.\n")
    with open_memory(tmp_path) as first, open_memory(tmp_path) as second:
        first.sync()
        with (
            first.index_service.inspecting() as (index, _),
            index.indexing(wait_s=1),
            second.index_service.inspecting() as (other, _),
        ):
            with pytest.raises(LockBusy), other.indexing(wait_s=0):
                pass
            with other.reading():
                assert other.live.count_chunks() == 1
        with second.index_service.inspecting() as (other, _), other.indexing(wait_s=1):
            pass


def test_a_process_waits_for_the_one_that_indexes(store, shared_team):
    first, second = (PostgresIndex(shared_team.database, "waiting") for _ in range(2))
    waiting, indexed = threading.Event(), threading.Event()

    def index() -> None:
        with pytest.raises(LockBusy), second.indexing(wait_s=0.01):
            pass
        waiting.set()
        with second.indexing(wait_s=PATIENCE_S):
            indexed.set()

    with first.indexing(wait_s=0):
        other = threading.Thread(target=index, daemon=True)
        other.start()
        assert waiting.wait(PATIENCE_S)
        assert not indexed.is_set()
    assert indexed.wait(PATIENCE_S)
    other.join()
    with shared_team.database.statement() as connection:
        assert connection.execute("SHOW lock_timeout").fetchone() == ("0",)


@pytest.mark.parametrize("table", ["postings", "chunks", "segments", "chunk_vectors"])
def test_a_damaged_index_is_rebuilt_and_nothing_is_embedded_again(store, tmp_path, table):
    rng = random.Random(4)
    write_notes(tmp_path / "workspace", rng, 8)
    embedder = FakeEmbedder()
    with open_memory(tmp_path, embedder=embedder) as memory:
        memory.sync()
        texts = len(embedder.texts)
        with memory.index_service.inspecting() as (index, _), index.writing():
            index.live.session.execute(
                f"DELETE FROM {table} WHERE ctid IN (SELECT ctid FROM {table} WHERE generation = %s LIMIT 1)",
                [index.live.number],
            )
        memory.index_service.repair()
        assert len(embedder.texts) == texts
        assert equals_a_fresh_sqlite_index(tmp_path, memory)


@pytest.mark.parametrize(("table", "column"), [("postings", "entries"), ("segments", "all_words")])
def test_a_list_that_was_cut_off_is_noticed_by_a_search_and_repaired(store, tmp_path, table, column):
    write_notes(tmp_path / "workspace", random.Random(4), 8)
    with open_memory(tmp_path) as memory:
        memory.sync()
        with memory.index_service.inspecting() as (index, _), index.writing():
            query = f"UPDATE {table} SET {column} = substring({column} FOR 5) WHERE generation = %s"
            index.live.session.execute(query, [index.live.number])
        assert memory.search("heron").hits
        assert equals_a_fresh_sqlite_index(tmp_path, memory)


def test_forgetting_reaches_the_database(store, tmp_path):
    write_note(tmp_path / "workspace", "memory/a.md", "- The heron stands still.\n- The codeword is zanzibarium.\n")
    with open_memory(tmp_path) as memory:
        memory.sync()
        assert memory.search("zanzibarium").hits
        assert memory.forgetting.apply(memory.forgetting.plan("zanzibarium")).is_finished
        with memory.index_service.inspecting() as (index, _), index.reading():
            fetch = index.live.session.fetch
            assert fetch("SELECT 1 FROM postings WHERE stem LIKE 'zanzibar%%'") == []
            assert fetch("SELECT 1 FROM chunks WHERE position('zanzibarium'::bytea IN text) > 0") == []
            assert fetch("SELECT 1 FROM dead_rows WHERE generation = %s", [index.live.number]) == []
            assert index.find_damage() == []
        assert not [hit for hit in memory.search("zanzibarium").hits if "zanzibarium" in hit.snippet]


def test_a_path_that_no_index_of_postgresql_can_hold_is_named_and_the_others_are_found(store, tmp_path):
    rng = random.Random(2)  # PostgreSQL compresses what repeats
    names = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=240)) for _ in range(12)]
    write_note(tmp_path / "workspace", "memory/a.md", "The heron stands still.\n")
    folder = os.open(tmp_path / "workspace" / "memory", os.O_RDONLY)
    for name in names:  # step by step, since the whole path is long
        os.mkdir(name, dir_fd=folder)
        folder, before = os.open(name, os.O_RDONLY, dir_fd=folder), folder
        os.close(before)
    with open(os.open("b.md", os.O_WRONLY | os.O_CREAT, dir_fd=folder), "w") as file:
        file.write("Another heron.\n")
    os.close(folder)
    with open_memory(tmp_path) as memory:
        report = memory.sync()
        assert [(problem.path[-5:], "Shorten it" in problem.reason) for problem in report.problems] == [("/b.md", True)]
        assert [hit.path for hit in memory.search("heron")] == ["memory/a.md"]


def test_a_workspace_with_a_long_path_has_a_short_name(store, tmp_path):
    rng = random.Random(3)
    names = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=250)) for _ in range(13)]
    workspace = tmp_path.joinpath(*names)
    write_note(workspace, "memory/a.md", "The heron stands still.\n")
    with open_memory(tmp_path, workspace=workspace) as memory:
        assert [hit.path for hit in memory.search("heron")] == ["memory/a.md"]
        assert len(memory.index_service.shared_name) < 300


def test_lost_connections_are_replaced(store, shared_team, tmp_path):
    write_note(tmp_path / "workspace", "memory/a.md", "The heron stands still.\n")
    with open_memory(tmp_path) as memory:
        memory.sync()
        assert shared_team.end_connections()
        assert memory.search("heron").hits


KILLED = """
import os, signal, sys
from kept.indexing.index_handle import IndexLimits
from kept.store.postgres.file_writer import FileWriter
from pathlib import Path
from tests.support.waiting import PATIENCE_S
from tests.support.workspaces import open_memory
at, calls = int(sys.argv[2]), 0
store = FileWriter._store_vectors
def kill(self, writes):
    global calls
    calls += 1
    if calls == at:
        os.kill(os.getpid(), signal.SIGKILL)
    return store(self, writes)
FileWriter._store_vectors = kill
with open_memory(Path(sys.argv[1]), limits=IndexLimits(batch_files=4)) as memory:
    memory.sync()
"""


def test_a_killed_indexer_leaves_whole_batches_and_no_lock(store, environment, tmp_path):
    assert hasattr(FileWriter, "_store_vectors")
    rng = random.Random(5)
    write_notes(tmp_path / "workspace", rng, 20)
    program = [sys.executable, "-c", KILLED, str(tmp_path), "2"]
    ended = subprocess.run(program, env={**os.environ, **environment, "PYTHONPATH": os.getcwd()}, check=False)
    assert ended.returncode == -signal.SIGKILL
    with open_memory(tmp_path) as memory:
        with memory.index_service.inspecting() as (index, _):
            assert index.find_damage() == []
            assert index.live.count_chunks() > 0
        memory.sync()
        assert equals_a_fresh_sqlite_index(tmp_path, memory)


@pytest.mark.parametrize(
    ("glob", "regex"),
    [
        ("memory/*.md", r"^memory/.*\.md$"),
        ("a?[b-d]", r"^a.[\U00000062-\U00000062\U00000062-\U00000064]$"),
        ("[]]", r"^[\U0000005d-\U0000005d]$"),
        ("[^x]", r"^[^\U00000078-\U00000078]$"),
        ("[a", None),
        ("[]", None),
    ],
)
def test_patterns_of_paths_mean_what_they_mean_in_sqlite(store, glob, regex):
    assert glob_to_regex(glob) == regex
