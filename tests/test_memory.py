"""Memory as a Python program uses it: wrong values are refused with a hint, and closed means closed."""

import datetime as dt
from pathlib import Path

import pytest

from kept import KeptError, Memory, Message, SessionStore
from kept.testing import FrozenClock
from tests.support.files import write_file
from tests.support.workspaces import open_memory

NOW = dt.datetime(2026, 3, 14, 15, 9, 26).astimezone()


@pytest.fixture
def otters(memory, workspace: Path) -> Memory:
    write_file(workspace / "memory/2026-03-14.md", "# 2026-03-14\n\n## 15:00\n\nThe otter is back.\n")
    return memory(clock=FrozenClock(NOW))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"source": "notes"}, "There is no source 'notes'. Use 'memory' (notes) or 'sessions' (conversations)."),
        ({"max_results": 0}, "max_results is 0. Use a whole number from 1 to 200."),
        ({"max_results": 201}, "max_results is 201. Use a whole number from 1 to 200."),
        ({"max_results": True}, "max_results is True. Use a whole number from 1 to 200."),
        ({"min_score": 5}, "min_score is 5. Use a number from 0 to 1."),
        ({"min_score": float("nan")}, "min_score is nan. Use a number from 0 to 1."),
        ({"since": 7}, "7 is not a date. Use a datetime, a date, a timedelta, or a text such as"),
        ({"until": "soonish"}, "'soonish' is not a date. Write 2026-03-01"),
        ({"channel": 7}, "The channel is 7. Use text."),
        ({"tags": ["#"]}, "'#' is not a tag. Write it as work or area/home"),
    ],
)
def test_a_wrong_filter_is_refused_and_the_error_says_what_to_use(otters, values, message):
    with pytest.raises(KeptError) as caught:
        otters.search("otter", **values)
    assert str(caught.value).startswith(message)
    assert caught.value.code == "usage"


def test_other_wrong_values_are_refused_as_clearly(otters):
    for action, message in {
        lambda: otters.search(7): "The query is 7. Use text.",
        lambda: otters.list(order="size"): "order is 'size'. Use 'time' or 'change'.",
        lambda: otters.list(max_results=0): "max_results is 0. Use a whole number at least 1.",
        lambda: otters.list(source="notes"): "There is no source 'notes'.",
        lambda: otters.add(b"bytes"): "A note is text, not b'bytes'.",
        lambda: Memory("dir"): "Memory() takes a Config, not 'dir'. Open a folder with Memory.open(folder).",
        lambda: SessionStore("dir"): "SessionStore() takes a Config, not 'dir'.",
    }.items():
        with pytest.raises(KeptError) as caught:
            action()
        assert str(caught.value).startswith(message)


def test_a_missing_workspace_names_the_argument_that_creates_it(tmp_path):
    with pytest.raises(KeptError, match=r"There is no workspace at .*create=True"):
        Memory.open(tmp_path / "nowhere", home=tmp_path / "home")


@pytest.mark.parametrize(
    ("since", "hits"),
    [
        (dt.timedelta(hours=1), 1),
        (dt.timedelta(0), 0),
        (dt.datetime(2026, 3, 14, 14), 1),
        (dt.datetime(2026, 3, 14, 15, 5), 0),
        (dt.datetime(2026, 3, 14, 14).astimezone(dt.timezone(dt.timedelta(hours=9))), 1),
        (dt.date(2026, 3, 14), 1),
        (dt.date(2026, 3, 15), 0),
        ("1h", 1),
        ("", 1),
    ],
)
def test_a_time_is_a_datetime_a_date_a_duration_or_a_text(otters, since, hits):
    assert len(otters.search("otter", since=since)) == hits


def test_times_that_are_returned_are_datetimes_in_local_time(otters, workspace):
    (hit,) = otters.search("otter")
    assert hit.timestamp == dt.datetime(2026, 3, 14, 15).astimezone()
    (file,) = otters.list()
    assert file.timestamp == hit.timestamp
    assert int(file.changed.timestamp()) == int((workspace / file.path).stat().st_mtime)
    period = otters.search("yesterday").period
    assert period.since == dt.datetime(2026, 3, 13).astimezone()
    assert period.until == dt.datetime(2026, 3, 14).astimezone()
    assert otters.status().last_sync == NOW.replace(microsecond=0)


def test_paths_are_accepted_wherever_a_path_is_meant(otters, workspace):
    path = Path("memory/2026-03-14.md")
    assert len(otters.search("otter", path=path)) == 1
    assert len(otters.list(path=Path("memory"))) == 1
    assert "otter" in otters.read(path).text
    assert otters.notes.links(workspace / path).path == str(path)
    assert otters.add("A heron.", to=Path("memory/birds.md")).path == "memory/birds.md"


def test_a_closed_memory_refuses_every_use(tmp_path):
    memory = open_memory(tmp_path)
    memory.add("The otter is back.")
    with memory:
        assert len(memory.search("otter")) == 1
    memory.close()  # closing twice is harmless
    uses = [
        lambda: memory.search("otter"),
        lambda: memory.add("More."),
        lambda: memory.read("MEMORY.md"),
        lambda: memory.notes.links("MEMORY"),
        lambda: memory.__enter__(),
        memory.list,
        lambda: memory.notes.tags(),
        lambda: memory.history.changes(),
        lambda: memory.review.list(),
        lambda: memory.forgetting.plan("otter"),
        memory.sync,
        memory.status,
    ]
    for use in uses:
        with pytest.raises(KeptError, match=r"The memory is closed\. Open it again with Memory\.open\(\)\."):
            use()


def test_closed_sessions_refuse_every_use(tmp_path):
    with SessionStore.open(home=tmp_path / "home") as sessions:
        session = sessions.get_or_create("telegram", "5054")
    sessions.close()
    for use in (
        lambda: sessions.append(session.id, Message.of("user", "Hello")),
        lambda: sessions.get_or_create("telegram", "7"),
        lambda: sessions.get(session.id),
        lambda: sessions.load(session.id),
        sessions.recent,
    ):
        with pytest.raises(KeptError, match=r"The sessions are closed\."):
            use()


def test_only_entries_that_can_be_read_back_are_appended(tmp_path):
    with SessionStore.open(home=tmp_path / "home") as sessions:
        session = sessions.get_or_create("telegram", "5054")
        for body, message in (
            ("hi", "'hi' cannot be appended. Append a Message: Message.of('user', 'the text')."),
            (Message("robot", ()), "There is no role 'robot'. Use user, assistant, tool or system."),
        ):
            with pytest.raises(KeptError) as caught:
                sessions.append(session.id, body)
            assert str(caught.value) == message
        assert len(sessions.load(session.id).messages) == 0
    for role, text in (("robot", "hi"), ("user", 7)):
        with pytest.raises(KeptError, match=r"Use user, assistant|A message is text"):
            Message.of(role, text)
