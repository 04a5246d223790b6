"""Intake of messages from chat services: a message is addressed to the bot, overheard, or from a stranger, and what is
addressed to it goes to the responder, with a sign for the sender."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from kept.agent.events import GroupLine, Inbound
from kept.channels.media import MediaItem
from kept.channels.switchboard import ResponderInterface
from kept.config import Config
from kept.config.agent_paths import AgentPaths
from kept.errors import ConfigError
from kept.remote_errors import MessageConflict, MessageNotFound, QueueFull
from kept.sessions.attachments import ATTACHMENTS, STORED_TYPES, AttachmentFolder
from kept.sessions.session_key import SessionKey
from kept.values import frozen

CORRECTION = "(I have edited an earlier message. It now says:)"
PLACEHOLDER = "…"
"""Text of a preview before its first words."""

_FETCH_TIMEOUT_S = 60.0

log = logging.getLogger(__name__)


MAX_ATTACHMENT_BYTES = 5_000_000
"""Largest picture or document of a message that is stored and handed to the model."""


@frozen
class Person:
    """User of a chat service: the bot, or a person who is not answered."""

    id: int
    username: str


@frozen
class Allowed:
    """People that the bot answers. A username of digits is not an id, and an id is not a username."""

    ids: frozenset[int]
    names: frozenset[str]

    @classmethod
    def of(cls, users: Iterable[str]) -> Allowed:
        """Read a list of users: a number is an id, anything else a username. With '@', a number is a username too."""
        entries = [user.strip().lower() for user in users if user.strip("@ ")]
        ids = frozenset(int(user) for user in entries if user.isascii() and user.isdigit())
        return cls(ids, frozenset(user.lstrip("@") for user in entries if not (user.isascii() and user.isdigit())))

    @classmethod
    def require(cls, users: Iterable[str], *, channel: str) -> Allowed:
        """Read the list of users of a channel. Raise ConfigError if it is empty."""
        allowed = cls.of(users)
        if not allowed:
            raise ConfigError(
                f"gateway.{channel}.allow_users is empty: the bot would answer no one.",
                hint="List the numeric ids of the people that it answers.",
            )
        return allowed

    def __len__(self) -> int:
        return len(self.ids) + len(self.names)

    def __contains__(self, user: object) -> bool:
        sender: Any = user
        return sender.id in self.ids or (sender.username or "").lower() in self.names


@frozen
class AddressedMessage:
    key: SessionKey
    message: Inbound
    media: tuple[MediaItem, ...] = ()
    """Files that came with the message."""
    edited_at: dt.datetime | None = None
    """Time of the edit, if this is a new version of an earlier message."""


@frozen
class OverheardMessage:
    key: SessionKey
    line: GroupLine


Fetch = Callable[[str], Awaitable[bytes]]
"""Returns a file by the source that its `MediaItem` names. May raise anything."""


class ChatIntake:
    """Hands messages of a chat service to the responder. ``acknowledge`` shows the sender that one was accepted.

    Pictures and documents that models take are fetched and stored first, so that a message that is accepted has its
    files. One that is too large or cannot be fetched is only named.
    """

    def __init__(
        self,
        channel: str,
        config: Config,
        acknowledge: Callable[[Mapping[str, Any]], Awaitable[None]],
        fetch: Fetch,
    ) -> None:
        self._channel = channel
        self._agents = os.path.join(config.home, "agents")
        self._acknowledge = acknowledge
        self._fetch = fetch
        self._tasks: set[asyncio.Future[None]] = set()

    async def take(self, responder: ResponderInterface, content: AddressedMessage | OverheardMessage) -> None:
        """Return when an addressed message is on disk."""
        if isinstance(content, OverheardMessage):
            if content.line.timestamp:  # a library may not require one
                responder.add_group_line(content.key, content.line)
        elif content.edited_at is None:
            await self._accept(responder, content)
        else:
            await self._accept_edit(responder, content, content.edited_at)

    async def _accept(self, responder: ResponderInterface, addressed: AddressedMessage) -> None:
        key, message = addressed.key, addressed.message
        if files := await self._store_files(responder, addressed):
            message = replace(message, metadata={**(message.metadata or {}), ATTACHMENTS: files})
        while True:
            await responder.limits.wait_for_space(str(key))
            try:
                await responder.accept(key, message)
            except QueueFull:
                continue  # another channel was faster
            except MessageConflict:
                log.warning("%s: a message came twice with different texts; the first is used", self._channel)
            break
        # A courtesy that nothing waits for.
        task = asyncio.ensure_future(self._acknowledge(message.metadata or {}))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _store_files(self, responder: ResponderInterface, addressed: AddressedMessage) -> list[dict[str, Any]]:
        """Fetch and store the files of a message, and return what the transcript says about them."""
        agent = responder.route(addressed.key).agent_id
        folder = AttachmentFolder(AgentPaths(os.path.join(self._agents, agent)).attachments)
        files = []
        for item in addressed.media:
            if (
                item.source is None
                or item.media_type not in STORED_TYPES
                or (item.size_bytes or 0) > MAX_ATTACHMENT_BYTES
            ):
                continue
            try:
                async with asyncio.timeout(_FETCH_TIMEOUT_S):
                    data = await self._fetch(item.source)
            except Exception as exc:  # noqa: BLE001 - a library may raise anything; the file is named in any case
                log.warning("%s: a file could not be fetched (%s)", self._channel, type(exc).__name__)
                continue
            if 0 < len(data) <= MAX_ATTACHMENT_BYTES:
                files.append(await asyncio.to_thread(folder.save, data, item.media_type, item.name))
        return files

    async def _accept_edit(
        self, responder: ResponderInterface, addressed: AddressedMessage, edited_at: dt.datetime
    ) -> None:
        """Replace a message that is not answered yet. Otherwise accept the new version as a correction."""
        message = addressed.message
        try:
            known, _ = responder.get(self._channel, message.id)
        except MessageNotFound:
            await self._accept(responder, addressed)
            return
        if known.inbound.text != message.text and not await responder.replace_text(known, message.text):
            version = f"{message.id}:{edited_at.timestamp():.0f}"
            correction = replace(message, id=version, text=f"{CORRECTION}\n{message.text}")
            await self._accept(responder, replace(addressed, message=correction))

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
