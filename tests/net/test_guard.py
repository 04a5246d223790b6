"""Which addresses count as this machine: only there may a server go without a token."""

from __future__ import annotations

import pytest

from kept.net.endpoint import is_loopback, parse_endpoint


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "localhost", "::1", "[::1]"])
def test_this_machine(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["127.example.com", "127.0.0.1.example.com", "0.0.0.0", "::", "10.0.0.1", "", "local"])
def test_anywhere_else(host):
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("host", "is_here"),
    [
        ("127.0.0.1", True),
        ("LOCALHOST", True),
        ("[::1]", True),
        ("127.example.com", False),
        ("127.0.0.1.nip.io", False),
    ],
)
def test_an_endpoint_is_on_this_machine_by_the_same_rule(host, is_here):
    assert parse_endpoint(f"http://{host}:8080/v1").is_loopback is is_here
