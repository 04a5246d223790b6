"""A sound index is never replaced, and a damaged one is repaired without embedding anything again."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator

import apsw
import pytest

from kept.doctor import examine, repair
from kept.errors import StoreDamaged
from kept.sessions.catalogue import Catalogue
from kept.sessions.store import SessionStore
from kept.sqlite import damaged_files, file_number
from kept.store.index import OLD_PAGE_BYTES, PAGE_BYTES, Index, connect
from kept.store.integrity import check_file
from kept.testing import FakeEmbedder
from tests.support.commands import kept_environment, run_kept
from tests.support.workspaces import index_path, open_memory, paths, write_note

NOTES = 60
PAGE = PAGE_BYTES


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


def pages_of(tmp_path, table: str) -> list[int]:
    db = apsw.Connection(str(index_path(tmp_path)))
    try:
        return [page for (page,) in db.execute("SELECT pageno FROM dbstat WHERE name = ? ORDER BY pageno", (table,))]
    finally:
        db.close()


def overwrite_page(tmp_path, page: int, page_bytes: int = PAGE) -> None:
    with open(index_path(tmp_path), "r+b") as file:
        file.seek((page - 1) * page_bytes)
        file.write(bytes(range(256)) * (page_bytes // 256))


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


# what is sound


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
        assert memory.status().repairs == ()


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
    assert damaged_files(str(index_path(indexed))) == []


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
        catalogue = Catalogue(path, sessions.folder)
        assert catalogue.run(fail_once) == 1
        assert file_number(path) == before
        assert catalogue.take_problems() == ()
        catalogue.close()


# what is damaged


@pytest.mark.parametrize(
    "table",
    ["chunks", "files", "meta", "chunks_fts_data", "chunks_fts_docsize", "chunks_vec", "chunks_by_path_0"],
)
def test_a_destroyed_page_of_one_table_costs_no_embedding(indexed, table):
    overwrite_page(indexed, pages_of(indexed, table)[-1])
    texts, said = answers(indexed, FakeEmbedder())
    assert embedded_texts(texts) == []
    assert "rebuilt from the notes" in said[0]
    assert check_file(str(index_path(indexed))) == []


def test_a_destroyed_page_of_the_cache_costs_no_embedding_while_the_vectors_are_there(indexed):
    pages = pages_of(indexed, "embedding_cache")
    overwrite_page(indexed, pages[len(pages) // 2])
    texts, said = answers(indexed, FakeEmbedder())
    assert embedded_texts(texts) == []
    assert "could not be read" in said[0]


def test_a_destroyed_first_page_costs_no_embedding(indexed):
    overwrite_page(indexed, 1)
    texts, _ = answers(indexed, FakeEmbedder())
    assert embedded_texts(texts) == []


def test_a_destroyed_first_page_of_an_index_with_small_pages_costs_no_embedding(tmp_path):
    os.makedirs(index_path(tmp_path).parent)
    connect(str(index_path(tmp_path)), page_bytes=OLD_PAGE_BYTES).close()
    fill(tmp_path)
    with open_memory(tmp_path) as memory:
        memory.sync()
    overwrite_page(tmp_path, 1, OLD_PAGE_BYTES)
    texts, _ = answers(tmp_path, FakeEmbedder())
    assert embedded_texts(texts) == []


def test_of_a_file_cut_short_every_embedding_that_is_left_is_kept(indexed):
    cache = pages_of(indexed, "embedding_cache")
    cut = cache[len(cache) // 2]
    os.truncate(index_path(indexed), cut * PAGE)
    texts, _ = answers(indexed, FakeEmbedder())
    assert 0 < len(embedded_texts(texts)) < NOTES * 0.75


def test_embeddings_with_wrong_content_are_not_kept(indexed):
    db = connect(str(index_path(indexed)))
    db.execute("UPDATE embedding_cache SET embedding = zeroblob(7) WHERE rowid = 3")
    db.execute("UPDATE embedding_cache SET embedding = randomblob(4 * dims) WHERE rowid = 4")
    db.execute("DELETE FROM chunks_vec")
    db.close()
    overwrite_page(indexed, pages_of(indexed, "chunks")[-1])
    texts, _ = answers(indexed, FakeEmbedder())
    assert len(embedded_texts(texts)) == 2


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM chunks_fts_docsize WHERE id % 2",
        "UPDATE chunks SET text = text || '!' WHERE row = 5",
        "DELETE FROM files WHERE path LIKE '%7.md'",
        "INSERT INTO chunks_vec (row, code) VALUES (100000, zeroblob(64))",
        "UPDATE chunks_vec SET pack = 17",
        "INSERT INTO vec_packs (rows, bits) VALUES (zeroblob(16), zeroblob(7))",
        "DROP TABLE vec_dead",
        "UPDATE embedding_cache SET embedding = zeroblob(3) WHERE rowid = 9",
    ],
)
def test_a_table_that_contradicts_itself_is_repaired_inside_the_file(indexed, statement):
    db = connect(str(index_path(indexed)))
    db.execute(statement)
    cached = db.execute("SELECT identity, hash, embedding FROM embedding_cache WHERE rowid <> 9").fetchall()
    db.close()
    before = file_number(str(index_path(indexed)))
    with open_memory(indexed) as memory:
        assert not [check for check in repair(memory, examine(memory)) if not check.ok]
    texts, _ = answers(indexed, FakeEmbedder())
    assert embedded_texts(texts) == []
    assert file_number(str(index_path(indexed))) == before
    db = connect(str(index_path(indexed)))
    assert db.execute("SELECT identity, hash, embedding FROM embedding_cache WHERE rowid <> 9").fetchall() == cached
    db.close()


def test_vectors_are_kept_where_the_cache_is_switched_off(tmp_path):
    fill(tmp_path)
    settings = {"memory_search.cache.enabled": False}
    with open_memory(tmp_path, settings=settings) as memory:
        memory.sync()
        assert memory.status().cache_entries == 0
    overwrite_page(tmp_path, pages_of(tmp_path, "chunks_fts_data")[-1])
    embedder = FakeEmbedder()
    with open_memory(tmp_path, embedder=embedder, settings=settings) as memory:
        assert memory.sync().rebuilt
        assert paths(memory.search("parrot7"))[0] == "memory/07.md"
        assert memory.status().pending == 0
    assert embedded_texts(embedder.texts) == []


def test_what_no_check_knows_is_replaced_when_a_fresh_connection_meets_it_too(indexed):
    db = connect(str(index_path(indexed)))
    db.execute("ALTER TABLE files DROP COLUMN checked_ns")
    db.close()
    texts, said = answers(indexed, FakeEmbedder())
    assert embedded_texts(texts) == []
    assert "rebuilt" in said[0]


# how it is replaced


def test_the_damaged_file_is_kept_aside_and_no_more_than_two_of_them(indexed):
    for _ in range(4):
        overwrite_page(indexed, pages_of(indexed, "files")[-1])
        answers(indexed, FakeEmbedder())
    kept = damaged_files(str(index_path(indexed)))
    assert [os.path.basename(path) for path in kept] == ["index.sqlite.damaged-3", "index.sqlite.damaged-4"]
    folder = index_path(indexed).parent
    assert not [name for name in os.listdir(folder) if name.endswith((".new", ".copy", ".empty", ".tmp"))]
    assert all(os.stat(path).st_mode & 0o077 == 0 for path in kept)


def test_others_that_have_the_damaged_file_open_do_not_harm_the_new_one(indexed):
    with open_memory(indexed) as memory, open_memory(indexed) as other:
        other.search("parrot7")
        overwrite_page(indexed, pages_of(indexed, "chunks")[-1])
        memory.sync()
        write_note(indexed / "workspace", "memory/new.md", "The zeppelin is silver.\n")
        memory.sync()
        log = index_path(indexed).with_name("index.sqlite-wal")
        number = file_number(str(log))
        assert number is not None
        other.index_service.reopen()
        assert file_number(str(log)) == number
        assert paths(other.search("zeppelin"))[0] == "memory/new.md"
        assert paths(memory.search("zeppelin"))[0] == "memory/new.md"
    assert check_file(str(index_path(indexed))) == []


def test_opening_an_index_leaves_the_locks_of_another_connection_in_place(indexed):
    path = index_path(indexed)
    first = connect(str(path))
    first.execute("SELECT count(*) FROM meta").get  # noqa: B018
    second = connect(str(path))
    inode = path.stat().st_ino
    with open("/proc/locks", encoding="ascii") as file:
        held = [line for line in file if f":{inode} " in line]
    assert held, "closing a file that SQLite has open drops its locks"
    second.close()
    first.close()


_REPAIR_IN_A_SMALL_SPACE = """
import resource, sys
from kept.errors import StoreFull
from kept import Memory
from kept.testing import FakeEmbedder
sys.dont_write_bytecode = True
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
with Memory.open(sys.argv[1], home=sys.argv[2], embedder=FakeEmbedder()) as memory:
    try:
        memory.sync()
    except StoreFull as exc:
        print(exc.message)
