"""Discord on loopback: its REST interface and its gateway, as documented, in the event loop of a test.

async with DiscordServer() as discord:
    discord.write("Hello", user=7)          # a user writes to the bot
    discord.sent                            # what the bot sent
    await discord.drop()                    # the gateway's connection breaks
"""

from __future__ import annotations

import asyncio
import base64
import json
import zlib
from collections import defaultdict, deque
from typing import Any

from aiohttp import WSMsgType, web

ME = 4242
TOKEN = f"{base64.b64encode(str(ME).encode()).decode().rstrip('=')}.AAAAAA.secret-of-the-bot"
_DISPATCH, _HEARTBEAT, _IDENTIFY, _RESUME, _HELLO, _HEARTBEAT_ACK = 0, 1, 2, 6, 10, 11


def user_json(number: int, name: str, *, bot: bool = False) -> dict[str, Any]:
    names = {"id": str(number), "username": name.lower(), "global_name": name, "discriminator": "0"}
    return {**names, "avatar": None, "public_flags": 0, "bot": bot}


BOT = user_json(ME, "Kept", bot=True)
OWN = {**BOT, "mfa_enabled": True, "locale": "en-GB", "verified": True, "email": None, "flags": 0, "premium_type": 0}
"""The bot as it sees itself."""


class DiscordServer:
    def __init__(self) -> None:
        self.messages: dict[str, dict[str, Any]] = {}
        """All messages by their ids."""
        self.sent: list[dict[str, Any]] = []
        self.typing: list[str] = []
        self.identified = 0
        self.resumed = 0
        self.intents = 0
        self.faults: dict[str, deque[web.Response]] = defaultdict(deque)
        self.files: dict[str, bytes] = {}
        self.servers: dict[str, str] = {}
        """Server of each channel that is on one."""
        self._next = 1_000_000_000_000_000_000
        self._sequence = 0
        self._log: list[dict[str, Any]] = []
        self._socket: web.WebSocketResponse | None = None
        self._packer = zlib.compressobj()
        self._site: web.TCPSite | None = None
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> DiscordServer:
        app = web.Application(middlewares=[self._check])
        app.add_routes(
            [
                web.get("/api/v10/gateway/bot", self._gateway),
                web.get("/api/v10/users/@me", self._get_me),
                web.post("/api/v10/users/@me/channels", self._open_direct),
                web.get("/api/v10/channels/{channel}", self._get_channel),
                web.get("/api/v10/channels/{channel}/messages", self._list),
                web.post("/api/v10/channels/{channel}/messages", self._create),
                web.post("/api/v10/channels/{channel}/typing", self._type),
                web.get("/files/{name}", self._get_file),
                web.get("/gateway", self._connect),
                web.get("/gateway/", self._connect),
            ]
        )
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        self._site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await self._site.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def _host(self) -> str:
        return f"127.0.0.1:{self._runner.addresses[0][1]}"

    @property
    def url(self) -> str:
        return f"http://{self._host}/api/v10"

    # Called by tests

    def write(
        self, text: str, *, user=7, name="Ada", channel=None, server=None, deliver=True, is_bot=False, **more: Any
    ) -> str:
        """Send a message, on a server if one is given. Without ``deliver`` the bot's connection does not see it."""
        message = self._make(str(channel or 100 + user), text, user_json(user, name, bot=is_bot), **more)
        if server is not None:
            self.servers[message["channel_id"]] = str(server)
        if deliver:
            self._dispatch("MESSAGE_CREATE", self._as_event(message))
        return str(message["id"])

    async def drop(self) -> None:
        """Break the gateway's connection in a way that lets the client resume."""
        await self._socket.close(code=4000)

    def fail(self, method: str, status: int, **body: Any) -> None:
        """Answer the next request of a kind with an error."""
        headers = {"Retry-After": str(body["retry_after"])} if "retry_after" in body else {}
        self.faults[method].append(
            web.json_response({"code": 0, "message": "x", **body}, status=status, headers=headers)
        )

    # gateway

    def _as_event(self, message: dict[str, Any]) -> dict[str, Any]:
        server = self.servers.get(message["channel_id"])
        return {**message, "guild_id": server} if server else message

    def _dispatch(self, kind: str, data: dict[str, Any]) -> None:
        self._sequence += 1
        event = {"op": _DISPATCH, "s": self._sequence, "t": kind, "d": data}
        self._log.append(event)
        if self._socket is not None and not self._socket.closed:
            self._tasks = asyncio.ensure_future(self._send(self._socket, event))

    async def _send(self, socket: web.WebSocketResponse, payload: dict[str, Any]) -> None:
        packed = self._packer.compress(json.dumps(payload).encode()) + self._packer.flush(zlib.Z_SYNC_FLUSH)
        await socket.send_bytes(packed)

    async def _connect(self, request: web.Request) -> web.WebSocketResponse:
        assert request.query["compress"] == "zlib-stream"
        assert request.query["v"] == "10"
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self._packer = zlib.compressobj()
        await self._send(socket, {"op": _HELLO, "s": None, "t": None, "d": {"heartbeat_interval": 40_000}})
        async for frame in socket:
            if frame.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                await self._read(socket, json.loads(frame.data))
        return socket

    async def _read(self, socket: web.WebSocketResponse, payload: dict[str, Any]) -> None:
        match payload["op"]:
            case op if op == _HEARTBEAT:
                await self._send(socket, {"op": _HEARTBEAT_ACK, "s": None, "t": None, "d": None})
            case op if op == _IDENTIFY:
                self.identified += 1
                self.intents = payload["d"]["intents"]
                self._log, self._sequence = [], 0
                session = {"session_id": "s1", "resume_gateway_url": f"ws://{self._host}/gateway", "shard": [0, 1]}
                application = {"id": str(ME), "flags": 0}
                self._socket = socket
                self._dispatch("READY", {"v": 10, "user": OWN, "guilds": [], **session, "application": application})
            case op if op == _RESUME:
                self.resumed += 1
                self._socket = socket
                for event in self._log[payload["d"]["seq"] :]:
                    await self._send(socket, event)
                self._dispatch("RESUMED", {})

    # REST

    @web.middleware
    async def _check(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if not request.path.startswith("/api/"):
            return await handler(request)
        if request.headers.get("Authorization") != f"Bot {TOKEN}":
            return web.json_response({"code": 0, "message": "401: Unauthorized"}, status=401)
        kind = handler.__name__.lstrip("_")
        if self.faults[kind]:
            return self.faults[kind].popleft()
        return await handler(request)

    async def _gateway(self, request: web.Request) -> web.Response:
        limit = {"total": 1000, "remaining": 999, "reset_after": 1, "max_concurrency": 1}
        return web.json_response({"url": f"ws://{self._host}/gateway", "shards": 1, "session_start_limit": limit})

    async def _get_file(self, request: web.Request) -> web.Response:
        return web.Response(body=self.files[request.match_info["name"]])

    async def _get_me(self, request: web.Request) -> web.Response:
        return web.json_response(OWN)

    async def _open_direct(self, request: web.Request) -> web.Response:
        recipient = int((await request.json())["recipient_id"])
        people = [user_json(recipient, "Ada")]
        channel = {"id": str(100 + recipient), "type": 1, "last_message_id": None, "recipients": people}
        return web.json_response(channel)

    async def _get_channel(self, request: web.Request) -> web.Response:
        number = request.match_info["channel"]
        server = self.servers.get(number)
        if server is None:
            people = [user_json(7, "Ada")]
            return web.json_response({"id": number, "type": 1, "last_message_id": None, "recipients": people})
        text = {"name": "general", "position": 0, "permission_overwrites": [], "parent_id": None, "topic": None}
        return web.json_response({"id": number, "type": 0, "guild_id": server, **text, "nsfw": False})

    async def _list(self, request: web.Request) -> web.Response:
        after, channel = int(request.query.get("after", 0)), request.match_info["channel"]
        in_channel = [message for message in self.messages.values() if message["channel_id"] == channel]
        later = [message for message in in_channel if int(message["id"]) > after]  # ids grow
        return web.json_response(later[: int(request.query.get("limit", 50))][::-1])

    async def _create(self, request: web.Request) -> web.Response:
        body = await request.json()
        if refusal := _refuse(body):
            return refusal
        if body.get("enforce_nonce"):
            for message in self.sent:
                if message.get("nonce") == body["nonce"]:
                    return web.json_response(message)
        message = self._make(request.match_info["channel"], body["content"], BOT, nonce=body.get("nonce"))
        message |= {"request": body}
        self.sent.append(message)
        return web.json_response(message)

    async def _type(self, request: web.Request) -> web.Response:
        self.typing.append(request.match_info["channel"])
        return web.Response(status=204)

    def _make(self, channel: str, text: str, author: dict[str, Any], **more: Any) -> dict[str, Any]:
        self._next += 1 << 22
        message = {
            **{"id": str(self._next), "channel_id": channel, "author": author, "content": text, "type": 0, "flags": 0},
            **{"timestamp": "2026-03-14T15:09:00+00:00", "edited_timestamp": None},
            **dict.fromkeys(("tts", "mention_everyone", "pinned"), False),
            **{name: [] for name in ("mentions", "mention_roles", "attachments", "embeds")},
            **more,
        }
        self.messages[message["id"]] = message
        return message


def _refuse(body: dict[str, Any]) -> web.Response | None:
    if not 0 < len(body["content"]) <= 2_000:
        return web.json_response({"code": 50035, "message": "Invalid Form Body"}, status=400)
    return None
