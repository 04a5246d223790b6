"""OpenClaw's sessions: files, the list of their keys, its database, its notes."""

import datetime as dt
import json
import os

import apsw
import pytest

from kept.notes.adopt import adopt_notes
from kept.notes.workspace import Workspace
from kept.sessions.importers import openclaw
from kept.sessions.importers.openclaw import to_key
from tests.support.files import tree_of, write_file
from tests.support.foreign_transcripts import (
    bring_in,
    entries_of,
    lines,
    messages_of,
    pi_answer,
    pi_header,
    pi_user,
    record_of,
    say,
)

TALK = (pi_header("oc-1"), pi_user("a1", None, "Hello"), pi_answer("a2", "a1", say("Hi")))


@pytest.fixture
def source(tmp_path):
    return tmp_path / ".openclaw"


@pytest.fixture
def sessions(source):
    folder = source / "agents" / "main" / "sessions"
    write_file(folder / "oc-1.jsonl", lines(*TALK))
    return folder


def test_the_list_gives_key_and_model(home, source, sessions):
    entry = {"sessionId": "oc-1", "modelOverride": "m-7", "authProfileOverride": "a secret of no use here"}
    write_file(sessions / "sessions.json", json.dumps({"agent:main:telegram:dm:5054": entry, "odd": 1}))
    report = bring_in(home, "openclaw", source)
    assert (report.count("imported"), report.problems) == (1, ())
    record = record_of(home, "telegram:5054")
    assert (record.id, record.model_override) == ("oc-1", "m-7")
    assert "secret" not in json.dumps(record.metadata)
    assert bring_in(home, "openclaw", source).count("unchanged") == 1


def test_messages_without_times_are_of_the_time_of_their_file(home, source, sessions):
    bare = [{name: value for name, value in record.items() if name != "timestamp"} for record in TALK]
    path = write_file(sessions / "oc-1.jsonl", lines(*bare))
    os.utime(path, (1767607260, 1767607260))
    bring_in(home, "openclaw", source)
    written = dt.datetime.fromtimestamp(1767607260, dt.UTC)
    assert {entry.timestamp for entry in entries_of(home, "oc-1")} == {written} == {record_of(home, "oc-1").created}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("agent:main:main", "agent:main:openclaw:default:direct:main"),
        ("main", "agent:main:openclaw:default:direct:main"),
        ("agent:main:dm:ada", "agent:main:openclaw:default:direct:ada"),
        ("agent:main:telegram:dm:5054", "agent:main:telegram:default:direct:5054"),
        ("agent:main:telegram:work:direct:5054", "agent:main:telegram:work:direct:5054"),
        ("agent:main:telegram:group:-100:topic:7", "agent:main:telegram:default:group:-100%3Atopic%3A7"),
        ("agent:main:discord:channel:99", "agent:main:discord:default:channel:99"),
        ("agent:main:cron:nightly", "agent:main:openclaw:default:cron:nightly"),
        ("agent:main:subagent:1-2", "agent:main:openclaw:default:subagent:1-2"),
        ("", "agent:main:openclaw:default:direct:unknown"),
        ("::::", "agent:main:openclaw:default:direct:%3A%3A%3A%3A"),
    ],
)
def test_keys_are_translated(theirs, ours):
    assert str(to_key(theirs, "main")) == ours


def test_a_damaged_list_costs_only_the_key(home, source, sessions):
    write_file(sessions / "sessions.json", "{")
    report = bring_in(home, "openclaw", source)
    assert "sessions.json" in report.problems[0].reason
    assert record_of(home, "oc-1").channel == "openclaw"


def test_transcripts_that_were_reset_come_too_and_those_of_other_agents_do_not(home, source, sessions):
    for name, path in (
        ("oc-2", sessions / "oc-2.jsonl.reset.2026-01-05T10-00-00.000Z"),
        ("oc-3", sessions / "oc-3.jsonl.deleted.2026-01-05T10-00-00.000Z"),
        ("oc-4", source / "agents" / "work" / "sessions" / "oc-4.jsonl"),
    ):
        write_file(path, lines(pi_header(name), pi_user("b1", None, "Old")))
    report = bring_in(home, "openclaw", source)
    assert sorted(one.id for one in report.sessions) == ["oc-1", "oc-2"]


def make_database(path, sessions, *, wal=False, packed=False):
    path.parent.mkdir(parents=True, exist_ok=True)
    db = apsw.Connection(str(path))
    if wal:
        db.pragma("journal_mode", "WAL")
        db.pragma("wal_autocheckpoint", 0)
    db.execute(
        "CREATE TABLE transcript_events (session_id TEXT NOT NULL, seq INTEGER NOT NULL, event_json TEXT,"
        " created_at INTEGER NOT NULL, event_zstd BLOB, event_utf8_bytes INTEGER, PRIMARY KEY (session_id, seq));"
        "CREATE TABLE session_entries (session_key TEXT PRIMARY KEY, session_id TEXT, entry_json TEXT);"
    )
    for session_id, records in sessions.items():
        db.execute(
            "INSERT INTO session_entries VALUES (?, ?, ?)",
            (f"agent:main:signal:dm:{session_id}", session_id, json.dumps({"modelOverride": "m-3"})),
        )
        for seq, record in enumerate(records):
            text, blob = (None, b"zzz") if packed and seq == 1 else (json.dumps(record), None)
            db.execute("INSERT INTO transcript_events VALUES (?, ?, ?, 0, ?, 99)", (session_id, seq, text, blob))
    return db


