"""Clients that connect and send nothing, or too slowly: nobody else has to wait for them."""

from __future__ import annotations

import asyncio
import resource
from urllib.parse import urlsplit

from kept.base.net.serving import ServerLimits
from kept.testing import ScriptedChat, Stall
from tests.support.http_gateway import serving
from tests.support.serve_process import bearer, create_token
from tests.support.waiting import PATIENCE_S, wait_until_async

HALF = b"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\n"
NO_BODY = HALF + b"Content-Type: application/json\r\nContent-Length: 1000\r\n"


class Client:
    """A connection that sends what it is told to, and nothing of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def of(cls, url: str, sent: bytes) -> Client:
        parts = urlsplit(url)
        client = cls(*await asyncio.open_connection(parts.hostname, parts.port))
        client.writer.write(sent)
        return client

    async def rest(self) -> bytes:
        """Everything that the server sends until it closes the connection."""
        try:
            return await asyncio.wait_for(self.reader.read(), PATIENCE_S)
        except ConnectionResetError:
            return b""
        finally:
            self.close()

    def close(self) -> None:
        self.writer.transport.abort()


async def test_requests_that_never_end_make_room_for_one_that_does(tmp_path):
    limits = ServerLimits(connections=8)
    headers = bearer(create_token(tmp_path / "home", "program", "write"))
    async with serving(tmp_path, headers=headers, limits=limits) as at:
        idle = [await Client.of(at.url, HALF) for _ in range(160)]
        assert (await at.post(user="ada", text="Hello")).json()["reply"] == "You said: ada: Hello"
        assert [await client.rest() for client in idle[:150]] == [b""] * 150
        for client in idle:
            client.close()


async def test_half_a_form_for_signing_in_keeps_nobody_out(tmp_path, caplog):
    headers = bearer(create_token(tmp_path / "home", "program", "write"))
    pages = {"web.enabled": True}
    async with serving(tmp_path, headers=headers, limits=ServerLimits(connections=8), **pages) as at:
        form = f"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: {at.url.rpartition(':')[0]}\r\n"
        form += "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 4000\r\n\r\ntoken="
        strangers = [await Client.of(at.url, form.encode()) for _ in range(160)]
        assert (await at.post(user="ada", text="Hello")).json()["reply"] == "You said: ada: Hello"
        assert [await client.rest() for client in strangers[:150]] == [b""] * 150
        for client in strangers:
            client.close()
    assert caplog.records == []


async def test_half_a_body_with_a_token_is_waited_for(tmp_path):
    token = bearer(create_token(tmp_path / "home", "program", "write"))
    body = b'{"user": "ada", "text": "Hello"}'
    head = HALF + f"Authorization: {token['Authorization']}\r\nConnection: close\r\n".encode()
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    async with serving(tmp_path, headers=token, limits=ServerLimits(connections=8)) as at:
        slow = await Client.of(at.url, head + body[:5])
        assert (await at.client.get("/v1/models")).status_code == 200  # it has arrived
        strangers = [await Client.of(at.url, HALF) for _ in range(40)]
        assert await strangers[0].rest() == b""
        slow.writer.write(body[5:])
        assert (await slow.rest()).startswith(b"HTTP/1.1 200")
        for client in strangers:
            client.close()


async def test_a_request_has_to_arrive_in_time(tmp_path):
    limits = ServerLimits(head_s=0.1, body_s=0.1)
    async with serving(tmp_path, limits=limits) as at:
        for sent in (b"", HALF, NO_BODY + b"\r\n{", HALF + b"\r\nGET / HTTP/1.1\r\n"):
            client = await Client.of(at.url, sent)
            assert b"200 OK" not in await client.rest()
        assert (await at.post(user="ada", text="Hello")).status_code == 200


async def test_an_answer_may_take_longer_than_its_request(tmp_path):
    go_on = asyncio.Event()
    model = ScriptedChat([[Stall(go_on), "At last."]])
    async with serving(tmp_path, model, limits=ServerLimits(head_s=0.05, body_s=0.05)) as at:
        request = asyncio.create_task(at.post(user="ada", text="Hello"))
        slow = await Client.of(at.url, HALF)
        assert await slow.rest() == b""  # its time was up while the other still waits for its answer
        go_on.set()
        assert (await request).json()["reply"] == "At last."


async def test_where_every_connection_is_being_answered_another_is_turned_away(tmp_path):
    go_on = asyncio.Event()
    model = ScriptedChat([[Stall(go_on), "Done."]])
    async with serving(tmp_path, model, limits=ServerLimits(connections=1)) as at:
        request = asyncio.create_task(at.post(user="ada", text="Hello"))
        await wait_until_async(lambda: bool(model.requests))
        refused = await Client.of(at.url, HALF)
        assert (await refused.rest()).startswith(b"HTTP/1.1 503 ")
        go_on.set()
        assert (await request).json()["reply"] == "Done."


async def test_headers_without_end_are_refused(tmp_path):
    async with serving(tmp_path, limits=ServerLimits(head_bytes=1_000)) as at:
        client = await Client.of(at.url, HALF + b"X-Long: " + b"x" * 5_000)
        assert (await client.rest()).startswith(b"HTTP/1.1 400 ")


async def test_a_client_that_hangs_up_in_the_middle_of_a_body_leaves_no_trace(tmp_path, caplog):
    async with serving(tmp_path) as at:
        client = await Client.of(at.url, NO_BODY + b"\r\n{")
        client.writer.write_eof()
        client.close()
        assert (await at.post(user="ada", text="Hello")).status_code == 200
    assert caplog.records == []


def test_there_are_fewer_connections_than_files_that_may_be_open(tmp_path):
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, most))
        assert ServerLimits().room() == 120
        assert ServerLimits(connections=50).room() == 50
        resource.setrlimit(resource.RLIMIT_NOFILE, (70, most))
        assert ServerLimits().room() == 8
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
