"""Delays between attempts."""

from kept.base.clock import Backoff


def test_delays_double_up_to_the_longest_and_start_again_after_a_reset():
    backoff = Backoff(0.5, 3.0, random=lambda: 1.0)
    assert [backoff.next_s() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    backoff.reset()
    assert backoff.next_s() == 0.5


def test_half_of_a_delay_is_random_and_none_is_above_the_longest():
    assert Backoff(8.0, 60.0, random=lambda: 0.0).next_s() == 4.0
    assert Backoff(100.0, 60.0, random=lambda: 1.0).next_s() == 60.0
