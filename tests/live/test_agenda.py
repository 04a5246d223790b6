"""When a sync is due."""

from __future__ import annotations

import pytest

from kept.config.schema import SyncSettings
from kept.live.agenda import LONGEST_WAIT, TALK_QUIET_S, PendingChanges, SyncSchedule

NOTE = PendingChanges(notes=1)
TALK = PendingChanges(transcripts=1)


@pytest.fixture
def agenda():
    """Quick to settle, and up to date at 100."""
    made = SyncSchedule(SyncSettings(watch_debounce_ms=1000))
    assert made.is_due(0)
    made.synced(100, took_s=0, ok=True)
    return made


def test_nothing_is_due_while_nothing_happens(agenda):
    assert not agenda.is_due(1_000_000)
    assert agenda.wake_at() == float("inf")


def test_a_single_change_is_taken_in_after_a_quarter_of_the_time(agenda):
    agenda.saw(NOTE, 200)
    assert not agenda.is_due(200.2)
    assert agenda.is_due(200.25)


def test_changes_are_left_to_settle(agenda):
    agenda.saw(NOTE, 200)
    agenda.saw(NOTE, 200.4)
    assert not agenda.is_due(201.3)
    assert agenda.is_due(201.4)
    agenda.synced(202, took_s=0.1, ok=True)
    assert not agenda.is_due(1_000_000)


def test_changes_that_never_end_are_taken_in_all_the_same(agenda):
    for tenth in range(100):
        agenda.saw(NOTE, 200 + tenth / 10)
        if agenda.is_due(200 + tenth / 10):
            break
    assert tenth / 10 == LONGEST_WAIT


def test_a_flood_of_changes_does_not_take_all_of_the_time(agenda):
    agenda.synced(200, took_s=5, ok=True)
    agenda.saw(NOTE, 200.1)
    assert not agenda.is_due(209.9)
    assert agenda.is_due(210)


def test_what_is_said_is_measured_once_it_has_settled_and_again_when_more_is_said(agenda):
    agenda.saw(TALK, 200)
    assert not agenda.wants_measuring(200.2)
    assert agenda.wake_at() == 200.25
    assert agenda.wants_measuring(200.25)
    agenda.too_little_said()
    assert not agenda.wants_measuring(202)
    assert not agenda.is_due(202)
    agenda.saw(TALK, 203)
    assert agenda.wants_measuring(204)


def test_a_conversation_that_has_paused_is_taken_in_however_little_was_said(agenda):
    agenda.saw(TALK, 200)
    agenda.too_little_said()
    assert agenda.wake_at() == 200 + TALK_QUIET_S
    assert agenda.is_due(200 + TALK_QUIET_S)


def test_a_conversation_that_was_deleted_is_no_matter_of_how_much_was_said(agenda):
    agenda.saw(PendingChanges(transcripts=1, removed=1), 200)
    assert agenda.is_due(201)


def test_a_sync_comes_round_by_the_interval():
    agenda = SyncSchedule(SyncSettings(interval_minutes=10))
    agenda.synced(100, took_s=0, ok=True)
    assert not agenda.is_due(699)
    assert agenda.is_due(700)


def test_what_failed_is_tried_again_less_and_less_often(agenda):
    now, waits = 100.0, []
    for _ in range(6):
        agenda.synced(now, took_s=0, ok=False)
        waits.append(agenda.wake_at() - now)
        now = agenda.wake_at()
    assert waits == [5, 15, 60, 300, 300, 300]
    agenda.synced(now, took_s=0, ok=True)
    assert agenda.wake_at() == float("inf")
