"""A sound index is never replaced, and a damaged one is rebuilt without embedding anything again."""

import os
from pathlib import Path

import apsw
import pytest

from kept.base.sqlite import file_number
from kept.errors import StoreDamaged
from kept.index.sqlite.embedding_cache import find_cache_path
from kept.index.sqlite.index import PAGE_BYTES, Index
from kept.index.sqlite.integrity import find_damage
from kept.server.doctor import examine, repair
from kept.sessions.catalogue import Catalogue
from kept.sessions.store import SessionStore
from kept.testing import FakeEmbedder
from tests.support.commands import kept_environment, start_python
from tests.support.workspaces import index_path, open_memory, paths, write_note

NOTES = 60


def fill(tmp_path) -> None:
    for number in range(NOTES):
        text = f"# Note {number}\n\nThe parrot{number} eats seed{number}.\n\n" + f"word{number} " * 40
        write_note(tmp_path / "workspace", f"memory/{number:02}.md", text + "\n")


@pytest.fixture
def indexed(tmp_path):
    """An index of some notes, closed, with its log written into it."""
    fill(tmp_path)
    with open_memory(tmp_path) as memory:
        memory.sync()
    return tmp_path


def cache_path(tmp_path) -> str:
    return find_cache_path(str(index_path(tmp_path)))


def damage_of(path: Path) -> list[str]:
    index = Index(str(path))
    try:
        return find_damage(index)
    finally:
        index.close()


def change(tmp_path, statement: str) -> None:
    """Change the index behind the back of Kept."""
    index = Index(str(index_path(tmp_path)))
    index.db.execute(statement)
    index.close()


def pages_of(tmp_path, table: str) -> list[int]:
    db = apsw.Connection(str(index_path(tmp_path)))
    try:
        return [page for (page,) in db.execute("SELECT pageno FROM dbstat WHERE name = ? ORDER BY pageno", (table,))]
    finally:
        db.close()


def overwrite_page(tmp_path, page: int) -> None:
    with open(index_path(tmp_path), "r+b") as file:
        file.seek((page - 1) * PAGE_BYTES)
        file.write(bytes(range(256)) * (PAGE_BYTES // 256))


def answers(tmp_path, embedder: FakeEmbedder) -> tuple[list[str], list[str]]:
    """What a search for each note finds first, and what is said about the index."""
    said: list[str] = []
    with open_memory(tmp_path, embedder=embedder) as memory:
        said += filter(None, [memory.sync().rebuilt])
        first = []
        for number in range(0, NOTES, 7):
            result = memory.search(f"parrot{number}")
            said += result.degraded
            first.append(paths(result)[0])
    assert first == [f"memory/{number:02}.md" for number in range(0, NOTES, 7)]
    return embedder.texts, said


def embedded_texts(texts: list[str]) -> list[str]:
    return [text for text in texts if "eats" in text]


def merge_segments(tmp_path) -> None:
    """As a sync does after many changes, by another connection."""
    index = Index(str(index_path(tmp_path)))
    with index.writing():
        index.db.execute("INSERT INTO chunks_fts (chunks_fts) VALUES ('optimize')")
    index.close()


def test_an_index_whose_segments_another_connection_merged_is_sound(indexed):
    embedder = FakeEmbedder()
    with open_memory(indexed, embedder=embedder) as memory, open_memory(indexed) as other:
        before = file_number(str(index_path(indexed)))
        for change in range(3):
            write_note(indexed / "workspace", f"memory/new{change}.md", f"The zeppelin{change} is silver.\n")
            other.sync()
            memory.search("parrot7")
            merge_segments(indexed)
            assert memory.status().degraded == ()
            report = memory.sync()
            assert (report.rebuilt, report.embedded) == (None, 0)
        assert file_number(str(index_path(indexed))) == before


def test_a_check_during_another_process_s_rebuild_finds_nothing_wrong(indexed):
    other = Index(str(index_path(indexed)))
    with open_memory(indexed) as memory:
        building = other.begin_generation()
        for row in range(1, 8):
            with other.writing():
                building.db.execute("INSERT INTO next_chunks_fts (rowid, text) VALUES (?, ?)", (row, f"word{row}"))
            assert memory.status().degraded == ()
        with other.writing():
            building.db.execute("INSERT INTO next_chunks_fts (next_chunks_fts) VALUES ('optimize')")
        assert memory.status().degraded == ()
    other.close()


def test_damage_that_only_a_stale_connection_sees_changes_nothing(indexed):
    before = file_number(str(index_path(indexed)))
    failures = iter([StoreDamaged("It looks damaged.")])

    def fail_once(*_: object) -> None:
        for failure in failures:
            raise failure

    with open_memory(indexed) as memory:
        report = memory.sync(force=True, progress=fail_once)
        assert next(failures, None) is None
        assert report.rebuilt == "it was asked for"
    assert file_number(str(index_path(indexed))) == before


def test_a_sound_catalogue_of_sessions_is_kept_too(tmp_path):
    path = str(tmp_path / "home/agents/main/sessions.sqlite")
    failures = iter([StoreDamaged("It looks damaged.")])

    def fail_once(db: apsw.Connection) -> int:
        for failure in failures:
            raise failure
        return int(db.execute("SELECT count(*) FROM sessions").get)

    with SessionStore.open(home=tmp_path / "home") as sessions:
        sessions.get_or_create("telegram", "5054")
        before = file_number(path)
        catalogue = Catalogue(path, sessions.transcripts)
        assert catalogue.run(fail_once) == 1
        assert file_number(path) == before
        assert catalogue.take_problems() == ()
        catalogue.close()


@pytest.mark.parametrize(
    "table", ["chunks", "files", "meta", "chunks_fts_data", "chunks_fts_docsize", "chunks_vec", "chunks_by_path_1"]
)
def test_a_destroyed_page_of_one_table_costs_no_embedding(indexed, table):
    overwrite_page(indexed, pages_of(indexed, table)[-1])
    texts, said = answers(indexed, FakeEmbedder())
    assert embedded_texts(texts) == []
    assert "rebuilt from the notes" in said[0]
    assert damage_of(index_path(indexed)) == []


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM chunks_fts_docsize WHERE id % 2",
        "UPDATE chunks SET text = text || '!' WHERE row = 5",
        "DELETE FROM files WHERE path LIKE '%7.md'",
        "INSERT INTO chunks_vec (row, code) VALUES (100000, zeroblob(64))",
        "DROP TABLE note_tags",
    ],
)
def test_the_doctor_rebuilds_an_index_whose_tables_contradict_each_other(indexed, statement):
    change(indexed, statement)
    embedder = FakeEmbedder()
    with open_memory(indexed, embedder=embedder) as memory:
        assert [check for check in examine(memory) if check.name == "integrity" and not check.ok]
        assert not [check for check in repair(memory, examine(memory)) if not check.ok]
    assert embedded_texts(embedder.texts) == []
    texts, said = answers(indexed, FakeEmbedder())
    assert (embedded_texts(texts), said) == ([], [])


