"""Telegram messages as the channel reads them."""

from typing import Any

import telegram

from kept.gateway.channels.chat_intake import Allowed, Person
from kept.gateway.channels.telegram_messages import read_message

ME = Person(123456, "kept_bot")


def read(
    text: str, *, group: bool = False, user: int = 7, username: str | None = None, allow=("7",), **more: Any
) -> Any:
    chat = {"id": -100, "type": "supergroup", "title": "G"} if group else {"id": user, "type": "private"}
    sender = {"id": user, "is_bot": False, "first_name": "Ann", **({"username": username} if username else {})}
    data = {"message_id": 1, "date": 1, "chat": chat, "from": sender, "text": text, **more}
    message = telegram.Message.de_json(data, None)
    return read_message(message, me=ME, allowed=Allowed.of(allow))
