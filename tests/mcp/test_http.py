"""The server over HTTP: who may speak to it, and what it does with bad requests."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from kept.errors import UsageError
from kept.mcp.transports import Address, parse_address
from tests.support.commands import KEPT
from tests.support.mcp_client import ACCEPT, HELLO
from tests.support.serve_process import bearer, create_token

pytestmark = pytest.mark.slow


def test_it_serves_on_loopback_and_stops_when_told(serve):
    server = serve("--http", "127.0.0.1:0")
    session = server.greet()
    assert "5433" in server.call(session, "memory_search", query="staging port")["content"][0]["text"]
    _, out, err = server.stop()
    assert (out, err) == ("", "")


def test_a_page_in_a_browser_cannot_speak_to_it(serve):
    server = serve("--http", "127.0.0.1:0")
    assert server.post("initialize", HELLO, headers={"Host": "evil.example"}).status_code == 421
    assert server.post("initialize", HELLO, headers={"Host": f"evil.example:{server.port}"}).status_code == 421
    assert server.post("initialize", HELLO, headers={"Origin": "https://evil.example"}).status_code == 403
    assert server.post("initialize", HELLO, headers={"Origin": "null"}).status_code == 403
    assert server.post("initialize", HELLO, headers={"Origin": "http://[::1"}).status_code == 403
    assert server.post("initialize", HELLO, headers={"Origin": f"http://localhost:{server.port}"}).status_code == 200


def test_once_there_is_a_token_only_those_who_know_one_are_served(serve, home):
    token = create_token(home, "editor", "write")
    server = serve("--http", "127.0.0.1:0")
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": token}):
        refused = server.post("initialize", HELLO, headers=headers)
        assert refused.status_code == 401
        assert refused.json()["error"]["code"] == "token_missing"
    session = server.greet(bearer(token))
    assert "5433" in str(server.call(session, "memory_search", query="staging port"))


def test_it_survives_bad_requests_and_a_client_that_hangs_up(serve):
    server = serve("--http", "127.0.0.1:0")
    session = server.greet()
    for body in (b"", b"garbage", b"[]", b"{}", b"[" * 5_000, b'{"jsonrpc":"2.0","id":1}', b"\xff\xfe"):
        headers = {**ACCEPT, **session, "Content-Type": "application/json"}
        assert 400 <= httpx.post(server.url, content=body, headers=headers, timeout=60).status_code < 500
    large = server.post("tools/call", {"name": "memory_get", "arguments": {"path": "x" * 5_000_000}}, headers=session)
    assert large.status_code == 413
    assert httpx.get(server.url.replace("/mcp", "/etc/passwd"), timeout=60).status_code == 404
    body = json.dumps(
        {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "memory_status", "arguments": {}}}
    )
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {ACCEPT['Accept']}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    for sent in (head, head + body[:20], head + body):
        with socket.create_connection(("127.0.0.1", server.port)) as line:
            line.sendall(sent.encode())
    assert "5433" in str(server.call(session, "memory_search", query="staging port"))


def test_fifty_calls_at_once_are_all_answered_over_http(serve, notes):
    server = serve("--http", "127.0.0.1:0")
    sessions = [server.greet() for _ in range(5)]

    def call(number: int) -> dict:
        session = sessions[number % 5]
        if number % 2:
            return server.call(session, "memory_search", number=number + 10, query=f"staging port {number}")
        return server.call(session, "memory_write", number=number + 10, text=f"Counted {number}.", to="memory/c.md")

    with ThreadPoolExecutor(50) as pool:
        results = list(pool.map(call, range(50)))
    assert not [result for result in results if result.get("isError")]
    assert (notes / "memory/c.md").read_text().count("Counted") == 25


# limits

FEW_FILES = ("sh", "-c", 'ulimit -n 128; exec "$0" mcp "$@"', str(KEPT))


def test_clients_that_send_nothing_do_not_keep_others_out(serve):
    server = serve("--http", "127.0.0.1:0", command=FEW_FILES)
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(160)]
    try:
        for client in idle:
            client.sendall(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        session = server.greet()
        assert "5433" in server.call(session, "memory_search", query="staging port")["content"][0]["text"]
    finally:
        for client in idle:
            client.close()
    assert server.stop()[1:] == ("", "")


# addresses


def test_an_address_that_others_can_reach_needs_a_token(kept):
    for address in ("0.0.0.0:0", "[::]:0", "192.0.2.1:0"):
        ended = kept("mcp", "--http", address)
        assert ended.code == 2
        assert "kept token create" in ended.err
        assert ended.out == ""


def test_an_address_that_is_taken_is_one_line(kept):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ended = kept("mcp", "--http", f"127.0.0.1:{listening.getsockname()[1]}")
    assert ended.code == 2
    assert "cannot be listened on" in ended.err
    assert len(ended.err.splitlines()) == 1


def test_addresses_as_people_write_them():
    assert parse_address("127.0.0.1:8738") == Address("127.0.0.1", 8738)
    assert parse_address("9000") == Address("127.0.0.1", 9000)
    assert parse_address(":9000") == Address("127.0.0.1", 9000)
    assert parse_address("localhost") == Address("localhost", 8738)
    assert parse_address("[::1]:9000") == Address("::1", 9000)
    assert parse_address("[::1]") == Address("::1", 8738)
    assert parse_address("[::1]:9000").url == "http://[::1]:9000/mcp"
    for wrong in ("host:port", "127.0.0.1:99999", "127.0.0.1:-1"):
        with pytest.raises(UsageError, match="not an address"):
            parse_address(wrong)
