"""SessionStore: what it finds, counts and keeps, and a catalogue that never has the last word."""

import os
import shutil
import tempfile
import threading
from pathlib import Path

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kept.base.sqlite import checksum_vfs, immediate
from kept.config import load_config
from kept.errors import EntryRefused, SessionExists, SessionKeyInvalid, SessionNotFound, UsageError
from kept.sessions.catalogue import Catalogue
from kept.sessions.entries import (
    FLUSH,
    CompactionEntry,
    Entry,
    Message,
    ResetEntry,
    SessionStart,
    StateEntry,
    TokenUsage,
    format_entry,
)
from kept.sessions.store import SessionStore
from kept.testing import FrozenClock
from tests.support.read_counter import ReadCounter
from tests.support.session_strategies import NOW, open_sessions, path_of, said, say


def catalogue_path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "agents" / "main" / "sessions.sqlite"


def delete_catalogue(tmp_path: Path) -> None:
    for path in catalogue_path(tmp_path).parent.glob("sessions.sqlite*"):
        path.unlink()


# a session's life


def test_a_known_person_comes_back_to_the_same_session(tmp_path):
    with open_sessions(tmp_path) as store:
        assert store.find("telegram", "5054") is None
        session = store.get_or_create("telegram", "5054")
        assert session.messages == 0
        assert session.key == "agent:main:telegram:default:direct:5054"
        assert store.get_or_create("telegram", "5054").id == session.id
        assert store.find("telegram", "5054") == session
        others = [
            store.get_or_create("telegram", "5055"),
            store.get_or_create("slack", "5054"),
            store.get_or_create("telegram", "5054", chat_type="group"),
            store.get_or_create("telegram", "5054", account_id="work"),
        ]
        assert len({session.id, *(other.id for other in others)}) == 5
    with open_sessions(tmp_path) as store:
        assert store.get_or_create("telegram", "5054").id == session.id


def test_a_reset_begins_anew_and_keeps_the_old(tmp_path):
    with open_sessions(tmp_path) as store:
        old = store.get_or_create("telegram", "5054")
        say(store, old.id, "hello")
        new = store.reset(old.id)
        assert new.predecessor == old.id
        assert store.get_or_create("telegram", "5054").id == new.id
        assert said(store, old.id) == ["hello"]
        ended = store.load(old.id).entries[-1]
        assert isinstance(ended, Entry)
        assert ended.body == ResetEntry("command", new.id)
        assert store.reset(old.id).id == new.id  # said twice, done once
        assert len(store.recent()) == 2


def test_sessions_are_found_by_the_beginning_of_an_id_or_by_key(tmp_path):
    with open_sessions(tmp_path) as store:
        start = SessionStart("agent:main:telegram:default:direct:1")
        for session_id in ("abc1", "abc2", "abd"):
            store.adopt(start, [], session_id=session_id, created=NOW)
        assert store.get("abc1").id == "abc1"
        assert store.get("abd").id == "abd"
        with pytest.raises(UsageError, match="abc1, abc2"):
            store.get("abc")
        assert store.get("telegram:1").key == start.key
        assert store.get(start.key).key == start.key
        for missing in ("", "x", "telegram:2"):
            with pytest.raises(SessionNotFound):
                store.get(missing)


def test_a_whole_conversation_is_adopted_with_its_ids_and_times_and_only_once(tmp_path):
    when = NOW.replace(year=2025)
    entries = [Entry(f"e{number}", None, when, Message.of("user", str(number))) for number in range(3)]
    start = SessionStart("agent:main:codex:default:direct:local")
    with open_sessions(tmp_path) as store:
        record = store.adopt(start, entries, session_id="from-elsewhere", created=when)
        assert (record.messages, record.created, record.updated) == (3, when, when)
        assert list(store.load("from-elsewhere"))[1:] == entries
        with pytest.raises(SessionExists):
            store.adopt(start, entries, session_id="from-elsewhere", created=when)
        with pytest.raises(UsageError):
            store.adopt(start, entries, session_id="../up", created=when)
        assert len(os.listdir(store.config.paths.sessions)) == 1


