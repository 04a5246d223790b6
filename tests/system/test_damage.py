"""A damaged or missing index is noticed, reported, and rebuilt from the notes."""

import os
import random

import pytest

from kept import Memory
from kept.errors import StoreTooNew
from kept.index.sqlite.index import Index
from tests.support.commands import Outcome, kept_environment, run_kept
from tests.support.workspaces import index_path, open_memory, paths, write_note

pytestmark = pytest.mark.slow


@pytest.fixture
def indexed(tmp_path):
    workspace = tmp_path / "workspace"
    for number in range(40):
        write_note(workspace, f"memory/{number}.md", f"# Note {number}\n\nThe parrot{number} eats seed{number}.\n" * 3)
    with Memory.open(workspace, home=tmp_path / "home") as memory:
        memory.sync()
    return tmp_path


def run(tmp_path, *args: str) -> Outcome:
    return run_kept(*args, env=kept_environment(tmp_path), cwd=tmp_path)


def search_and_status(tmp_path):
    """As a user would: the command line, on a process of its own."""
    outcomes = []
    for args in (("search", "parrot7"), ("status",), ("index",), ("doctor",)):
        outcome = run(tmp_path, *args)
        assert "Traceback" not in outcome.out + outcome.err
        outcomes.append((outcome.code, outcome.out, outcome.err))
    return outcomes


def test_an_index_deleted_under_an_open_memory_is_rebuilt_and_it_is_said(indexed):
    with Memory.open(indexed / "workspace", home=indexed / "home") as memory:
        assert paths(memory.search("parrot7"))[0] == "memory/7.md"
        for file in index_path(indexed).parent.glob("index.sqlite*"):
            file.unlink()
        result = memory.search("parrot7")
        assert paths(result)[0] == "memory/7.md"
        assert "rebuilt" in result.degraded[0]


@pytest.mark.parametrize("share", [0.0, 0.001, 0.02, 0.3, 0.5, 0.9, 0.999])
def test_a_truncated_index_is_noticed_and_repaired(indexed, share):
    size = index_path(indexed).stat().st_size
    os.truncate(index_path(indexed), int(size * share))
    outcomes = search_and_status(indexed)
    assert [code for code, _, _ in outcomes] == [0, 0, 0, 0]
    assert "memory/7.md" in outcomes[0][1]


@pytest.mark.parametrize("seed", range(6))
def test_overwritten_bytes_are_noticed_and_repaired(indexed, seed):
    file = index_path(indexed)
    rng = random.Random(seed)
    raw = bytearray(file.read_bytes())
    middle = len(raw) // 2 + rng.randrange(-len(raw) // 4, len(raw) // 4)
    raw[middle : middle + 600] = rng.randbytes(600)
    file.write_bytes(raw)
    with Memory.open(indexed / "workspace", home=indexed / "home") as memory:
        said = []
        for number in range(40):
            result = memory.search(f"parrot{number}")
            said += result.degraded
            assert paths(result)[0] == f"memory/{number}.md"
    outcome = run(indexed, "doctor", "--fix")
    assert outcome.code == 0, outcome.out + outcome.err
    assert said or "fixed" in outcome.out


def test_one_flipped_byte_in_a_page_that_is_read_is_noticed(indexed):
    """Page checksums see what SQLite's own structure would not: a letter changed inside a text."""
    file = index_path(indexed)
    raw = bytearray(file.read_bytes())
    at = raw.index(b"parrot7 eats")
    raw[at] = ord("c")
    file.write_bytes(raw)
    with Memory.open(indexed / "workspace", home=indexed / "home") as memory:
        result = memory.search("parrot7")
        assert "damaged" in result.degraded[0]
        assert "rebuilt" in result.degraded[0]
        assert "parrot7" in result.hits[0].snippet


def test_something_that_is_no_database_at_all_is_replaced(indexed):
    index_path(indexed).write_bytes(b"this is not a database, " * 500)
    outcomes = search_and_status(indexed)
    assert "memory/7.md" in outcomes[0][1]
    assert "rebuilt" in outcomes[0][2]


def test_a_leftover_log_of_a_deleted_index_is_not_read(indexed):
    with open_memory(indexed) as memory:
        memory.sync()
        log = index_path(indexed).with_name("index.sqlite-wal")
        old = log.read_bytes() if log.exists() else b""
    for file in index_path(indexed).parent.glob("index.sqlite*"):
        file.unlink()
    log.write_bytes(old or b"\x37\x7f\x06\x82" + bytes(5000))
    (indexed / "workspace/memory/7.md").write_text("The zeppelin is silver.\n")
    with Memory.open(indexed / "workspace", home=indexed / "home") as memory:
        assert paths(memory.search("parrot8"))[0] == "memory/8.md"
        assert paths(memory.search("zeppelin")) == ["memory/7.md"]


def test_an_index_of_a_newer_version_is_left_alone(indexed):
    index = Index(str(index_path(indexed)))
    index.db.pragma("user_version", 99)
    index.close()
    before = index_path(indexed).read_bytes()
    with Memory.open(indexed / "workspace", home=indexed / "home") as memory, pytest.raises(StoreTooNew, match="99"):
        memory.search("parrot7")
    assert index_path(indexed).read_bytes() == before


def test_the_files_of_an_index_are_private(indexed):
    folder = index_path(indexed).parent
    with Memory.open(indexed / "workspace", home=indexed / "home") as memory:
        memory.search("parrot7")
        for file in [*folder.glob("index.sqlite*")]:
            assert file.stat().st_mode & 0o077 == 0, file
    assert folder.stat().st_mode & 0o077 == 0


def test_the_doctor_says_what_it_would_do_and_then_does_it(indexed):
    write_note(indexed / "workspace", "memory/new.md", "A new note.\n")
    (indexed / "home").chmod(0o755)
    outcome = run(indexed, "doctor")
    assert outcome.code == 1
    assert "1 of 41 files differ" in outcome.out
    assert "make them private" in outcome.out
    assert (indexed / "home").stat().st_mode & 0o777 == 0o755
    outcome = run(indexed, "doctor", "--fix")
    assert outcome.code == 0
    assert outcome.out.count("fixed") == 2
    assert (indexed / "home").stat().st_mode & 0o777 == 0o700
