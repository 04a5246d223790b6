"""Searching through qmd: the real program by word, and programs in its place that are slow, broken or lie."""

import json
import os
import sys

import pytest

from kept.sessions.entries import Message
from kept.sessions.store import SessionStore
from kept.testing import FrozenClock
from tests.support.repository import NODE_PATH, NODE_PROGRAMS
from tests.support.workspaces import open_memory, paths, write_note

QMD = NODE_PROGRAMS / "qmd"


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    """Notes, and the Node that the real program runs on first on the path."""
    monkeypatch.setenv("PATH", f"{NODE_PATH}{os.pathsep}{os.environ['PATH']}")
    folder = tmp_path / "workspace"
    write_note(
        folder, "memory/ports.md", "# Ports\n\nIntro.\n\n## Staging\n\nThe staging database moved to port 5433.\n"
    )
    write_note(folder, "MEMORY.md", "The parrot is green.\n")
    write_note(folder, "README.md", "Not a note: the staging database.\n")
    return folder


@pytest.fixture
def qmd(tmp_path, workspace, monkeypatch):
    monkeypatch.setattr("kept.search.qmd.SEARCH_TIMEOUT_S", 60.0)
    opened = []

    def open_with(command=QMD, clock=None, **settings):
        chosen = {"memory_search.backend": "qmd", "memory_search.qmd.command": str(command)}
        more = {f"memory_search.{name.replace('__', '.')}": value for name, value in settings.items()}
        opened.append(open_memory(tmp_path, settings={**chosen, **more}, clock=clock))
        return opened[-1]

    yield open_with
    for memory in opened:
        memory.close()


@pytest.fixture
def stand_in(tmp_path):
    """A program in qmd's place, written in Python."""

    def make(body):
        program = tmp_path / "qmd-stand-in"
        program.write_text(
            f"#!{sys.executable}\nimport json, os, sys, time\n"
            f"open({str(tmp_path / 'calls')!r}, 'a').write(json.dumps(sys.argv[1:]) + chr(10))\n"
            "open(os.environ['INDEX_PATH'], 'a').close()\n"
            "if 'update' in sys.argv: sys.exit(0)\n" + body + "\n"
        )
        program.chmod(0o755)
        return program

    return make


@pytest.fixture
def calls(tmp_path):
    """What the program in qmd's place was called with."""
    return lambda: [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]


# the real program


@pytest.mark.node
def test_notes_are_found_with_their_exact_lines(qmd):
    result = qmd().search("which port is staging on?")
    assert result.degraded == ()
    assert (result.provider, result.model) == ("qmd", "search")
    (hit,) = result
    assert (hit.citation, hit.snippet) == ("memory/ports.md#L7", "The staging database moved to port 5433.")
    assert hit.source == "memory"
    assert sum(part.value for part in hit.parts) == hit.score


@pytest.mark.node
def test_an_edit_is_found_by_the_next_search_and_what_is_gone_is_not(qmd, workspace):
    memory = qmd()
    assert paths(memory.search("parrot")) == ["MEMORY.md"]
    write_note(workspace, "memory/new.md", "The zeppelin is silver.\n")
    assert paths(memory.search("zeppelin")) == ["memory/new.md"]
    write_note(workspace, "memory/new.md", "The walrus is grey.\n")
    assert paths(memory.search("zeppelin")) == []
    (workspace / "memory/new.md").unlink()
    assert paths(memory.search("walrus")) == []


@pytest.mark.node
@pytest.mark.parametrize("query", ["-parrot", "--help parrot", '"parrot', "parrot*", "parrot; rm -rf /", "NOT parrot("])
def test_no_query_is_taken_for_an_option_or_an_operator(qmd, query):
    result = qmd().search(query)
    assert result.degraded == ()
    assert result.provider == "qmd"
    if set(query.replace("-", " ").split()) == {"parrot"}:
        assert paths(result) == ["MEMORY.md"]


@pytest.mark.node
def test_extra_paths_and_a_workspace_behind_a_link_are_covered(qmd, workspace, tmp_path):
    workspace.rename(tmp_path / "real")
    workspace.symlink_to(tmp_path / "real")
    extra = write_note(tmp_path / "extra", "b.md", "The zeppelin is silver.\n")
    memory = qmd(extra_paths=[str(extra.parent)])
    assert paths(memory.search("zeppelin")) == [str(extra)]
    assert paths(memory.search("parrot")) == ["MEMORY.md"]


@pytest.mark.node
def test_the_users_own_qmd_is_neither_used_nor_changed(qmd, tmp_path, workspace, monkeypatch):
    write_note(tmp_path / "user", ".config/qmd/index.yml", "collections: {}\n")
    write_note(tmp_path / "home", ".qmd/index.yml", "collections: {}\n")  # above the folder it is run in
    monkeypatch.setenv("QMD_CONFIG_DIR", str(tmp_path / "user/.config/qmd"))
    assert paths(qmd().search("parrot")) == ["MEMORY.md"]
    assert (tmp_path / "user/.config/qmd/index.yml").read_text() == "collections: {}\n"
    assert [str(p) for p in (tmp_path / "user").rglob("*.sqlite")] == []
    assert [p.parent.name[:4] for p in (tmp_path / "home").rglob("kept.yml")] == ["qmd-"]