def test_threads_share_a_store(tmp_path):
    with open_sessions(tmp_path) as store:

        def talk(name: str) -> None:
            for number in range(20):
                session = store.get_or_create("terminal", "ada")
                store.append(session.id, Message.of("user", f"{name} {number}"))

        threads = [threading.Thread(target=talk, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (session,) = store.recent()
        texts = said(store, session.id)
        assert (session.messages, len(texts)) == (80, 80)
        for name in "abcd":
            own = [text for text in texts if text.startswith(name)]
            assert own == [f"{name} {number}" for number in range(20)]


# the catalogue


@pytest.fixture
def talked(tmp_path):
    """Three sessions, one of them ended, with something in each."""
    clock = FrozenClock(NOW)
    with open_sessions(tmp_path, clock=clock) as store:
        for user in ("1", "2"):
            session = store.get_or_create("telegram", user)
            say(store, session.id, f"hello from {user}")
            clock.move(minutes=1)
        store.reset(session.id)
        return tmp_path, store.recent()


@pytest.mark.parametrize("damage", ["garbage", "empty", "zeros", "half"])
def test_a_damaged_catalogue_is_rebuilt_from_the_transcripts(talked, damage):
    tmp_path, before = talked
    path = catalogue_path(tmp_path)
    whole = path.read_bytes()
    middle = bytearray(whole)
    middle[len(whole) // 2 :] = os.urandom(len(whole) - len(whole) // 2)
    path.write_bytes({"garbage": b"x" * 9000, "empty": b"", "zeros": bytes(len(whole)), "half": bytes(middle)}[damage])
    with open_sessions(tmp_path) as store:
        assert store.recent() == before
        assert store.get(before[1].id) == before[1]
    with open_sessions(tmp_path) as store:
        assert store.get_or_create("telegram", "1").id in {record.id for record in before}


def test_a_row_that_lies_in_its_json_is_noticed(talked):
    tmp_path, before = talked
    with open_sessions(tmp_path) as store:
        store.recent()
        db = apsw.Connection(str(catalogue_path(tmp_path)), vfs=checksum_vfs())
        db.execute("UPDATE sessions SET state = '{', metadata = 'x'")
        db.close()
        assert store.recent() == before
        assert "rebuilt" in store.take_problems()[0].reason


def test_a_catalogue_that_is_behind_reads_only_what_is_new(talked, monkeypatch):
    tmp_path, before = talked
    with open_sessions(tmp_path) as store:
        say(store, before[0].id, *(f"message {number}" for number in range(100)))
        record = store.get(before[0].id)
    entry = Entry("x1", None, NOW, Message.of("user", "from elsewhere"))
    with open(path_of(tmp_path / "home", record), "ab") as file:
        file.write(format_entry(entry))
    counter = ReadCounter(monkeypatch)
    with open_sessions(tmp_path) as store:
        (now,) = [one for one in store.recent() if one.id == record.id]
        assert now.messages == record.messages + 1
        # The line itself, and the one before it, to compare it.
        assert counter.take() <= 3 * len(format_entry(entry)) < record.end.offset / 5
        store.recent()
        assert counter.take() == 0


def test_a_transcript_put_there_by_hand_is_listed_and_one_removed_is_not(talked):
    tmp_path, before = talked
    path = path_of(tmp_path / "home", before[0])
    text = path.read_text().replace(before[0].id, "byhand")
    with open_sessions(tmp_path) as store:
        store.recent()
        (path.parent / "20250101T000000Z_byhand.jsonl").write_text(text)
        assert store.get("byhand").key == before[0].key
        path.unlink()
        assert before[0].id not in {record.id for record in store.recent()}


def test_a_session_that_another_process_begins_during_a_refresh_stays_in_the_catalogue(tmp_path):
    class SlowCatalogue(Catalogue):
        """Let another process begin a session as soon as the folder is listed."""

        def _scan(self):
            states = super()._scan()
            with open_sessions(tmp_path) as other:
                begun.append(other.get_or_create("http", "ada").id)
            return states

    begun: list[str] = []
    with open_sessions(tmp_path) as store:
        store.get_or_create("http", "bo")
    slow = SlowCatalogue(str(catalogue_path(tmp_path)), store.transcripts)
    slow.refresh()
    assert slow.find(begun[0]) is not None
    slow.close()


def test_a_transcript_without_its_first_line_is_known_by_its_name(talked):
    tmp_path, before = talked
    record = next(one for one in before if one.messages)
    path = path_of(tmp_path / "home", record)
    path.write_bytes(b"rubbish\n" + path.read_bytes().partition(b"\n")[2])
    delete_catalogue(tmp_path)
    with open_sessions(tmp_path) as store:
        found = store.get(record.id)
        assert (found.key, found.messages, found.damaged_lines) == ("", record.messages, 1)
        assert len(store.recent()) == 3
        with pytest.raises(SessionKeyInvalid):
            store.reset(record.id)


def test_what_is_no_transcript_is_left_alone(talked):
    tmp_path, before = talked
    folder = path_of(tmp_path / "home", before[0]).parent
    (folder / "notes.txt").write_text("x")
    (folder / "folder.jsonl").mkdir()
    (folder / "link.jsonl").symlink_to("/etc/hostname")
    (folder / ".hidden.jsonl").write_text("{}")
    with open_sessions(tmp_path) as store:
        assert store.recent() == before


def test_an_append_does_not_fail_because_the_catalogue_does(talked, caplog, monkeypatch):
    tmp_path, before = talked
    config = load_config(home=str(tmp_path / "home")).config
    monkeypatch.setattr("kept.sessions.catalogue.BUSY_TIMEOUT_MS", 0)
    with SessionStore(config, clock=FrozenClock(NOW)) as store:
        store.recent()
        writer = apsw.Connection(str(catalogue_path(tmp_path)), vfs=checksum_vfs())
        with immediate(writer):
            store.append(before[0].id, Message.of("user", "on"))
        writer.close()
        assert "could not be brought up to date" in caplog.text
        assert store.get(before[0].id).messages == before[0].messages + 1


def test_a_clock_that_was_set_back_does_not_begin_a_session_with_every_message(tmp_path):
    clock = FrozenClock(NOW)
    with open_sessions(tmp_path, clock=clock) as store:
        old = store.get_or_create("telegram", "1")
        clock.move(days=-1)
        new = store.reset(old.id)
        assert new.created < old.created
        assert store.get_or_create("telegram", "1").id == new.id
        assert store.get_or_create("telegram", "1").id == new.id


def test_a_session_deleted_twice_keeps_both_copies(tmp_path):
    with open_sessions(tmp_path) as store:
        session = store.get_or_create("telegram", "1")
        first = store.delete(session.id)
        shutil.copy(tmp_path / "home/agents/main" / first, path_of(store, session))
        second = store.delete(session.id)
        assert second not in (None, first)
        assert len(os.listdir(store.config.paths.sessions)) == 2


KINDS = "say say say elsewhere answer compact reset flush delete tear damage lose".split()
OPERATIONS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 3), st.integers(1, 400)), max_size=25)


