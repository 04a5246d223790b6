"""The server over HTTP: who may speak to it, and what it does with bad requests."""

import json
import socket

import pytest

from tests.support.commands import KEPT
from tests.support.mcp_client import ACCEPT

pytestmark = pytest.mark.slow


def test_it_survives_bad_requests_and_a_client_that_hangs_up(serve):
    server = serve()
    with server.client() as client:
        for body in (b"", b"garbage", b"[]", b"{}", b"[" * 5_000, b'{"jsonrpc":"2.0","id":1}', b"\xff\xfe"):
            headers = {**ACCEPT, "Content-Type": "application/json"}
            assert 400 <= client.post("/mcp", content=body, headers=headers).status_code < 500
        assert client.get("/etc/passwd").status_code == 401
    large = server.ask(None, "tools/call", {"name": "memory_get", "arguments": {"path": "x" * 5_000_000}})
    assert large.status_code == 413
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
    assert "5433" in str(server.call(None, "memory_search", query="staging port"))


def test_clients_that_send_nothing_do_not_keep_others_out(serve):
    server = serve("sh", "-c", f"ulimit -n 128; exec {KEPT} serve --port 0")
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(160)]
    try:
        for client in idle:
            client.sendall(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        assert "5433" in str(server.call(None, "memory_search", query="staging port"))
    finally:
        for client in idle:
            client.close()
