"""Sort Discord messages: addressed to the bot, overheard on a server, or to be ignored.

A forwarded message, and the message that is replied to, are somebody else's words: data for the agent, never commands.
Files are named in the text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kept.agent.events import GroupLine, Inbound
from kept.channels.chat_intake import AddressedMessage, Allowed, OverheardMessage, Person
from kept.channels.media import MediaItem, kind_of, with_media
from kept.limits import clip, one_line
from kept.sessions.entries import FORWARDED, QUOTED
from kept.sessions.session_key import DEFAULT_ACCOUNT, SessionKey

if TYPE_CHECKING:
    import hikari

NAME = "discord"
_NAME_CHARS = 80
_QUOTED_CHARS = 2_000
_MENTION = re.compile(r"<@!?(\d+)>")


def read_message(
    message: hikari.PartialMessage, *, me: Person, agent_id: str, allowed: Allowed
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
    key = _key(message, author.id, agent_id)
    is_allowed = author in allowed
    if message.guild_id is not None and not (is_allowed and not forwarded and _is_addressed(message, own, me)):
        sender = f"forwarded by {_name(author)}" if forwarded else _name(author)
        line = GroupLine(sender, with_media(_readable_mentions(message, own), media), message.timestamp)
        return None if message.edited_timestamp else OverheardMessage(key, line)
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
    return AddressedMessage(key, inbound, media, message.edited_timestamp or None)


def read_media(message: hikari.PartialMessage | hikari.messages.MessageSnapshot) -> tuple[MediaItem, ...]:
    """Return the files and stickers of a message."""
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


def _key(message: hikari.PartialMessage, author_id: int, agent_id: str) -> SessionKey:
    """Return the key of a conversation: a person in direct messages, otherwise the channel or thread."""
    if message.guild_id is None:
        return SessionKey(agent_id, NAME, DEFAULT_ACCOUNT, "direct", str(author_id))
    return SessionKey(agent_id, NAME, DEFAULT_ACCOUNT, "group", str(message.channel_id))


def _is_addressed(message: hikari.PartialMessage, text: str, me: Person) -> bool:
    if any(int(match[1]) == me.id for match in _MENTION.finditer(text)):
        return True
    original = message.referenced_message
    return bool(original and original.author and original.author.id == me.id)


def _quoted(message: hikari.PartialMessage) -> dict[str, str] | None:
    original = message.referenced_message
    if not original:
        return None
    text = clip(with_media(original.content or "", read_media(original)), _QUOTED_CHARS)
    return {"from": _name(original.author) if original.author else "somebody", "text": text} if text else None


def _without_mention(text: str, me: Person) -> str:
    return re.sub(rf"<@!?{me.id}>", "", text, count=1).strip() or text


def _readable_mentions(message: hikari.PartialMessage, text: str) -> str:
    """Return a text with the names of the people that it mentions."""
    names = {int(user_id): _name(user) for user_id, user in (message.user_mentions or {}).items()}
    return _MENTION.sub(lambda match: f"@{names[int(match[1])]}" if int(match[1]) in names else match[0], text)


def _name(user: hikari.User) -> str:
    return one_line(user.global_name or user.username or "")[:_NAME_CHARS] or "somebody"
