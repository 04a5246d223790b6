"""Intake of messages from chat services: a message is addressed to the bot, overheard, or from a stranger, and what is
addressed to it goes to the responder."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

from kept.agent.events import GroupLine, Inbound
from kept.base.limits import one_line
from kept.base.remote_errors import EndpointDown, MessageConflict, QueueFull
from kept.base.values import frozen
from kept.base.wording import size_text
from kept.config import Config
from kept.config.gateway_settings import DiscordSettings, TelegramSettings
from kept.errors import ConfigError, ScheduleInvalid
from kept.gateway.channel import Channel, ResponderTiming, Switchboard
from kept.sessions.attachments import ATTACHMENTS, STORED_TYPES, save_attachment
from kept.sessions.session_key import SessionKey
from kept.storage.open import open_agent_named

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

    def __len__(self) -> int:
        return len(self.ids) + len(self.names)

    def __contains__(self, user: object) -> bool:
        sender: Any = user
        return sender.id in self.ids or (sender.username or "").lower() in self.names


# pictures, documents and the like

_NAME_CHARS = 80
QUOTED_CHARS = 2_000
"""Largest part of a message that another one quotes."""


def short_name(name: str | None) -> str:
    """Return the name of a person in one short line."""
    return one_line(name or "")[:_NAME_CHARS] or "somebody"


@frozen
class MediaItem:
    kind: str
    """What it is, in a person's words."""
    name: str | None = None
    size_bytes: int | None = None
    seconds: int | None = None
    media_type: str | None = None
    source: str | None = None
    """Id or address under which the channel can fetch the file. None if there is none."""

    def describe(self) -> str:
        """Return a text that takes the place of the file, such as '(picture: cat.jpg, 34 kB)'."""
        name = one_line(self.name or "")[:_NAME_CHARS].strip("() ")
        head = f"{self.kind}: {name}" if name else self.kind
        size = size_text(self.size_bytes) if self.size_bytes else ""
        length = f"{self.seconds // 60}:{self.seconds % 60:02d} min" if self.seconds else ""
        return f"({', '.join(part for part in (head, size, length) if part)})"


def with_media(text: str, items: Iterable[MediaItem]) -> str:
    """Return a text followed by the descriptions of what came with it."""
    return "\n\n".join(part for part in (text, *(item.describe() for item in items)) if part)


def kind_of(media_type: str) -> str:
    kinds = {"image": "picture", "audio": "audio", "video": "video"}
    return kinds.get(media_type.partition("/")[0], "document")


@frozen
class AddressedMessage:
    key: SessionKey
    message: Inbound
    media: tuple[MediaItem, ...] = ()
    """Files that came with the message."""


@frozen
class OverheardMessage:
    key: SessionKey
    line: GroupLine


# channels of bots


class BotChannel(Channel):
    """Channel to a bot of a chat service: hands its messages to the responders, and sends the replies.

    Pictures and documents that models take are fetched and stored first, so that a message that is accepted has its
    files. One that is too large or cannot be fetched is only named.
    """

    name: ClassVar[str]
    pushes = True

    def __init__(
        self, config: Config, settings: TelegramSettings | DiscordSettings, timing: ResponderTiming | None
    ) -> None:
        super().__init__(debounce_ms=config.gateway.auto_responder.debounce_ms)
        self.allowed = Allowed.of(settings.allow_users)
        if not self.allowed:
            raise ConfigError(
                f"gateway.{self.name}.allow_users is empty: the bot would answer no one.",
                hint="List the numeric ids of the people that it answers.",
            )
        self._home = config.home
        self._timing = timing or ResponderTiming()
        self._me = Person(0, "")

    async def connect(self) -> str:
        """Return the name of the bot. Wait for the network; raise ChannelUnavailable if the bot is refused."""
        backoff = self._timing.backoff()
        while True:
            try:
                self._me = await self.sign_in()
                return self._me.username
            except EndpointDown as exc:
                log.warning("%s: cannot be reached (%s); trying again", self.name, exc.message)
                await asyncio.sleep(backoff.next_s())

    async def sign_in(self) -> Person:
        """Return the bot. Raise EndpointDown if the network is, and ChannelUnavailable if the bot is refused."""
        raise NotImplementedError

    def require_allowed(self, number: int) -> None:
        """Raise ScheduleInvalid if the bot does not answer a person."""
        if number not in self.allowed.ids and not self.allowed.names:
            raise ScheduleInvalid(f"{self.name}:{number} is not in gateway.{self.name}.allow_users.")

    async def serve(self, front: Switchboard) -> None:
        """Hand messages to the responders until cancelled."""
        raise NotImplementedError

    async def fetch(self, source: str) -> bytes:
        """Return a file by the source that its `MediaItem` names. May raise anything."""
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    async def take(self, front: Switchboard, content: AddressedMessage | OverheardMessage | Person | None) -> None:
        """Hand over a message. Return when one that is addressed to the bot is on disk."""
        if isinstance(content, Person):
            log.info("%s: ignored user %s, who is not in gateway.%s.allow_users", self.name, content.id, self.name)
        elif isinstance(content, OverheardMessage):
            if content.line.timestamp:  # a library may not require one
                key = front.route(content.key)
                front.responders[key.agent_id].add_group_line(key, content.line)
        elif content is not None:
            await self._accept(front, replace(content, key=front.route(content.key)))

    async def _accept(self, front: Switchboard, addressed: AddressedMessage) -> None:
        key, message = addressed.key, addressed.message
        if files := await self._store_files(addressed):
            message = replace(message, metadata={**(message.metadata or {}), ATTACHMENTS: files})
        while True:
            await front.responders[key.agent_id].limits.wait_for_space(str(key))
            try:
                await front.accept(key, message)
            except QueueFull:
                continue  # another channel was faster
            except MessageConflict:
                log.warning("%s: a message came twice with different texts; the first is used", self.name)
            break

    async def _store_files(self, addressed: AddressedMessage) -> list[dict[str, Any]]:
        """Fetch and store the files of a message, and return what the transcript says about them."""
        storage = open_agent_named(self._home, addressed.key.agent_id)
        files = []
        for item in addressed.media:
            is_small = (item.size_bytes or 0) <= MAX_ATTACHMENT_BYTES
            if item.source is None or item.media_type not in STORED_TYPES or not is_small:
                continue
            try:
                async with asyncio.timeout(_FETCH_TIMEOUT_S):
                    data = await self.fetch(item.source)
            except Exception as exc:  # noqa: BLE001 - a library may raise anything; the file is named in any case
                log.warning("%s: a file could not be fetched (%s)", self.name, type(exc).__name__)
                continue
            if 0 < len(data) <= MAX_ATTACHMENT_BYTES:
                files.append(await asyncio.to_thread(save_attachment, storage, data, item.media_type, item.name))
        return files