@pytest.mark.node
def test_conversations_come_from_our_own_index_in_turn_with_the_notes(qmd, tmp_path):
    with SessionStore.open(home=tmp_path / "home") as store:
        record = store.get_or_create("telegram", "5054")
        store.append(record.id, Message.of("user", "The parrot has learned to whistle."))
    memory = qmd()
    assert [hit.source for hit in memory.search("parrot")] == ["memory", "sessions"]
    assert [hit.source for hit in memory.search("parrot", max_results=1)] == ["memory"]
    assert [hit.source for hit in memory.search("parrot", source="memory")] == ["memory"]
    for only in ({"source": "sessions"}, {"channel": "telegram"}):
        result = memory.search("parrot", **only)
        assert [hit.source for hit in result] == ["sessions"]
        assert result.degraded == ()


@pytest.mark.node
def test_what_it_cannot_narrow_by_is_answered_by_our_own_index_which_says_so(qmd):
    for narrow in ({"path": "MEMORY.md"}, {"since": "7d"}):
        result = qmd().search("parrot", **narrow)
        assert paths(result) == ["MEMORY.md"]
        assert result.degraded == ("Answered from Kept's own index: qmd cannot narrow by path, date, tag or project.",)


# where it does not answer


def own(result, reason):
    """Whether our own index answered, and said why."""
    assert paths(result) == ["MEMORY.md"]
    assert result.provider == "fake"
    (notice,) = result.degraded
    assert notice.startswith("Answered from Kept's own index:")
    assert reason in notice


def test_where_it_is_missing_our_own_index_answers_and_names_the_remedy(qmd):
    own(qmd("no-such-qmd").search("parrot"), "npm install -g @tobilu/qmd")


def test_a_slow_program_is_killed_with_all_it_started(qmd, stand_in, tmp_path, monkeypatch):
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    # A child that holds the fifo open for writing as long as it lives.
    child = f"import time; held = open({str(alive)!r}, 'w'); held.write('x'); held.flush(); time.sleep(1000)"
    program = stand_in(
        f"import subprocess\nsubprocess.Popen([sys.executable, '-c', {child!r}])\n"
        f"while not os.path.exists({str(tmp_path / 'never')!r}): time.sleep(1)"
    )
    monkeypatch.setattr("kept.search.qmd.SEARCH_TIMEOUT_S", 3.0)
    memory = qmd(program, sync__on_search=False)
    memory.sync()
    reader = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)
    own(memory.search("parrot"), "did not answer within 3 s")
    os.set_blocking(reader, True)
    with os.fdopen(reader, "rb") as fifo:
        assert fifo.read() in (b"x", b"")  # it ends: nobody has it open any more


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("print('not JSON')", "cannot be parsed"),
        ("print('[1, 2]')", "cannot be parsed"),
        ("print('[{\"file\": 3}]')", "cannot be parsed"),
        ("print('{}')", "cannot be parsed"),
        ("sys.stdout.buffer.write(b'[\\xff\\xfe]')", "cannot be parsed"),
        ("sys.stderr.write('no such table: documents\\n'); sys.exit(3)", "exit code 3: no such table"),
        ("os.kill(os.getpid(), 9)", "exit code -9"),
        ("while True: print('[' * 100_000)", "printed more than"),
    ],
)
def test_whatever_a_broken_program_does_our_own_index_answers(qmd, stand_in, body, reason):
    own(qmd(stand_in(body)).search("parrot"), reason)


def test_what_a_lying_program_says_is_not_shown(qmd, stand_in, tmp_path):
    write_note(tmp_path, "secret.md", "The parrot's password.\n")
    lies = [
        {"file": str(tmp_path / "secret.md"), "score": 1, "snippet": "@@ -1,1 @@\nThe parrot's password."},
        {"file": "../../../../workspace/../secret.md", "score": 1, "snippet": "@@ -1,1 @@\nThe parrot's password."},
        {"file": "/etc/passwd", "score": 1, "snippet": "@@ -1,1 @@\nroot"},
        {"file": str(tmp_path / "workspace/README.md"), "score": 1, "snippet": "@@ -1,1 @@\nNot a note"},
        {"file": str(tmp_path / "workspace/MEMORY.md"), "score": 1, "snippet": "@@ -1,1 @@\nThe parrot is red."},
        {"file": str(tmp_path / "workspace/MEMORY.md"), "score": 1, "snippet": "@@ -9,1 @@\nThe parrot is green."},
        {"file": "qmd://workspace/gone.md", "score": 1, "snippet": "@@ -1,1 @@\nThe parrot is gone."},
        {"file": str(tmp_path / "workspace/MEMORY.md"), "score": 7, "snippet": "@@ -1,1 @@\nThe parrot is green."},
    ]
    result = qmd(stand_in(f"print({json.dumps(lies)!r})")).search("parrot")
    assert result.provider == "qmd"
    assert [(hit.citation, hit.score, hit.snippet) for hit in result] == [("MEMORY.md#L1", 1.0, "The parrot is green.")]


def test_after_a_failure_it_is_left_alone_until_the_cool_down_is_over(qmd, stand_in, calls):
    program, clock = stand_in("sys.exit(1)"), FrozenClock()
    memory = qmd(program, clock)
    for _ in range(3):
        own(memory.search("parrot"), "exit code 1")
    searched = [call for call in calls() if "search" in call]
    assert len(searched) == 1
    stand_in("print('[]')")  # it is repaired
    clock.move(seconds=59)
    own(memory.search("parrot"), "exit code 1")
    clock.move(seconds=2)
    result = memory.search("parrot")
    assert (result.provider, result.degraded) == ("qmd", ())


def test_a_question_by_meaning_is_given_as_it_is_and_vectors_are_made_by_a_sync(qmd, stand_in, calls):
    memory = qmd(stand_in("print('[]')"), qmd__mode="query")
    memory.search("which parrot\nis it?")
    memory.sync()
    assert [call[2:3] for call in calls()] == [["update"], ["query"], ["embed"]]
    assert calls()[1][-2:] == ["--", "which parrot is it?"]
