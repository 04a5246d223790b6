"""What a Telegram message means for us: a question, something overheard in a group, or nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kept.agent.events import GroupLine, Inbound
from kept.sessions.keys import DEFAULT_ACCOUNT, SessionKey
from kept.values import frozen

if TYPE_CHECKING:
    import telegram

_GROUPS = ("group", "supergroup")
_COMMAND = re.compile(r"/[A-Za-z]\w*@(\w+)")


@frozen
class Person:
    """Somebody on Telegram: ourselves, or one who is not to be answered."""

    id: int
    username: str


@frozen
class Addressed:
    key: SessionKey
    message: Inbound


@frozen
class Overheard:
    key: SessionKey
    line: GroupLine


@frozen
class Unreadable:
    """Somebody we answer sent something that has no words: a picture, a voice, a sticker."""

    to: dict[str, Any]


def read_message(
    message: telegram.Message, *, me: Person, agent_id: str, allowed: frozenset[str]
) -> Addressed | Overheard | Unreadable | Person | None:
    """None where there is nothing to read. In a group, whatever does not speak to us is overheard."""
    text, sender, chat = message.text or message.caption, message.from_user, message.chat
    if sender is None or sender.is_bot:
        return None
    in_group = chat.type in _GROUPS
    if not in_group and chat.type != "private":
        return None
    is_allowed = str(sender.id) in allowed or (sender.username or "").lower() in allowed - {""}
    if not text:
        is_for_us = is_allowed and not in_group and message.effective_attachment is not None
        return Unreadable({"chat": chat.id, "thread": _thread(message)}) if is_for_us else None
    key = _key(message, agent_id, in_group=in_group)
    name = sender.full_name or str(sender.id)
    if in_group and not (is_allowed and _speaks_to_us(message, text, me)):
        return Overheard(key, GroupLine(name, text, message.date))
    if not is_allowed:
        return Person(sender.id, sender.username or "")
    to = {"chat": chat.id, "thread": _thread(message), "message": message.message_id}
    said = _without_mention(text, me.username)
    return Addressed(key, Inbound(f"{chat.id}:{message.message_id}", said, name, message.date, to))


def _key(message: telegram.Message, agent_id: str, *, in_group: bool) -> SessionKey:
    thread = _thread(message)
    where = f"{message.chat.id}:{thread}" if thread else str(message.chat.id)
    return SessionKey(agent_id, "telegram", DEFAULT_ACCOUNT, "group" if in_group else "direct", where)


def _thread(message: telegram.Message) -> int | None:
    """Topics of a group are conversations of their own; a chain of replies is none."""
    return message.message_thread_id if message.is_topic_message else None


def _speaks_to_us(message: telegram.Message, text: str, me: Person) -> bool:
    answered = message.reply_to_message
    if answered is not None and answered.from_user is not None and answered.from_user.id == me.id:
        return True
    command = _COMMAND.match(text)
    if command:
        return command[1].lower() == me.username.lower()
    return _mention(me.username).search(text) is not None


def _mention(username: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)@{re.escape(username)}\b", re.IGNORECASE)


def _without_mention(text: str, username: str) -> str:
    """The mention says only that we are meant; where it is all there is, it stays."""
    return _mention(username).sub("", text, count=1).strip() or text
