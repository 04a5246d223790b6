"""A home on a disk that is full or read-only is searched without a write."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kept import Message, SessionStore
from tests.support.commands import Outcome, kept_environment, run_kept, run_python
from tests.support.files import write_file

_LIMITED = """
import ctypes, resource, signal, sys
if sys.argv.pop(1) == "full":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    sys.dont_write_bytecode = True  # a module cut off by the limit would fail in the tests after this one
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
else:
    # root may write everywhere, whatever the mode says, until it gives up its capabilities
    header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None).capset(header, none) == 0
from kept.cli import main
sys.argv[0] = "kept"
main()
"""

Command = Callable[..., Outcome]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home whose index is up to date, with a conversation."""
    for name, text in {
        "MEMORY.md": "# Memory\n\nThe zebra lives in [[Zoo]]. #animals\n",
        "memory/zoo.md": "---\ntitle: Zoo\n---\n\nA place with striped horses.\n",
    }.items():
        write_file(tmp_path / "workspace" / name, text)
        os.utime(tmp_path / "workspace" / name, (1_700_000_000, 1_700_000_000))
    with SessionStore.open(home=tmp_path / "home") as sessions:
        sessions.append(sessions.get_or_create("telegram", "5054").id, Message.of("user", "I saw a giraffe."))
    kept(tmp_path, "index")
    assert kept(tmp_path, "index").code == 0  # a file that was written a moment ago is read twice
    return tmp_path


def kept(tmp_path: Path, *args: str) -> Outcome:
    return run_kept(*args, env=kept_environment(tmp_path), cwd=tmp_path)


@contextmanager
def unwritable(tmp_path: Path, kind: str) -> Iterator[Command]:
    """Yield a function that runs the command where nothing can be written."""

    def run(*args: str) -> Outcome:
        done = run_python(_LIMITED, kind, *args, env=kept_environment(tmp_path), cwd=tmp_path)
        return Outcome(done.returncode, done.stdout, done.stderr)

    folders = [Path(folder) for root in ("home", "workspace") for folder, _, _ in os.walk(tmp_path / root)]
    modes = {path: path.stat().st_mode for folder in folders for path in (folder, *folder.iterdir())}
    try:
        if kind == "read-only":
            for path, mode in modes.items():
                path.chmod(mode & 0o555)
        yield run
    finally:
        for path, mode in modes.items():
            if path.exists():
                path.chmod(mode)


def state(tmp_path: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(tmp_path)): path.read_bytes()
        for root in ("home", "workspace")
        for path in sorted((tmp_path / root).rglob("*"))
        if path.is_file() and path.stat().st_size
    }


@pytest.mark.parametrize("kind", ["full", "read-only"])
def test_an_index_that_is_up_to_date_answers_every_question_without_a_write(home, kind):
    before = state(home)
    with unwritable(home, kind) as run:
        by_word = run("search", "zebra", "--json")
        assert by_word.json["results"][0]["path"] == "MEMORY.md", by_word.err
        assert by_word.json["degraded"] == []
        by_meaning = run("search", "animals with stripes", "--min-score", "0", "--json").json["results"]
        assert max(hit["vectorScore"] for hit in by_meaning) > 0.2
        assert {file["path"] for file in run("list", "--json").json["files"]} == {"MEMORY.md", "memory/zoo.md"}
        assert len(run("list", "--changed", "--json").json["files"]) == 3
        assert run("list", "--tags", "--json").json["tags"][0]["tag"] == "animals"
        assert run("get", "Zoo", "--links", "--json").json["path"] == "memory/zoo.md"
        assert "striped horses" in run("get", "Zoo").out
        assert "giraffe" in run("search", "giraffe", "--json").out
        assert len(run("sessions", "list", "--json").json["sessions"]) == 1
        status = run("status", "--json").json
        assert (status["dirty"], status["files"]) == (False, 3)
        assert any("can be searched, not written" in reason for reason in status["degraded"])
        assert run("index").code == 0
    assert state(home) == before


@pytest.mark.parametrize("kind", ["full", "read-only"])
def test_an_answer_says_that_it_may_be_old_if_notes_changed(home, kind):
    write_file(home / "workspace/memory/heron.md", "The heron stands in the pond.\n")
    write_file(home / "workspace/memory/zoo.md", "Nothing with stripes.\n")
    with unwritable(home, kind) as run:
        outcome = run("search", "zebra")
        assert (outcome.code, "MEMORY.md" in outcome.out) == (0, True)
        assert outcome.err.startswith("Note: 2 files have changed since the index was written")
        answer = run("search", "striped horses", "--json").json
        assert "memory/zoo.md" not in [hit["path"] for hit in answer["results"]]
        assert "2 files have changed since the index was written" in " ".join(answer["degraded"])
        assert "2 files have changed" in run("list", "--json").json["degraded"][0]
        refused = run("index")
        assert refused.code == 6
        assert "index.sqlite" in refused.err
    assert kept(home, "search", "heron", "--json").json["results"][0]["path"] == "memory/heron.md"


@pytest.mark.parametrize(("kind", "reason"), [("full", "the disk is full"), ("read-only", "is read-only")])
def test_doctor_says_that_the_disk_is_full_or_read_only_and_offers_no_rebuild(home, kind, reason):
    before = state(home)
    with unwritable(home, kind) as run:
        checks = run("doctor", "--fix", "--json").json["checks"]
    index = next(check for check in checks if check["name"] == "index")
    assert reason in index["detail"]
    assert (index["ok"], index["remedy"]) == (False, "")
    assert all(check["ok"] for check in checks if check["name"] in ("integrity", "freshness"))
    assert "rebuild" not in str(checks)
    assert "damage" not in str(checks)
    assert state(home) == before


def test_without_an_index_the_reason_is_reported(tmp_path):
    write_file(tmp_path / "workspace/MEMORY.md", "A zebra.\n")
    (tmp_path / "home").mkdir()
    with unwritable(tmp_path, "read-only") as run:
        outcome = run("search", "zebra")
    assert outcome.code == 6
    assert outcome.err.startswith("Error: ")
    assert "Permission denied" in outcome.err


def test_a_damaged_index_is_reported_where_it_cannot_be_repaired(home):
    path = home / "home/agents/main/index.sqlite"
    content = bytearray(path.read_bytes())
    content[8192 * 2 :] = b"x" * (len(content) - 8192 * 2)
    path.write_bytes(content)
    with unwritable(home, "read-only") as run:
        outcome = run("search", "zebra")
        assert (outcome.code, "is damaged" in outcome.err) == (6, True)
        doctor = run("doctor")
        assert "rebuild the index from the notes" in doctor.out
    assert kept(home, "search", "zebra", "--json").json["results"]


def test_a_memory_that_stays_open_writes_again_when_it_can(home):
    script = """
import ctypes, os, sys
from kept import Memory
workspace, home = sys.argv[1:]
ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())
agent = os.path.join(home, "agents", "main")
os.chmod(agent, 0o500)
with Memory.open(workspace, home=home) as memory:
    print(memory.search("zebra").degraded)
    os.chmod(agent, 0o700)
    memory.add("The heron stands in the pond.")
    result = memory.search("heron")
    print(len(result), result.degraded)
"""
    done = run_python(script, home / "workspace", home / "home")
    assert done.stdout.splitlines() == ["()", "1 ()"], done.stderr
