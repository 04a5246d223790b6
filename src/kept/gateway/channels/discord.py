"""Discord: a bot that answers the people on a list, in direct messages and on servers.

Discord does not deliver a message again that a process lost. So whenever a new connection begins, messages of the known
channels since the last accepted one are fetched, and those that were accepted before are recognised by their ids. A
part that may have been sent is not sent again.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kept.agent.events import GroupLine, Inbound
from kept.base.clock import new_id
from kept.base.limits import clip
from kept.base.remote_errors import ChannelUnavailable, DeliveryRefused, EndpointDown, NotSent
from kept.config import Config
from kept.errors import ConfigError, ScheduleInvalid
from kept.gateway.channel import ANY_AGENT, ResponderTiming, Switchboard
from kept.gateway.channels.chat_intake import (
    QUOTED_CHARS,
    AddressedMessage,
    Allowed,
    BotChannel,
    MediaItem,
    OverheardMessage,
    Person,
    kind_of,
    short_name,
    with_media,
)
from kept.sessions.entries import FORWARDED, QUOTED
from kept.sessions.session_key import DEFAULT_ACCOUNT, SessionKey

if TYPE_CHECKING:
    import hikari

NAME = "discord"
_LONGEST_RATE_LIMIT_S = 60.0
_MISSED = 100
"""Messages of a channel that are fetched after a pause."""

log = logging.getLogger(__name__)


def find_discord_token(config: Config) -> str | None:
    return config.gateway.discord.token or config.keys.find("discord")


class DiscordChannel(BotChannel):
    name = NAME
    limit = 2_000

    def __init__(self, config: Config, timing: ResponderTiming | None = None) -> None:
        token = find_discord_token(config)
        if not token:
            raise ConfigError("There is no Discord token.", hint="Set gateway.discord.token or DISCORD_BOT_TOKEN.")
        self._token = token
        self._settings = config.gateway.discord
        super().__init__(config, self._settings, timing)
        self._events: asyncio.Queue[hikari.PartialMessage | None] = asyncio.Queue()
        """Messages in the order of their arrival. None means that some may be missing before the next one."""
        self._bot = self._make_bot()

    # receiving

    async def sign_in(self) -> Person:
        import hikari

        self._bot.subscribe(hikari.MessageCreateEvent, self._on_message)
        self._bot.subscribe(hikari.ShardReadyEvent, self._on_ready)
        try:
            await self._bot.start(check_for_updates=False)
            user = self._bot.get_me() or await self._bot.rest.fetch_my_user()
        except (hikari.UnauthorizedError, hikari.GatewayServerClosedConnectionError) as exc:
            raise ChannelUnavailable(
                f"Discord does not accept the bot ({type(exc).__name__}).",
                hint="Check gateway.discord.token; read_along needs the message content intent.",
            ) from exc
        except (hikari.HikariError, OSError) as exc:
            await self.close()
            self._bot = self._make_bot()
            raise EndpointDown(type(exc).__name__) from exc
        return Person(int(user.id), user.username)

    def _make_bot(self) -> hikari.GatewayBot:
        return make_discord_bot(self._token, self._settings.base_url, read_along=self._settings.read_along)

    async def _on_message(self, event: hikari.MessageCreateEvent) -> None:
        await self._events.put(event.message)

    async def _on_ready(self, event: hikari.ShardReadyEvent) -> None:
        await self._events.put(None)

    async def serve(self, front: Switchboard) -> None:
        while True:
            message = await self._events.get()
            if message is None:
                await self._catch_up(front)
            else:
                await self._read(front, message)

    async def _read(self, front: Switchboard, message: hikari.PartialMessage) -> None:
        try:
            content = read_message(message, me=self._me, allowed=self.allowed)
        except (AttributeError, TypeError, ValueError, LookupError) as exc:
            log.warning("discord: message %s could not be read (%s)", message.id, type(exc).__name__)
        else:
            await self.take(front, content)

    async def _catch_up(self, front: Switchboard) -> None:
        """Fetch what the known channels have since the last accepted message."""
        import hikari

        last: dict[int, int] = {}
        for message in (message for each in front.responders.values() for message in each.inbox.messages()):
            chat, number = message.metadata.get("chat"), message.metadata.get("message")
            if message.channel == NAME and isinstance(chat, int) and isinstance(number, int):
                last[chat] = max(number, last.get(chat, 0))
        for chat, number in last.items():
            try:
                missed = await self._bot.rest.fetch_messages(chat, after=hikari.Snowflake(number)).limit(_MISSED)
                # Messages that are fetched do not say their server.
                server = getattr(await self._bot.rest.fetch_channel(chat), "guild_id", None) if missed else None
            except hikari.HikariError as exc:
                log.warning("discord: missed messages cannot be fetched (%s)", type(exc).__name__)
                continue
            for missed_message in sorted(missed, key=lambda message: message.id):
                missed_message.guild_id = missed_message.guild_id or server
                await self._read(front, missed_message)

    async def fetch(self, source: str) -> bytes:
        import aiohttp

        async with aiohttp.ClientSession() as session, session.get(source) as response:
            response.raise_for_status()
            return await response.read()

    async def close(self) -> None:
        if self._bot.is_alive:
            await self._bot.close()

    # sending

    def address(self, user_id: str) -> Mapping[str, Any]:
        if not (user_id.isascii() and user_id.isdigit()):
            raise ScheduleInvalid(f"discord:{user_id} is not the number of a person.")
        self.require_allowed(int(user_id))
        return {"user": int(user_id)}

    async def send(self, to: Mapping[str, Any], text: str) -> None:
        """Send a message that alerts nobody."""
        import hikari

        try:
            chat = to.get("chat") or (await self._bot.rest.create_dm_channel(int(to["user"]))).id
            await self._bot.rest.create_message(
                chat,
                text,
                nonce=new_id()[:25],  # makes the library's own attempts one message
                reply=to["message"] if "server" in to else hikari.UNDEFINED,
                reply_must_exist=False,
                mentions_everyone=False,
                mentions_reply=False,
                user_mentions=False,
                role_mentions=False,
            )
        except KeyError as exc:
            raise DeliveryRefused("The message does not say which channel it came from.") from exc
        except hikari.HikariError as exc:
            raise _delivery_error(exc) from exc

    async def show_progress(self, to: Mapping[str, Any], text: str) -> None:
        import hikari

        if "chat" not in to:
            return
        try:
            await self._bot.rest.trigger_typing(to["chat"])
        except hikari.HikariError as exc:
            log.debug("discord: typing could not be shown (%s)", type(exc).__name__)


def make_discord_bot(token: str, base_url: str | None, *, read_along: bool) -> hikari.GatewayBot:
    try:
        import hikari
        from hikari.impl import CacheSettings
    except ImportError as exc:
        raise ChannelUnavailable("The Discord channel needs hikari.", hint="pip install 'kept[discord]'") from exc
    intents = hikari.Intents.GUILDS | hikari.Intents.GUILD_MESSAGES | hikari.Intents.DM_MESSAGES
    if read_along:
        intents |= hikari.Intents.MESSAGE_CONTENT
    try:
        return hikari.GatewayBot(
            token,
            banner=None,
            logs=None,
            suppress_optimization_warning=True,
            auto_chunk_members=False,
            cache_settings=CacheSettings(components=hikari.api.CacheComponents.ME),
            intents=intents,
            max_rate_limit=_LONGEST_RATE_LIMIT_S,
            rest_url=base_url,
        )
    except ValueError as exc:
        raise ChannelUnavailable("The Discord token has the wrong form.", hint="Check gateway.discord.token.") from exc


def _delivery_error(error: hikari.HikariError) -> Exception:
    """Return NotSent if a message was certainly not sent, DeliveryRefused if it never will be, else the error."""
    import aiohttp
    import hikari

    match error:
        case hikari.RateLimitTooLongError():
            return NotSent("Discord asks to wait", retry_after_s=error.retry_after)
        case hikari.ClientHTTPResponseError():
            return DeliveryRefused(f"Discord refused it ({type(error).__name__}).")
        case hikari.HTTPError() if isinstance(error.__cause__, aiohttp.ClientConnectorError):
            return NotSent("Discord cannot be reached")
        case _:
            return error


_MENTION = re.compile(r"<@!?(\d+)>")


def read_message(
    message: hikari.PartialMessage, *, me: Person, allowed: Allowed
) -> AddressedMessage | OverheardMessage | Person | None:
    """Sort a message. Return the sender if they are not allowed, and None if the message is to be ignored."""
    author = message.author
    if not author or author.is_bot or message.webhook_id or not message.timestamp:
        return None
    forwarded = message.message_snapshots[0] if message.message_snapshots else None
    own = (forwarded.content if forwarded else message.content) or ""
    media = read_media(forwarded or message)
    if not (own or media):
        return None
    key = _key(message, author.id)
    is_allowed = author in allowed
    if message.guild_id is not None and not (is_allowed and not forwarded and _is_addressed(message, own, me)):
        sender = f"forwarded by {_name(author)}" if forwarded else _name(author)
        line = GroupLine(sender, with_media(_readable_mentions(message, own), media), message.timestamp)
        return OverheardMessage(key, line)
    if not is_allowed:
        return Person(author.id, author.username)
    metadata: dict[str, Any] = {"chat": int(message.channel_id), "message": int(message.id)}
    if message.guild_id is not None:
        metadata["server"] = int(message.guild_id)
    if forwarded is not None:
        metadata[FORWARDED] = "somebody"
    elif quoted := _quoted(message):
        metadata[QUOTED] = quoted
    text = own if forwarded else _readable_mentions(message, _without_mention(own, me))
    inbound = Inbound(str(message.id), with_media(text, media), _name(author), message.timestamp, metadata)
    return AddressedMessage(key, inbound, media)


def read_media(message: hikari.PartialMessage | hikari.messages.MessageSnapshot) -> tuple[MediaItem, ...]:
    items = []
    for file in message.attachments or ():
        media_type = (file.media_type or "").partition(";")[0]
        is_voice = file.waveform is not None
        kind = "voice message" if is_voice else kind_of(media_type)
        seconds = round(file.duration) if file.duration else None
        name = None if is_voice else file.filename
        source = file.url if kind in ("picture", "document") else None
        items.append(MediaItem(kind, name, file.size, seconds, media_type or None, source))
    return (*items, *(MediaItem("sticker", sticker.name) for sticker in message.stickers or ()))


def _key(message: hikari.PartialMessage, author_id: int) -> SessionKey:
    """Return the key of a conversation: a person in direct messages, otherwise the channel or thread."""
    if message.guild_id is None:
        return SessionKey(ANY_AGENT, NAME, DEFAULT_ACCOUNT, "direct", str(author_id))
    return SessionKey(ANY_AGENT, NAME, DEFAULT_ACCOUNT, "group", str(message.channel_id))


def _is_addressed(message: hikari.PartialMessage, text: str, me: Person) -> bool:
    if any(int(match[1]) == me.id for match in _MENTION.finditer(text)):
        return True
    original = message.referenced_message
    return bool(original and original.author and original.author.id == me.id)


def _quoted(message: hikari.PartialMessage) -> dict[str, str] | None:
    original = message.referenced_message
    if not original:
        return None
    text = clip(with_media(original.content or "", read_media(original)), QUOTED_CHARS)
    return {"from": _name(original.author) if original.author else "somebody", "text": text} if text else None


def _without_mention(text: str, me: Person) -> str:
    return re.sub(rf"<@!?{me.id}>", "", text, count=1).strip() or text


def _readable_mentions(message: hikari.PartialMessage, text: str) -> str:
    """Return a text with the names of the people that it mentions."""
    names = {int(user_id): _name(user) for user_id, user in (message.user_mentions or {}).items()}
    return _MENTION.sub(lambda match: f"@{names[int(match[1])]}" if int(match[1]) in names else match[0], text)


def _name(user: hikari.User) -> str:
    return short_name(user.global_name or user.username)
