"""When a conversation goes on, and when it begins anew."""

import datetime as dt

import pytest

from kept.base.limits import ms_from_time
from kept.config.schema import ResetOverrideSettings, ResetSettings
from kept.sessions.entries import MODEL, CompactionEntry, StateEntry
from kept.sessions.record import SessionRecord, find_end, policy_for
from kept.testing import FrozenClock
from tests.support.session_strategies import NOW, open_sessions, say


def at(hour: int, minute: int = 0, *, day: int = 14) -> dt.datetime:
    return NOW.replace(day=day, hour=hour, minute=minute, second=0)


def stale(active: dt.datetime, reset: ResetSettings, now: dt.datetime) -> str | None:
    return find_end(SessionRecord("a.jsonl", active_ms=ms_from_time(active)), reset, FrozenClock(now))


@pytest.mark.parametrize(
    ("reset", "active", "now", "expected"),
    [
        (ResetSettings(), at(8), at(11, 59), None),
        (ResetSettings(), at(8), at(12), "idle"),
        (ResetSettings(idle_minutes=1), at(8), at(8, 1), "idle"),
        (ResetSettings(), at(8), at(7), None),  # the clock was set back
        (ResetSettings(mode="daily"), at(3, 59), at(4), "daily"),
        (ResetSettings(mode="daily"), at(4), at(23, 59), None),
        (ResetSettings(mode="daily"), at(23), at(3, 59, day=15), None),
        (ResetSettings(mode="daily"), at(23), at(4, 0, day=15), "daily"),
        (ResetSettings(mode="daily", daily_hour=0), at(23, 59), at(0, 0, day=15), "daily"),
        (ResetSettings(mode="daily", daily_hour=23), at(22), at(22, 30), None),
        (ResetSettings(mode="daily"), at(5, day=10), at(3, day=14), "daily"),
        (ResetSettings(mode="none"), at(8, day=1), at(8, day=31), None),
    ],
)
def test_a_session_is_stale_as_the_policy_says(reset, active, now, expected):
    assert stale(active, reset, now) == expected


def test_the_hour_is_that_of_the_place_where_the_clock_is():
    """Written at 20:30 in New York, looked at from 05:00 in Berlin the same night."""
    active = dt.datetime(2026, 3, 13, 20, 30, tzinfo=dt.timezone(dt.timedelta(hours=-4)))
    assert stale(active, ResetSettings(mode="daily"), at(5)) == "daily"
    assert stale(active, ResetSettings(mode="daily", daily_hour=1), at(5)) is None


@pytest.mark.parametrize(
    ("channel", "chat_type", "expected"),
    [
        ("terminal", "direct", ("idle", 240, 4)),
        ("terminal", "group", ("idle", 60, 4)),
        ("telegram", "direct", ("daily", 240, 6)),
        ("telegram", "group", ("daily", 60, 6)),
        ("slack", "group", ("none", 60, 4)),
    ],
)
def test_the_channel_goes_before_the_kind_of_chat_and_that_before_the_rest(channel, chat_type, expected):
    reset = ResetSettings(
        by_channel={
            "telegram": ResetOverrideSettings(mode="daily", daily_hour=6),
            "slack": ResetOverrideSettings(mode="none"),
        },
        by_chat_type={"group": ResetOverrideSettings(idle_minutes=60)},
    )
    chosen = policy_for(reset, channel=channel, chat_type=chat_type)
    assert (chosen.mode, chosen.idle_minutes, chosen.daily_hour) == expected


def test_a_stale_session_is_succeeded_by_one_that_knows_it(tmp_path):
    clock = FrozenClock(NOW)
    with open_sessions(tmp_path, clock=clock) as store:
        first = store.get_or_create("telegram", "1", metadata={"title": "Backups"})
        say(store, first.id, "hello")
        store.append(first.id, CompactionEntry("It was about backups."))
        store.append(first.id, StateEntry(MODEL, "opus"))
        clock.move(minutes=239)
        assert store.get_or_create("telegram", "1").id == first.id
        clock.move(minutes=1)
        second = store.get_or_create("telegram", "1")
        assert second.id != first.id
        assert second.predecessor == first.id
        assert (second.messages, second.compactions, second.model_override) == (0, 1, "opus")
        assert second.metadata == {"title": "Backups"}
        ended = store.get(first.id)
        assert (ended.successor, ended.end_reason) == (second.id, "idle")
        store.append(second.id, CompactionEntry("Again."))
        third = store.reset(second.id)
        assert (third.compactions, third.predecessor) == (2, second.id)


def test_only_messages_keep_a_session_fresh(tmp_path):
    clock = FrozenClock(NOW)
    with open_sessions(tmp_path, clock=clock) as store:
        first = store.get_or_create("telegram", "1")
        say(store, first.id, "hello")
        clock.move(minutes=200)
        store.append(first.id, StateEntry("flush", {}))
        clock.move(minutes=100)
        assert store.get_or_create("telegram", "1").id != first.id