def test_what_no_check_knows_is_replaced_when_a_fresh_connection_meets_it_too(indexed):
    change(indexed, "ALTER TABLE files DROP COLUMN checked_ns")
    texts, said = answers(indexed, FakeEmbedder())
    assert embedded_texts(texts) == []
    assert "rebuilt" in said[0]


def spoil_cache(tmp_path) -> None:
    with open(cache_path(tmp_path), "r+b") as file:
        file.seek(4096)
        file.write(bytes(range(256)) * 128)


def test_a_damaged_cache_is_deleted_when_it_is_needed_and_that_is_said(indexed):
    spoil_cache(indexed)
    before = file_number(str(index_path(indexed)))
    embedder = FakeEmbedder()
    with open_memory(indexed, embedder=embedder) as memory:
        assert memory.search("parrot7").degraded == ()  # an index that is up to date needs no cache
        report = memory.sync(force=True)
        assert report.embedded == NOTES
        assert "texts are embedded again" in report.rebuilt
        assert memory.status().cache_entries == NOTES
        assert memory.sync(force=True).embedded == 0
    assert file_number(str(index_path(indexed))) == before


def test_the_doctor_finds_a_damaged_cache_and_deletes_it(indexed):
    spoil_cache(indexed)
    with open_memory(indexed) as memory:
        found = [check for check in examine(memory) if not check.ok]
        assert [check.remedy for check in found] == ["delete it; texts are embedded again"]
        assert not [check for check in repair(memory, found) if not check.ok]


def test_a_cache_that_was_deleted_is_filled_again(indexed):
    os.unlink(cache_path(indexed))
    with open_memory(indexed) as memory:
        assert memory.sync(force=True).embedded == NOTES
        os.unlink(cache_path(indexed))
        assert memory.sync(force=True).embedded == NOTES
        assert memory.sync(force=True).embedded == 0


_REBUILD_BESIDE_OTHERS = """
import sys
from kept import Memory
from kept.index.sqlite.integrity import find_damage
from kept.testing import FakeEmbedder
embedder = FakeEmbedder()
with Memory.open(sys.argv[1], home=sys.argv[2], embedder=embedder) as memory:
    print("ready", flush=True)
    sys.stdin.readline()
    result = memory.search("parrot7")
    print([hit.path for hit in result][:1], sum("eats" in text for text in embedder.texts))
"""


def test_several_processes_that_find_the_damage_at_once_all_answer_and_embed_nothing(indexed):
    overwrite_page(indexed, pages_of(indexed, "chunks")[-1])
    searchers = [
        start_python(_REBUILD_BESIDE_OTHERS, indexed / "workspace", indexed / "home", env=kept_environment(indexed))
        for _ in range(4)
    ]
    for process in searchers:
        process.stdout.readline()
    for process in searchers:
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate(timeout=120)[0].strip() for process in searchers]
    assert said == ["['memory/07.md'] 0"] * 4
    assert damage_of(index_path(indexed)) == []


def test_others_that_have_the_damaged_file_open_do_not_harm_the_new_one(indexed):
    with open_memory(indexed) as memory, open_memory(indexed) as other:
        other.search("parrot7")
        overwrite_page(indexed, pages_of(indexed, "chunks")[-1])
        memory.sync()
        write_note(indexed / "workspace", "memory/new.md", "The zeppelin is silver.\n")
        memory.sync()
        log = index_path(indexed).with_name("index.sqlite-wal")
        number = file_number(str(log))
        other.index_service.reopen()
        assert file_number(str(log)) == number
        assert paths(other.search("zeppelin"))[0] == "memory/new.md"
        assert paths(memory.search("zeppelin"))[0] == "memory/new.md"
    assert damage_of(index_path(indexed)) == []


def test_opening_an_index_leaves_the_locks_of_another_connection_in_place(indexed):
    path = index_path(indexed)
    first, second = Index(str(path)), Index(str(path))
    inode = path.stat().st_ino
    with open("/proc/locks", encoding="ascii") as file:
        held = [line for line in file if f":{inode} " in line]
    assert held, "closing a file that SQLite has open drops its locks"
    second.close()
    first.close()
