"""Rate limits: a bucket of requests for each key, which fills up again at a steady rate."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping

_MAX_KEYS = 10_000
_IPV6_PREFIX = 64
"""A host has this many bits of an IPv6 address to itself, and could use all of them."""


class RateLimiter:
    """Buckets by key. Only for the thread of the event loop."""

    def __init__(self, rate_per_s: float, burst: int, *, now_s: Callable[[], float] = time.monotonic) -> None:
        """``rate_per_s`` of 0 switches the limit off. ``burst`` is the size of a bucket."""
        self.rate_per_s = rate_per_s
        self.burst = max(1, burst)
        self._now_s = now_s
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """What is left in each bucket, and when that was. The key that was used last is at the end."""

    def take(self, key: str) -> float:
        """Take one request from a bucket. Return how long to wait, or 0 if the bucket was not empty."""
        if not self.rate_per_s:
            return 0.0
        now_s = self._now_s()
        left, since_s = self._buckets.pop(key, (float(self.burst), now_s))
        left = min(float(self.burst), left + (now_s - since_s) * self.rate_per_s)
        is_allowed = left >= 1.0
        self._buckets[key] = (left - 1.0 if is_allowed else left, now_s)
        while len(self._buckets) > _MAX_KEYS:
            self._buckets.popitem(last=False)
        return 0.0 if is_allowed else (1.0 - left) / self.rate_per_s


class ClientAddresses:
    """Finds the address that a request came from, also behind proxies that are trusted to say so."""

    def __init__(self, trusted_proxies: Iterable[str]) -> None:
        """Raise ValueError if one of them is neither an address nor a network."""
        self._trusted = tuple(ipaddress.ip_network(text, strict=False) for text in trusted_proxies)

    def key_of(self, peer: str, headers: Mapping[bytes, str]) -> str:
        """Return the address, or its network for IPv6. Each proxy adds its client at the end of X-Forwarded-For, so
        the last entry that no trusted proxy made up is the client."""
        hops = [peer, *reversed([hop.strip() for hop in headers.get(b"x-forwarded-for", "").split(",")])]
        client = peer
        for hop in hops:
            if not _is_address(hop):
                break
            client = hop
            if not self.trusts(hop):
                break
        return _network_of(client)

    def trusts(self, address: str) -> bool:
        return _is_address(address) and any(ipaddress.ip_address(address) in network for network in self._trusted)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _network_of(address: str) -> str:
    if not _is_address(address):
        return address
    parsed = ipaddress.ip_address(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, _IPV6_PREFIX), strict=False))
    return address
