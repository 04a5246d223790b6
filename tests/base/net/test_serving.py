"""Sockets of our servers, rate limits, the address that a request came from, and which of them are this machine."""

import asyncio
import socket

import pytest

from kept.base.net import serving
from kept.base.net.endpoint import is_loopback, parse_endpoint
from kept.base.net.serving import ClientAddresses, RateLimiter
from kept.errors import UsageError


def test_an_answer_does_not_wait_for_an_acknowledgement():
    """asyncio sets TCP_NODELAY only on sockets whose protocol is named."""
    delays = []

    async def accept_one() -> None:
        bound = serving.listen("127.0.0.1", 0, error=UsageError, hint="")
        accepted = asyncio.Event()

        def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            line = writer.get_extra_info("socket")
            delays.append(line.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()
            accepted.set()

        async with await asyncio.start_server(note, sock=bound):
            _, writer = await asyncio.open_connection(*bound.getsockname())
            await accepted.wait()
            writer.close()
            await writer.wait_closed()

    asyncio.run(accept_one())
    assert delays == [1]


@pytest.mark.parametrize("host", ["\x1b[31m\u202e", "a\0b", "x" * 300, "caf\u00e9..example", "256.1.1.1"])
def test_a_name_that_no_host_can_have_is_refused(host):
    with pytest.raises(UsageError, match="cannot be listened on"):
        serving.listen(host, 0, error=UsageError, hint="")


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


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "localhost", "::1", "[::1]"])
def test_an_address_of_this_machine_is_known_as_such(host):
    assert is_loopback(host)
    shown = f"[{host}]" if host == "::1" else host
    assert parse_endpoint(f"http://{shown.upper()}:8080/v1").is_loopback


@pytest.mark.parametrize("host", ["127.example.com", "127.0.0.1.example.com", "0.0.0.0", "::", "10.0.0.1", "", "local"])
def test_any_other_address_is_not_this_machine(host):
    assert not is_loopback(host)
    assert not parse_endpoint("http://127.0.0.1.nip.io/v1").is_loopback