"""


def test_where_there_is_no_room_for_a_new_file_the_damaged_one_stays(indexed):
    overwrite_page(indexed, pages_of(indexed, "chunks")[-1])
    before = index_path(indexed).read_bytes()
    ended = subprocess.run(
        [sys.executable, "-c", _REPAIR_IN_A_SMALL_SPACE, indexed / "workspace", indexed / "home"],
        env=kept_environment(indexed),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "could not be written" in ended.stdout, ended.stderr
    assert index_path(indexed).read_bytes() == before
    texts, _ = answers(indexed, FakeEmbedder())
    assert embedded_texts(texts) == []


# how it is told


@pytest.fixture
def damaged(indexed) -> Iterator[object]:
    overwrite_page(indexed, pages_of(indexed, "chunks")[-1])
    return indexed


def test_a_repair_is_in_the_log_in_the_answer_once_and_in_the_status(damaged, caplog):
    caplog.set_level(logging.WARNING, logger="kept")
    with open_memory(damaged) as memory:
        first, second = memory.search("parrot59"), memory.search("parrot59")
        status = memory.status()
    assert "rebuilt from the notes; 60 embeddings were kept" in first.degraded[0]
    assert second.degraded == ()
    assert "the index is damaged" in caplog.text
    (repair,) = status.repairs
    assert (repair.file, repair.action, repair.times) == ("index.sqlite", "replaced", 1)
    assert (repair.embeddings, repair.lost) == (60, 0)
    status = run_kept("status", env=kept_environment(damaged), cwd=damaged)
    assert "index.sqlite was damaged and replaced 1 time" in status.out, status.err
    assert run_kept("status", "--json", env=kept_environment(damaged), cwd=damaged).json["repairs"] == [
        {"file": "index.sqlite", "action": "replaced", "day": repair.day, "times": 1, "embeddings": 60, "lost": 0}
    ]


def test_a_damaged_record_of_repairs_is_read_as_far_as_it_goes(damaged):
    with open_memory(damaged) as memory:
        memory.sync()
        record = index_path(damaged).with_name("heals.jsonl")
        record.write_bytes(b'\xff\x00{"file": 3}\n{"file":\n' + record.read_bytes() * 2)
        assert [repair.times for repair in memory.status().repairs] == [2]


def test_a_damaged_catalogue_of_sessions_is_counted_and_kept_aside(tmp_path):
    path = tmp_path / "home/agents/main/sessions.sqlite"
    with SessionStore.open(home=tmp_path / "home") as sessions:
        session = sessions.get_or_create("telegram", "5054")
    path.write_bytes(b"not a database " * 1000)
    with SessionStore.open(home=tmp_path / "home") as sessions:
        assert [record.id for record in sessions.recent()] == [session.id]
        assert "rebuilt from the transcripts" in sessions.take_problems()[0].reason
    assert len(damaged_files(str(path))) == 1
    with open_memory(tmp_path) as memory:
        assert [(repair.file, repair.times) for repair in memory.status().repairs] == [("sessions.sqlite", 1)]