@given(OPERATIONS)
@settings(max_examples=40)
def test_after_anything_the_catalogue_is_what_a_fresh_one_would_be(operations):
    with tempfile.TemporaryDirectory() as folder:
        tmp_path = Path(folder)
        clock = FrozenClock(NOW)
        with open_sessions(tmp_path, clock=clock) as store, open_sessions(tmp_path, clock=clock) as other:
            for operation, user, amount in operations:
                clock.move(minutes=amount)
                record = store.get_or_create("telegram", str(user))
                operate(operation, store, other, record.id, path_of(tmp_path / "home", record), amount)
            listed, elsewhere = store.recent(), other.recent()
        delete_catalogue(tmp_path)
        with open_sessions(tmp_path) as fresh:
            assert fresh.recent() == listed == elsewhere


def operate(operation: str, store: SessionStore, other: SessionStore, session_id: str, path: Path, amount: int) -> None:
    """By one process, by another, or by nobody's leave."""
    home = path.parent.parent.parent.parent.parent
    answer = Message.of("assistant", "z", usage=TokenUsage(amount, 1, amount))
    {
        "say": lambda: store.append(session_id, Message.of("user", "x" * amount)),
        "elsewhere": lambda: other.append(session_id, Message.of("user", "y" * amount)),
        "answer": lambda: store.append(session_id, answer),
        "compact": lambda: other.append(session_id, CompactionEntry("So far.")),
        "reset": lambda: other.reset(session_id),
        "flush": lambda: store.append(session_id, StateEntry(FLUSH, amount)),
        "delete": lambda: other.delete(session_id, purge=bool(amount % 2)),
        "tear": lambda: os.truncate(path, max(0, path.stat().st_size - amount)),
        "damage": lambda: path.write_bytes(path.read_bytes() + b"\xff" * amount + b"\n"),
        "lose": lambda: delete_catalogue(home),
    }[operation]()


