"""A balancer on loopback: it sends each connection to the next server that accepts one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from contextlib import suppress

_CHUNK = 65_536


class Balancer:
    """TCP proxy in a thread of its own, as a balancer without affinity is."""

    def __init__(self, ports: Iterable[int]) -> None:
        self._ports = [*ports]
        self.counts = dict.fromkeys(self._ports, 0)
        """Connections that each server got."""
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._stopped = asyncio.Event()
        server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._stopped.wait()
        server.close()
        passing = asyncio.all_tasks() - {asyncio.current_task()}
        for task in passing:
            task.cancel()
        await asyncio.gather(*passing, return_exceptions=True)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened = [writer]
        try:
            for _ in [*self._ports]:
                port = self._ports.pop(0)
                self._ports.append(port)
                with suppress(OSError):
                    inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
                    opened.append(inner_writer)
                    self.counts[port] += 1
                    async with asyncio.TaskGroup() as copying:
                        copying.create_task(_copy(reader, inner_writer))
                        copying.create_task(_copy(inner_reader, writer))
                    return
        finally:
            for each in opened:
                each.close()
                with suppress(OSError):
                    await each.wait_closed()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end, and hand on that it is the end."""
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    with suppress(OSError):
        writer.close()
