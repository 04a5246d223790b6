"""Delays between attempts."""

from __future__ import annotations

from kept.base.clock import Backoff


def test_delays_double_up_to_the_longest_and_start_again_after_a_reset():
    backoff = Backoff(0.5, 3.0, random=lambda: 1.0)
    assert [backoff.next_s() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    backoff.reset()
    assert backoff.next_s() == 0.5


def test_jitter_takes_away_at_most_its_share():
    assert Backoff(8.0, 60.0, random=lambda: 0.0).next_s() == 4.0
    assert Backoff(8.0, 60.0, jitter=0.25, random=lambda: 0.0).next_s() == 6.0
    assert Backoff(8.0, 60.0, jitter=0.0, random=lambda: 0.0).next_s() == 8.0


def test_a_first_delay_above_the_longest_is_the_longest():
    assert Backoff(100.0, 60.0, jitter=0.0).next_s() == 60.0
