"""A gateway with the HTTP channel, in this process, and a client for it."""

import json
from contextlib import asynccontextmanager

import httpx

from kept.gateway.channels.gateway import Gateway
from tests.support.running_gateway import running_gateway
from tests.support.waiting import PATIENCE_S
from tests.support.workspaces import open_memory


class Service:
    """A gateway that listens on a free port, in this process."""

    def __init__(self, gateway: Gateway, url: str, client: httpx.AsyncClient) -> None:
        self.gateway = gateway
        self.url = url
        self.client = client

    async def post(self, **body) -> httpx.Response:
        return await self.client.post("/v1/messages", json=body)

    async def events(self, **body) -> list[tuple[str, dict]]:
        async with self.client.stream("POST", "/v1/messages", json=body) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            return read_events(await response.aread())


def read_events(raw: bytes) -> list[tuple[str, dict]]:
    events = []
    for block in raw.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line and not line.startswith(":"))
        if lines:
            events.append((lines["event"], json.loads(lines["data"])))
    return events


@asynccontextmanager
async def serving(tmp_path, model=None, *, headers=None, limits=None, agent_settings=None, **settings):
    given = {
        **{"gateway.http.port": 0, "gateway.serve.address_rate_per_s": 0},  # tests ask as often as they like
        **{f"gateway.{name}": value for name, value in settings.items()},
        **(agent_settings or {}),
    }
    memory = open_memory(tmp_path, settings=given)
    async with running_gateway(memory, model, limits=limits) as (gateway, _, lines):
        url = lines[0].split()[1].removesuffix("/v1/messages").rstrip(",").removesuffix("/v1/messages")
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S, headers=headers) as client:
            yield Service(gateway, url, client)
    assert lines[-1].startswith("Stopped."), lines
