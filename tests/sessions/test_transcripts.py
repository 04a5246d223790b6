"""Transcripts: what was acknowledged is there, what is torn is repaired, what is damaged is said."""

import random
import subprocess
from pathlib import Path

import pytest

from kept.errors import SessionNotFound, TranscriptTooNew, WriteFailed
from kept.sessions.entries import (
    Entry,
    Message,
    StateEntry,
    Text,
    TokenUsage,
    ToolCall,
    UnknownEntry,
    format_entry,
    parse_entry,
)
from kept.sessions.store import SessionStore
from kept.sessions.transcript import Position
from tests.support.commands import start_python
from tests.support.files import largest_file
from tests.support.session_strategies import open_sessions, path_of, said, say

WRITER = """
    import os
    import sys
    from kept.sessions.entries import Message
    from kept.sessions.store import SessionStore
    if sys.argv[3] == "slowly":
        # As on a disk that takes a few bytes at a time, so that a kill also falls inside a line.
        write = os.write
        os.write = lambda handle, data: write(handle, data[:7])
    with SessionStore.open(home=sys.argv[1]) as store:
        session = store.get_or_create("terminal", "ada")
        number = 0
        while number < int(sys.argv[4]):
            text = f"{sys.argv[2]} {number} " + "é" * (number % 300)
            entry = store.append(session.id, Message.of("user", text))
            sys.stdout.write(f"{entry.id} {sys.argv[2]} {number}\\n")
            sys.stdout.flush()
            number += 1
"""


def start_writer(tmp_path: Path, name: str, *, how: str = "fast", count: int = 10**9) -> subprocess.Popen[str]:
    return start_python(WRITER, tmp_path / "home", name, how, str(count))


def acknowledged(out: str) -> list[str]:
    """Ids of the entries whose append had returned; the last line may itself have been cut by the kill."""
    return [line.split()[0] for line in out.splitlines(keepends=True) if line.endswith("\n")]


def conversation(tmp_path: Path) -> tuple[Path, list[bytes]]:
    with open_sessions(tmp_path) as store:
        session = store.get_or_create("telegram", "5054")
        say(store, session.id, "Where is the spare key?", 'Under the "blue" pot\n\nby the door. Grüße 🗝️')
        store.append(session.id, Message("assistant", (Text("I look."), ToolCall("c1", "search", {"q": "key"}))))
        store.append(session.id, Message.of("assistant", "Found.", usage=TokenUsage(10, 5, 15)))
        store.append(session.id, StateEntry("model", "opus"))
    path = path_of(tmp_path / "home", session)
    return path, path.read_bytes().splitlines(keepends=True)


def test_a_session_truncated_anywhere_is_still_found_read_and_continued(tmp_path):
    path, lines = conversation(tmp_path)
    whole = b"".join(lines)
    session_id = path.stem.partition("_")[2]
    ends = [sum(map(len, lines[:count])) for count in range(len(lines) + 1)]
    for size in sorted({*range(0, len(whole) + 1, 13), *ends, *(end - 1 for end in ends[1:])}):
        path.write_bytes(whole[:size])
        complete = sum(end - 1 <= size for end in ends[1:])  # all but its line break is enough
        with open_sessions(tmp_path) as store:
            assert len(store.load(session_id)) == sum(end <= size for end in ends[1:])
            entry = store.append(session_id, Message.of("user", "Go on."))
            loaded = store.load(session_id)
            assert [format_entry(one) for one in loaded][:-1] == lines[:complete]
            assert loaded.entries[-1] == entry
            assert entry.parent_id == (loaded.entries[-2].id if complete else None)
            assert not loaded.damage
            assert store.get(session_id).messages == len(loaded.messages)


def test_a_damaged_line_in_the_middle_is_reported_with_its_number_and_the_rest_loads(tmp_path):
    path, lines = conversation(tmp_path)
    path.write_bytes(b"".join([*lines[:2], b"\xff\xfe rubbish\n", b"\n", *lines[2:]]))
    with open_sessions(tmp_path) as store:
        session = store.recent()[0]
        assert session.damaged_lines == 2
        assert [str(one.reason).partition(":")[0] for one in store.take_problems()] == ["line 3", "line 4"]
        for limit in (None, 100, 4):
            loaded = store.load(session.id, limit=limit)
            assert [one.line for one in loaded.damage] == [3, 4]
            assert len(loaded.messages) == 4
        store.append(session.id, Message.of("user", "on"))
        assert [line.number for line in store.tail(session.id, 2)] == [7, 8, 9]