def test_a_transcript_cut_back_and_grown_again_is_not_taken_for_one_that_only_grew(talked):
    tmp_path, before = talked
    record = next(one for one in before if one.messages)
    path = path_of(tmp_path / "home", record)
    whole = path.read_bytes()
    entry = Entry("x1", None, NOW, Message.of("user", ""))
    short = len(format_entry(entry))
    first = whole.partition(b"\n")[0] + b"\n"
    filler = Message.of("user", "y" * (len(whole) - len(first) - short))
    with path.open("r+b") as file:
        file.truncate(len(first))
        file.seek(len(first))
        file.write(format_entry(Entry("x1", None, NOW, filler)) + format_entry(entry))
    with open_sessions(tmp_path) as store:
        assert store.get(record.id).messages == 2


def test_a_transcript_of_the_first_version_is_read_by_every_later_one(tmp_path):
    """The file is never written anew: what people have on their disks is in the form it had then."""
    frozen = Path(__file__).parent / "frozen" / "version1.jsonl"
    folder = tmp_path / "home" / "agents" / "main" / "sessions"
    folder.mkdir(parents=True)
    shutil.copy(frozen, folder / "20260314T140926Z_4f1c9e8d7c6b5a49.jsonl")
    with open_sessions(tmp_path) as store:
        record = store.get("4f1c")
        assert (record.channel, record.chat_type, record.user_id) == ("telegram", "group", "-100:7")
        assert (record.messages, record.compactions, record.flushes, record.flush_compactions) == (5, 3, 1, 2)
        assert (record.tokens_in, record.tokens_out, record.tokens_context) == (2500, 92, 200)
        assert record.model_override == "opus"
        assert (record.predecessor, record.successor) == ("5a0e1c2b3d4f5061", "77aa0011223344ff")
        assert (record.end_reason, record.damaged_lines, record.end.lines) == ("command", 0, 11)
        loaded = store.load(record.id)
        assert b"".join(map(format_entry, loaded)) == frozen.read_bytes()


def test_where_no_catalogue_can_be_written_sessions_are_still_read_and_it_is_said(talked):
    tmp_path, before = talked
    delete_catalogue(tmp_path)
    catalogue_path(tmp_path).mkdir()
    with open_sessions(tmp_path) as store:
        assert store.recent() == before
        (problem,) = store.take_problems()
        assert "every transcript is read" in problem.reason
        store.append(before[0].id, Message.of("user", "on"))
        assert store.get(before[0].id).messages == before[0].messages + 1
        assert store.take_problems() == ()


def test_half_a_surrogate_pair_in_a_user_id_does_no_harm(tmp_path):
    with SessionStore.open(home=tmp_path) as store:
        made = store.get_or_create("telegram", "x\ud800y")
        say(store, made.id, "Hello, \udfff.")
        assert store.get_or_create("telegram", "x\ud800y").id == made.id
        assert [record.id for record in store.recent()] == [made.id]
        assert store.load(made.id).messages


def test_a_message_of_plain_text_says_how_it_is_written(tmp_path):
    with SessionStore.open(home=tmp_path) as store:
        made = store.get_or_create("telegram", "5054")
        with pytest.raises(EntryRefused) as caught:
            store.append(made.id, Message("user", "Hello"))
        assert "Message.of" in caught.value.hint
        assert store.load(made.id).messages == ()


# what agents need


def test_a_flush_that_failed_does_not_count_as_one(tmp_path):
    store = open_sessions(tmp_path)
    session = store.get_or_create("telegram", "5054").id
    store.append(session, StateEntry("flush", {"outcome": "failed", "reason": "Overloaded."}))
    assert (store.get(session).flushes, store.get(session).flushed) == (0, None)
    store.append(session, StateEntry("flush", {"outcome": "nothing"}))
    assert store.get(session).flushes == 1
