"""Conversations of other machines are read, listed, found and forgotten here, and changed only at home."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kept.errors import PathRefused, SessionElsewhere, SessionNotFound, TranscriptUnwritable, UsageError
from kept.host_names import is_host_name
from kept.sessions.entries import Message
from kept.sessions.host_transcripts import HostTranscripts
from kept.sessions.store import SessionStore
from kept.sessions.transcript_paths import cite_transcript
from tests.support.files import tree_of, write_file
from tests.support.workspaces import open_memory

HERON = "The heron nests behind the mill"
PLUM = "The plum tree is for the neighbours"


@pytest.fixture
def folder(home):
    return home / "agents/main/sessions"


@pytest.fixture
def desk(tmp_path):
    """A conversation on another machine: the id of its session, and its transcript."""
    with SessionStore.open(home=tmp_path / "desk", create=True) as store:
        session = store.get_or_create("telegram", "5054")
        store.append(session.id, Message.of("user", HERON))
        store.append(session.id, Message.of("assistant", PLUM))
        return session.id, Path(store.get(session.id).transcript_path)


def copies(home, own_host="laptop"):
    with SessionStore.open(home=home, create=True) as store:
        return HostTranscripts(store.config.paths, own_host)


def place(home, path, host="desk"):
    return copies(home).place(host, path.name, path.read_bytes())


def all_bytes_below(folder):
    return b"".join(data for data in tree_of(folder).values() if data)


def say(tmp_path, session_id, text):
    with SessionStore.open(home=tmp_path / "desk") as store:
        store.append(session_id, Message.of("user", text))


def test_a_conversation_of_another_host_is_listed_and_read_like_any_other(home, desk):
    session_id, path = desk
    assert place(home, path) == "grown"
    assert place(home, path) == "unchanged"
    with SessionStore.open(home=home) as store:
        [record] = store.recent()
        assert (record.id, record.host, record.messages) == (session_id, "desk", 2)
        assert record.citation == f"sessions/desk/{path.name}"
        for reference in (session_id, session_id[:8], record.citation, f"sessions/{path.name}", "telegram:5054"):
            assert store.get(reference).id == session_id
        assert [message.text for message in store.load(session_id).messages] == [HERON, PLUM]
        assert store.session_ids() == set(), "an import is only compared with this machine's own"


def test_growth_is_appended_and_the_catalogue_follows(tmp_path, home, desk, folder):
    session_id, path = desk
    with SessionStore.open(home=home, create=True) as store:
        place(home, path)
        assert store.get(session_id).messages == 2
        inode = (folder / "desk" / path.name).stat().st_ino
        say(tmp_path, session_id, "Third")
        data = path.read_bytes()
        here = copies(home)
        assert (
            here.append("desk", path.name, data[here.size("desk", path.name) :], offset=here.size("desk", path.name))
            == "grown"
        )
        assert here.append("desk", path.name, data, offset=0) == "unchanged", "bytes that are here are only compared"
        assert store.get(session_id).messages == 3
        assert (folder / "desk" / path.name).stat().st_ino == inode
    with pytest.raises(UsageError, match="bytes are here"):
        here.append("desk", path.name, b"{}\n", offset=len(data) + 1)


def test_only_whole_lines_are_taken_and_an_older_version_takes_nothing_away(home, desk, folder):
    _, path = desk
    data = path.read_bytes()
    here = copies(home)
    assert here.place("desk", path.name, data[:-5]) == "grown"
    assert here.size("desk", path.name) == data[:-5].rfind(b"\n") + 1
    assert here.place("desk", path.name, data) == "grown"
    assert here.place("desk", path.name, data[: data.index(b"\n") + 1]) == "unchanged"
    assert (folder / "desk" / path.name).read_bytes() == data


def test_a_copy_that_a_killed_process_left_torn_is_completed_and_not_repaired_by_readers(home, desk, folder):
    session_id, path = desk
    data = path.read_bytes()
    torn = write_file(folder / "desk" / path.name, data[:-9].decode())
    with SessionStore.open(home=home, create=True) as store:
        assert store.get(session_id).messages == 1
    assert torn.read_bytes() == data[:-9]
    assert place(home, path) == "grown"
    assert torn.read_bytes() == data
    assert sorted(os.listdir(folder / "desk")) == [path.name]


def test_nobody_here_changes_a_session_of_another_host(home, desk, folder):
    session_id, path = desk
    place(home, path)
    changes = [
        lambda store: store.append(session_id, Message.of("user", "mine")),
        lambda store: store.rename(session_id, "My title"),
        lambda store: store.compact(session_id, "A summary", keep_messages=1),
        lambda store: store.reset(session_id),
        lambda store: store.delete(session_id),
        lambda store: store.delete(session_id, purge=True),
        lambda store: store.extend(session_id, [object()], after=session_id),
    ]
    with SessionStore.open(home=home) as store:
        for change in changes:
            with pytest.raises(SessionElsewhere, match=f"Session {session_id} belongs to the machine desk"):
                change(store)
    assert (folder / "desk" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("arguments", [["rename", "My title"], ["reset"], ["compact", "--summary", "x"], ["delete"]])
def test_the_commands_say_in_one_line_where_it_belongs(kept, home, desk, arguments):
    session_id, path = desk
    place(home, path)
    name, *rest = arguments
    outcome = kept("sessions", name, session_id, *rest)
    assert outcome.code == 4
    assert f"Session {session_id} belongs to the machine desk" in outcome.err
    assert "Traceback" not in outcome.err


def test_the_next_message_of_a_conversation_starts_a_session_of_this_host(home, desk):
    session_id, path = desk
    place(home, path)
    with SessionStore.open(home=home) as store:
        assert store.find("telegram", "5054") is None
        own = store.get_or_create("telegram", "5054")
        assert own.id != session_id
        assert own.host == ""
        assert store.get("telegram:5054").id == own.id


def test_the_list_has_a_column_for_hosts_only_if_there_are_several(kept, home, desk):
    session_id, path = desk
    with SessionStore.open(home=home, create=True) as store:
        store.append(store.get_or_create("terminal", "me").id, Message.of("user", "Hello"))
    assert "Host" not in kept("sessions", "list").out
    place(home, path)
    lines = kept("sessions", "list").out.splitlines()
    assert "Host" in lines[0]
    assert next(line for line in lines if session_id in line).split()[4] == "desk"
    records = json.loads(kept("sessions", "list", "--json").out)["sessions"]
    assert {record["sessionId"] == session_id: record["host"] for record in records}[True] == "desk"
    assert {record["host"] for record in records} != {"desk"}


def test_a_search_finds_and_cites_it(tmp_path, home, desk):
    session_id, path = desk
    place(home, path)
    with open_memory(tmp_path) as memory:
        [hit] = memory.search("heron mill", source="sessions").hits
        assert hit.path == f"sessions/desk/{path.name}"
        assert HERON in memory.read(hit.citation).text
        assert HERON in memory.read(f"sessions/{path.name}").text, "as its own machine cites it"
        say(tmp_path, session_id, "The walnut is ripe")
        place(home, path)
        assert memory.search("walnut ripe", source="sessions").hits


def test_forgotten_text_does_not_come_back_however_often_it_arrives(tmp_path, home, desk, kept, folder):
    session_id, path = desk
    place(home, path)
    outcome = kept("forget", "heron nests", "--yes")
    assert outcome.code == 0, outcome.err
    assert b"heron" not in all_bytes_below(home)
    assert place(home, path) == "unchanged"
    say(tmp_path, session_id, "And then?")
    assert place(home, path) == "grown"
    say(tmp_path, session_id, "Say again: the heron nests there")
    place(home, path)
    assert b"heron" not in all_bytes_below(home)
    assert b"plum" in all_bytes_below(folder)
    with SessionStore.open(home=home) as store:
        assert store.get(session_id).messages == 4
    assert (folder / "desk" / path.name).stat().st_size == path.stat().st_size, "offsets are the same on all machines"


def test_text_that_its_host_forgot_leaves_the_copy(tmp_path, home, desk, kept, folder):
    _, path = desk
    place(home, path)
    kept("--home", str(tmp_path / "desk"), "forget", "heron nests", "--yes")
    assert b"heron" not in path.read_bytes()
    assert place(home, path) == "replaced"
    assert b"heron" not in all_bytes_below(folder)


def test_a_session_that_was_forgotten_as_a_whole_is_not_received_again_until_it_is_restored(home, desk, kept, folder):
    session_id, path = desk
    place(home, path)
    outcome = kept("forget", "--session", session_id, "--yes")
    assert outcome.code == 0, outcome.err
    assert not (folder / "desk" / path.name).exists()
    assert place(home, path) == "deleted"
    assert b"heron" not in all_bytes_below(home)
    with SessionStore.open(home=home) as store:
        with pytest.raises(SessionNotFound):
            store.get(session_id)
        store.restore(session_id)
    assert place(home, path) == "grown"


def test_a_transcript_that_this_host_has_itself_is_no_copy(tmp_path, home, desk, folder):
    _, path = desk
    write_file(folder / path.name, path.read_text())
    assert place(home, path) == "own"
    assert not (folder / "desk" / path.name).exists()


HOSTILE = [
    "..",
    ".",
    "",
    "a/b",
    "../x",
    "a\0b",
    "a\nb",
    "a\x1b[31mb",
    "sessions",
    "x.jsonl",
    "a.jsonl.deleted-2",
    "-x",
    "x" * 61,
]
HOSTILE += [".git", "a..b", "x.lock", "x.tmp", "a b", "\udc80", "C:", "a\\b", "desk."]


@pytest.mark.parametrize("host", HOSTILE)
def test_a_hostile_host_name_is_refused_and_changes_nothing(home, desk, host):
    _, path = desk
    here = copies(home)
    before = sorted(home.rglob("*"))
    for action in (
        lambda: here.place(host, path.name, path.read_bytes()),
        lambda: here.append(host, path.name, b"{}\n", offset=0),
        lambda: here.remove(host, path.name),
        lambda: here.size(host, path.name),
        lambda: here.names(host),
    ):
        with pytest.raises(PathRefused):
            action()
    assert sorted(home.rglob("*")) == before
    assert not is_host_name(host)


@pytest.mark.parametrize(
    "name",
    [
        "../x.jsonl",
        "a/b.jsonl",
        ".x.jsonl",
        "x.txt",
        "",
        "a\0.jsonl",
        "a\n.jsonl",
        "x" * 300 + ".jsonl",
        "\udc80.jsonl",
    ],
)
def test_a_hostile_name_of_a_transcript_is_refused(home, desk, name):
    with pytest.raises(PathRefused):
        copies(home).place("desk", name, b"{}\n")


def test_hosts_that_differ_only_in_case_are_told_to_take_other_names(home, desk):
    _, path = desk
    place(home, path)
    with pytest.raises(PathRefused, match="differ only in case"):
        place(home, path, host="Desk")
    with pytest.raises(PathRefused, match="is this machine"):
        copies(home, own_host="Laptop").place("laptop", path.name, path.read_bytes())


def test_no_link_is_followed(tmp_path, home, desk, folder):
    _, path = desk
    outside = tmp_path / "outside"
    outside.mkdir()
    folder.mkdir(parents=True)
    (folder / "desk").symlink_to(outside)
    with pytest.raises(TranscriptUnwritable):
        place(home, path)
    assert list(outside.iterdir()) == []
    write_file(outside / path.name, path.read_text())
    with SessionStore.open(home=home) as store:
        assert store.recent() == []
    with open_memory(tmp_path) as memory, pytest.raises(PathRefused):
        memory.read(f"sessions/desk/{path.name}")
    (folder / "desk").unlink()
    (folder / "desk").mkdir()
    (folder / "desk" / path.name).symlink_to(outside / path.name)
    with pytest.raises(Exception, match="cannot be"):
        place(home, path)
    assert (outside / path.name).read_bytes() == path.read_bytes()


def test_the_citation_follows_from_the_path():
    assert cite_transcript("/h/agents/main/sessions/x.jsonl") == "sessions/x.jsonl"
    assert cite_transcript("/h/agents/sessions/sessions/x.jsonl") == "sessions/x.jsonl"
    assert cite_transcript("/h/agents/main/sessions/desk/x.jsonl") == "sessions/desk/x.jsonl"
    assert cite_transcript("desk/x.jsonl") == "sessions/desk/x.jsonl"
    assert cite_transcript("/tmp/desk/x.jsonl") == "sessions/x.jsonl"


def test_copies_are_exported_verified_and_restored(tmp_path, home, desk, kept):
    _, path = desk
    place(home, path, host="watcher-1")
    archive = tmp_path / "all.tar.gz"
    assert kept("export", str(archive)).code == 0
    assert kept("verify", str(archive)).code == 0
    elsewhere = tmp_path / "elsewhere"
    outcome = kept("--home", str(elsewhere), "restore", str(archive))
    assert outcome.code == 0, outcome.err
    assert (elsewhere / "agents/main/sessions/watcher-1" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.kills
def test_a_process_that_is_killed_while_it_receives_leaves_a_prefix_that_the_next_one_completes(
    tmp_path, home, desk, folder
):
    session_id, path = desk
    for number in range(40):
        say(tmp_path, session_id, f"Message {number} " + "x" * 2000)
    data = path.read_bytes()
    program = textwrap.dedent(
        f"""
        import sys
        from kept.sessions.host_transcripts import HostTranscripts
        from kept.sessions.store import SessionStore
        here = HostTranscripts(SessionStore.open(home={str(home)!r}, create=True).config.paths, "laptop")
        data = open({str(path)!r}, "rb").read()
        print("go", flush=True)
        for end in range(here.size("desk", {path.name!r}) + 1000, len(data) + 1000, 1000):
            here.place("desk", {path.name!r}, data[:end])
        """
    )
    for delay in range(12):
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        try:
            process.wait(timeout=0.002 * delay)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        received = (folder / "desk" / path.name).read_bytes() if (folder / "desk" / path.name).exists() else b""
        assert data.startswith(received)
    place(home, path)
    assert (folder / "desk" / path.name).read_bytes() == data