def test_every_damaged_byte_costs_at_most_its_own_line(tmp_path):
    path, lines = conversation(tmp_path)
    whole = b"".join(lines)
    rng = random.Random(5)
    for at in rng.sample(range(len(whole)), 150):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        with open_sessions(tmp_path) as store:
            session = store.recent()[0]
            kept = [one for one in store.load(session.id) if one in [parse_entry(line[:-1]) for line in lines]]
            # A line break that was damaged joins two lines; a letter that became one parts a line.
            assert len(kept) >= len(lines) - 2


def test_an_unknown_kind_of_line_is_loaded_and_does_not_break_the_chain(tmp_path):
    path, _ = conversation(tmp_path)
    with path.open("ab") as file:
        file.write(b'{"type":"label","id":"x9","what":"else"}\n')
    with open_sessions(tmp_path) as store:
        session = store.recent()[0]
        entry = store.append(session.id, Message.of("user", "on"))
        assert entry.parent_id == "x9"
        assert isinstance(store.load(session.id).entries[-2], UnknownEntry)


def test_a_transcript_of_a_later_version_is_read_but_not_added_to(tmp_path):
    path, _ = conversation(tmp_path)
    path.write_bytes(path.read_bytes().replace(b'"version":1', b'"version":2', 1))
    with open_sessions(tmp_path) as store:
        session = store.recent()[0]
        assert len(said(store, session.id)) == 4
        with pytest.raises(TranscriptTooNew):
            store.append(session.id, Message.of("user", "on"))


@pytest.mark.kills
@pytest.mark.parametrize(("how", "rounds"), [("fast", 60), ("slowly", 40)])
def test_kill_dash_nine_never_loses_an_acknowledged_entry(tmp_path, how, rounds):
    rng = random.Random(11)
    promised: list[str] = []
    for round_number in range(rounds):
        process = start_writer(tmp_path, f"r{round_number}", how=how)
        heard = [process.stdout.readline() for _ in range(rng.randrange(1, 6))]
        try:
            process.wait(timeout=rng.uniform(0.0, 0.01))
        except subprocess.TimeoutExpired:
            process.kill()
        rest, _ = process.communicate()
        promised += acknowledged("".join(heard) + rest)
        with open_sessions(tmp_path) as store:
            session = store.recent()[0]
            loaded = store.load(session.id)
            ids = [entry.id for entry in loaded]
            known = set(promised)
            assert [one for one in ids if one in known] == promised
            assert not loaded.damage
            assert session.messages == len(loaded.messages)
    assert len(promised) >= rounds


def test_two_processes_interleave_whole_lines_in_order(tmp_path):
    writers = [start_writer(tmp_path, name, how="slowly", count=60) for name in ("a", "b")]
    outs = [writer.communicate(timeout=120)[0] for writer in writers]
    with SessionStore.open(home=tmp_path / "home") as store:
        (session,) = store.recent()  # they met in one session, though both began it
        loaded = store.load(session.id)
        assert not loaded.damage
        assert session.messages == 120
        ids = [entry.id for entry in loaded if isinstance(entry, Entry)]
        for out in outs:
            own = acknowledged(out)
            assert len(own) == 60
            assert sorted(own, key=ids.index) == own
        parents = [entry.parent_id for entry in loaded]
        assert parents == [None, *ids[:-1]]  # each follows the one before it in the file


def test_an_append_that_fails_leaves_the_transcript_as_it_was(tmp_path):
    path, lines = conversation(tmp_path)
    with open_sessions(tmp_path) as store:
        session = store.recent()[0]
        with largest_file(path.stat().st_size + 50), pytest.raises(WriteFailed):
            store.append(session.id, Message.of("user", "x" * 500))
    assert path.read_bytes() == b"".join(lines)


def test_transcripts_are_private(tmp_path):
    path, _ = conversation(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert (path.parent.parent / "sessions.sqlite").stat().st_mode & 0o777 == 0o600


def test_adding_to_a_transcript_that_is_gone_does_not_make_it_anew(tmp_path):
    path, _ = conversation(tmp_path)
    with open_sessions(tmp_path) as store:
        session = store.recent()[0]
        path.unlink()
        with pytest.raises(SessionNotFound):
            store.append(session.id, Message.of("user", "on"))
    assert not path.exists()


def test_the_tail_is_the_end_of_the_whole_whatever_is_known(tmp_path):
    conversation(tmp_path)
    with open_sessions(tmp_path) as store:
        transcript = store.transcript(store.recent()[0])
    everything = list(transcript.iter_lines())
    places = [Position(line.start, line.number - 1) for line in everything] + [
        Position(everything[-1].end, everything[-1].number)
    ]
    for place in places:
        # Line 1 is the session, 2 to 5 are messages, 6 is a state.
        for wanted, first in ((0, 7), (1, 5), (2, 4), (3, 3), (4, 2), (5, 1), (6, 1)):
            assert transcript.tail(wanted, place) == everything[first - 1 :]
