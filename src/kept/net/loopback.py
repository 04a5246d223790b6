"""Which hosts are this machine."""

from __future__ import annotations

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]", "::1")


def is_loopback(host: str) -> bool:
    """A name is not: whoever answers for it decides where it leads, "127.example.com" included."""
    if host in LOOPBACK_HOSTS:
        return True
    import ipaddress

    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
