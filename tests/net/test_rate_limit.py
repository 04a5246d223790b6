"""Rate limits, and the address that a request came from."""

from __future__ import annotations

import pytest

from kept.net.serving import ClientAddresses, RateLimiter


def test_a_bucket_empties_and_fills_up_again():
    now = [0.0]
    limiter = RateLimiter(2.0, 3, now_s=lambda: now[0])
    assert [limiter.take("a") for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert limiter.take("b") == 0.0
    now[0] = 0.4
    assert limiter.take("a") == pytest.approx(0.1)  # asking too early costs nothing
    now[0] = 0.5
    assert limiter.take("a") == 0.0
    now[0] = 1_000.0
    assert [limiter.take("a") for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]  # never more than the burst
    assert [RateLimiter(0.0, 1).take("a") for _ in range(3)] == [0.0, 0.0, 0.0]


def test_many_addresses_do_not_fill_the_memory():
    limiter = RateLimiter(1.0, 1, now_s=lambda: 0.0)
    for number in range(20_000):
        limiter.take(str(number))
    assert len(limiter._buckets) == 10_000
    assert limiter.take("19999") == 1.0


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("10.0.0.5", "1.2.3.4", "1.2.3.4"),
        ("10.0.0.5", "6.6.6.6, 1.2.3.4", "1.2.3.4"),  # the client made up the first
        ("10.0.0.5", "1.2.3.4, 10.0.0.9", "1.2.3.4"),  # two balancers
        ("10.0.0.5", "", "10.0.0.5"),
        ("10.0.0.5", "1.2.3.4, nonsense", "10.0.0.5"),
        ("8.8.8.8", "1.2.3.4", "8.8.8.8"),  # not trusted
        ("2001:db8:0:1:2::3", "", "2001:db8:0:1::/64"),
        ("::ffff:1.2.3.4", "", "1.2.3.4"),
        ("", "1.2.3.4", ""),
    ],
)
def test_only_trusted_proxies_are_believed(peer, forwarded, client):
    addresses = ClientAddresses(["10.0.0.0/24"])
    assert addresses.key_of(peer, {b"x-forwarded-for": forwarded}) == client
