"""Sockets of our servers."""

from __future__ import annotations

import asyncio
import socket

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
