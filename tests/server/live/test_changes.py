"""When a sync is due."""

import pytest

from kept.config.schema import SyncSettings
from kept.server.live.changes import MAX_SETTLE_FACTOR, LiveTiming, SyncSchedule

NOTE, TALK = (1, 0), (0, 1)


@pytest.fixture
def schedule():
    """Quick to settle, and up to date at 100."""
    schedule = SyncSchedule(SyncSettings(watch_debounce_ms=1000), LiveTiming())
    assert schedule.due_at()[0] <= 0
    schedule.note_sync(100, took_s=0, ok=True)
    return schedule


def test_nothing_is_due_while_nothing_happens(schedule):
    assert schedule.due_at()[0] > 1_000_000
    assert wake_at(schedule) == float("inf")


def test_changes_are_left_to_settle(schedule):
    schedule.note_changes(*NOTE, 200)
    schedule.note_changes(*NOTE, 200.4)
    assert schedule.due_at()[0] == 201.4
    schedule.note_sync(202, took_s=0.1, ok=True)
    assert schedule.due_at()[0] > 1_000_000


def test_changes_that_never_end_are_taken_in_all_the_same(schedule):
    for tenth in range(100):
        schedule.note_changes(*NOTE, 200 + tenth / 10)
        if schedule.due_at()[0] <= 200 + tenth / 10:
            break
    assert tenth / 10 == MAX_SETTLE_FACTOR


def test_a_flood_of_changes_does_not_take_all_of_the_time(schedule):
    schedule.note_sync(200, took_s=5, ok=True)
    schedule.note_changes(*NOTE, 200.1)
    assert schedule.due_at()[0] == 210


def test_what_is_said_is_measured_once_it_has_settled_and_again_when_more_is_said(schedule):
    schedule.note_changes(*TALK, 200)
    assert schedule.due_at()[1] == wake_at(schedule) == 201
    schedule.note_small_growth()
    assert schedule.due_at()[1] > 202
    assert schedule.due_at()[0] > 202
    schedule.note_changes(*TALK, 203)
    assert schedule.due_at()[1] <= 204


def test_a_conversation_that_has_paused_is_taken_in_however_little_was_said(schedule):
    schedule.note_changes(*TALK, 200)
    schedule.note_small_growth()
    assert schedule.due_at()[0] == wake_at(schedule) == 200 + LiveTiming().talk_quiet_s


def test_a_sync_comes_round_by_the_interval():
    schedule = SyncSchedule(SyncSettings(interval_minutes=10), LiveTiming())
    schedule.note_sync(100, took_s=0, ok=True)
    assert schedule.due_at()[0] == 700


def test_what_failed_is_tried_again_less_and_less_often(schedule):
    now, waits = 100.0, []
    for _ in range(6):
        schedule.note_sync(now, took_s=0, ok=False)
        waits.append(wake_at(schedule) - now)
        now = wake_at(schedule)
    assert waits == [5, 15, 60, 300, 300, 300]
    schedule.note_sync(now, took_s=0, ok=True)
    assert wake_at(schedule) == float("inf")


def wake_at(schedule):
    return min(schedule.due_at())
