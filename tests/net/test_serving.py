"""Sockets of our servers."""

from __future__ import annotations

import asyncio
import socket

import pytest

from kept.errors import UsageError
from kept.net import serving


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