def other(records, name):
    return [{**record, "id": record["id"].replace("oc-1", name)} for record in records]


@pytest.mark.parametrize("wal", [False, True])
def test_transcripts_in_a_database_are_read_and_the_database_is_not_touched(home, source, wal):
    path = source / "agents" / "main" / "agent" / "openclaw-agent.sqlite"
    db = make_database(path, {"oc-1": TALK, "oc-9": other(TALK, "oc-9")}, wal=wal)
    if not wal:
        db.close()
    before = tree_of(source)
    report = bring_in(home, "openclaw", source)
    assert (report.count("imported"), report.problems) == (2, ())
    assert tree_of(source) == before
    assert [one.text for one in messages_of(home, "oc-9")] == ["Hello", "Hi"]
    record = record_of(home, "signal:oc-1")
    assert (record.id, record.model_override) == ("oc-1", "m-3")
    assert bring_in(home, "openclaw", source).count("unchanged") == 2
    db.close()


def test_a_session_in_a_file_and_in_the_database_is_one(home, source, sessions):
    longer = [*TALK, pi_user("a3", "a2", "More")]
    make_database(source / "agents" / "main" / "agent" / "openclaw-agent.sqlite", {"oc-1": longer}).close()
    report = bring_in(home, "openclaw", source)
    assert {one.outcome for one in report.sessions} == {"imported", "unchanged"}
    assert [one.id for one in entries_of(home, "oc-1")] == ["a1", "a2", "a3"]


def test_a_session_with_records_that_cannot_be_read_fails_alone(home, source):
    make_database(source / "packed.sqlite", {"oc-1": TALK}, packed=True).close()
    make_database(source / "plain.sqlite", {"oc-9": other(TALK, "oc-9")}).close()
    report = bring_in(home, "openclaw", source)
    assert {one.id: one.outcome for one in report.sessions} == {"oc-1": "failed", "oc-9": "imported"}
    assert "no record that can be read" in report.problems[0].reason


def test_databases_that_are_damaged_or_of_another_kind_are_named(home, source):
    make_database(source / "damaged.sqlite", {"oc-1": TALK}).close()
    raw = bytearray((source / "damaged.sqlite").read_bytes())
    raw[100:3000] = b"\xff" * 2900
    (source / "damaged.sqlite").write_bytes(raw)
    apsw.Connection(str(source / "other.db")).execute("CREATE TABLE chunks (id)")
    write_file(source / "no.sqlite", "not a database")
    report = bring_in(home, "openclaw", source)
    assert [problem.path for problem in report.problems] == [str(source / "damaged.sqlite")]
    assert sorted(problem.path for problem in report.ignored) == [str(source / "no.sqlite"), str(source / "other.db")]


def test_notes_are_copied_where_there_is_none_and_never_over_one(tmp_path, workspace):
    theirs = tmp_path / "theirs"
    for name, text in (
        ("MEMORY.md", "theirs"),
        ("SOUL.md", "kind\r\n"),
        ("memory/2026-01-05.md", b"\xff raw"),
        ("memory/same.md", "same"),
        ("TOOLS.md", "hammer"),
        ("node_modules/x.md", "no"),
    ):
        write_file(theirs / name, text)
    (theirs / "memory" / "link.md").symlink_to("/etc/hostname")
    os.utime(theirs / "SOUL.md", ns=(10**18, 10**18))
    write_file(workspace / "memory.md", "ours")
    write_file(workspace / "memory" / "same.md", "same")
    before = tree_of(theirs)
    options = {"max_bytes": 1000, "instructions": True}
    done = adopt_notes(Workspace.at(str(workspace)), str(theirs), **options)
    assert done.copied == ("SOUL.md", "TOOLS.md", "memory/2026-01-05.md")
    assert (done.same, done.conflicts, done.left_out) == (("memory/same.md",), ("MEMORY.md",), ())
    assert [problem.reason for problem in done.problems] == ["is a symbolic link, which is not followed"]
    assert (workspace / "memory.md").read_text() == "ours"
    assert (workspace / "memory" / "2026-01-05.md").read_bytes() == b"\xff raw"
    assert (workspace / "SOUL.md").stat().st_mtime_ns == 10**18
    assert tree_of(theirs) == before
    assert adopt_notes(Workspace.at(str(workspace)), str(theirs), **options).copied == ()


def test_the_list_may_hold_anything(tmp_path):
    for text in ("[]", '{"a": {"sessionId": 5}}', '{"a": {"sessionId": "x"}}', "[" * 5000):
        listed, _ = openclaw.read_list(str(write_file(tmp_path / "sessions.json", text)))
        assert listed in ({}, {"x": ("a", {"sessionId": "x"})})
