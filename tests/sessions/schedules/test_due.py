"""What is due, what is caught up, and what a damaged list leaves."""

import datetime as dt
import json
from zoneinfo import ZoneInfo

import pytest

from kept.config.schema import HeartbeatSettings
from kept.errors import ConfigError, NotFound, ScheduleInvalid
from kept.sessions.schedules.schedule_book import Schedule, ScheduleBook, find_heartbeat, plan_due, read_heartbeat
from kept.sessions.schedules.time_rule import find_local_zone, get_zone
from kept.storage.files.file_storage import FileStorage
from kept.storage.record_store import Book

BERLIN = ZoneInfo("Europe/Berlin")
CREATED = dt.datetime(2026, 3, 10, 12, 0, tzinfo=dt.UTC)
HALF_A_DAY = dt.timedelta(hours=12)


def schedule(**fields):
    return Schedule(
        **{
            "id": "3f2a91",
            "when": "every day 8:00",
            "timezone": "UTC",
            "text": "What is due?",
            "to": "telegram:5054",
            "created": CREATED,
            **fields,
        }
    )


def due_at(when, item, catch_up=HALF_A_DAY):
    now = dt.datetime.fromisoformat(f"{when}+00:00")
    return [f"{run.due:%d %H:%M}" for run in plan_due([item], now, catch_up=catch_up)]


def test_a_schedule_is_due_at_its_time_and_not_again():
    assert due_at("2026-03-11T07:59", schedule()) == []
    assert due_at("2026-03-11T08:00", schedule()) == ["11 08:00"]
    done = schedule(last_due=dt.datetime(2026, 3, 11, 8, 0, tzinfo=dt.UTC))
    assert due_at("2026-03-11T08:01", done) == []
    assert due_at("2026-03-12T08:00", done) == ["12 08:00"]


def test_of_what_was_missed_the_last_is_caught_up_unless_it_is_too_late():
    assert due_at("2026-03-14T11:00", schedule()) == ["14 08:00"]
    assert due_at("2026-03-14T20:00", schedule()) == ["14 08:00"]
    assert due_at("2026-03-14T20:01", schedule()) == []
    assert due_at("2026-03-14T08:01", schedule(), dt.timedelta()) == []


def test_times_before_a_schedule_was_made_are_not_caught_up():
    assert due_at("2026-03-10T12:01", schedule()) == []


def test_a_paused_schedule_is_not_due():
    assert due_at("2026-03-11T10:00", schedule(paused=True)) == []


def test_a_single_time_is_run_once_and_then_over():
    once = schedule(when="2026-03-12 9:00")
    assert due_at("2026-03-12T09:00", once) == ["12 09:00"]
    done = schedule(when="2026-03-12 9:00", last_due=dt.datetime(2026, 3, 12, 9, 0, tzinfo=dt.UTC))
    assert due_at("2026-03-13T09:00", done) == []
    assert done.find_next(dt.datetime(2026, 3, 13, tzinfo=dt.UTC)) is None


def beat(every, last, now):
    moment = dt.datetime.fromisoformat(f"{now}+00:00")
    return find_heartbeat(read_heartbeat(HeartbeatSettings(every=every), BERLIN, now=moment), last, moment)


def test_a_heartbeat_is_due_once_in_each_interval_and_missed_ones_are_not_repeated():
    first = beat("30m", None, "2026-03-11T10:10")
    assert f"{first:%H:%M}" == "10:00"
    assert beat("30m", first, "2026-03-11T10:29") is None
    assert f"{beat('30m', first, '2026-03-11T10:30'):%H:%M}" == "10:30"
    assert f"{beat('30m', first, '2026-03-11T16:45'):%H:%M}" == "16:30"


def test_a_heartbeat_may_keep_to_the_hours_of_a_rule():
    night = beat("0,30 8-21 * * *", None, "2026-03-11T03:00")
    assert f"{night:%d %H:%M}" == "10 20:30"  # 21:30 in Berlin
    assert beat("0,30 8-21 * * *", night, "2026-03-11T06:59") is None
    assert f"{beat('0,30 8-21 * * *', night, '2026-03-11T07:00'):%d %H:%M}" == "11 07:00"


@pytest.mark.parametrize("every", ["soon", "10s", "45m", "0h"])
def test_a_rule_of_heartbeats_that_makes_no_sense_is_refused(every):
    with pytest.raises(ConfigError):
        beat(every, None, "2026-03-11T03:00")


@pytest.mark.parametrize("every", [None, "0", "0m"])
def test_a_heartbeat_without_an_interval_is_off(every):
    now = dt.datetime(2026, 3, 11, tzinfo=dt.UTC)
    assert read_heartbeat(HeartbeatSettings(every=every), BERLIN, now=now) is None


@pytest.mark.parametrize("wrong", [7, {}, {"id": "x"}, "when", "timezone", "created", "text", "id"])
def test_a_damaged_schedule_is_left_out_and_kept_aside_and_the_others_stay(tmp_path, wrong):
    path = tmp_path / "schedules.json"
    file = Book(FileStorage(str(tmp_path)), path.name, ScheduleBook)
    file.change(lambda book: book.with_schedule(schedule()).with_schedule(schedule(id="b2")))
    tree = json.loads(path.read_text())
    tree["schedules"][1] = {**tree["schedules"][1], wrong: "\ud800"} if isinstance(wrong, str) else wrong
    path.write_text(json.dumps(tree))
    assert file.read().schedules == (schedule(),)
    assert "schedule 2 cannot be read" in str(file.faults[0])
    assert "schedule" in path.read_text(), "reading changes nothing"
    file.change(lambda book: book)
    assert file.read().schedules == (schedule(),)
    assert file.faults == []
    assert (tmp_path / "schedules.json.damaged").exists()


def test_schedules_are_found_by_the_beginning_of_their_id():
    book = ScheduleBook((schedule(id="ab12"), schedule(id="ab34"), schedule(id="ab")))
    assert book.find("ab1").id == "ab12"
    assert book.find("ab").id == "ab"
    for unknown in ("a", "x", ""):
        with pytest.raises(NotFound):
            book.find(unknown)


def test_zones_are_known_by_name():
    assert find_local_zone({"TZ": ":Asia/Bangkok"}) == "Asia/Bangkok"
    assert get_zone(find_local_zone({"TZ": "nowhere"})).key
    for name in ("Mars/Olympus", "../etc/passwd", "", "a\0b"):
        with pytest.raises(ScheduleInvalid):
            get_zone(name)
