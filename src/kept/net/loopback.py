"""Host names and addresses of this machine."""

from __future__ import annotations

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]", "::1")


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine. DNS decides on other names, even "127.example.com", so they are not."""
    if host in LOOPBACK_HOSTS:
        return True
    import ipaddress

    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
