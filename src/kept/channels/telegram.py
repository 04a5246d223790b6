"""Telegram: a bot that answers the people it is told to, by long polling.

An update is confirmed to Telegram when the message in it is on disk, so one that a crash lost is brought again. While
the responder takes no more, nothing is fetched. Sending is not repeated where it may have worked.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kept.agent.events import Inbound
from kept.channels.telegram_bot import make_bot
from kept.channels.telegram_messages import Addressed, Overheard, Person, Unreadable, read_message
from kept.config import Config
from kept.errors import (
    ChannelUnavailable,
    ConfigError,
    DeliveryRefused,
    KeptError,
    MessageConflict,
    NotSent,
    QueueFull,
)
from kept.quarantine import set_aside
from kept.responder.responder import Responder
from kept.responder.split import utf16_length

if TYPE_CHECKING:
    import telegram

NAME = "telegram"
LIMIT = 4096
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 60.0
_SEND_TIMEOUT_S = 30.0
_LONGEST_RETRY_S = 3_600.0
"""However long Telegram, or what stands between, asks to wait."""
ONLY_TEXT = "I can only read text. What you sent was not kept."

Meaning = Addressed | Overheard | Unreadable | Person | None

log = logging.getLogger(__name__)


def find_token(config: Config) -> str | None:
    return config.gateway.telegram.token or config.keys.telegram


class TelegramChannel:
    """An outlet, and what brings messages to the responder."""

    pushes = True
    limit: int | None = LIMIT

    def __init__(self, config: Config) -> None:
        token = find_token(config)
        if not token:
            raise ConfigError("There is no Telegram token.", hint="Set gateway.telegram.token or TELEGRAM_BOT_TOKEN.")
        self._settings = config.gateway.telegram
        self._agent_id = config.agent_id
        self.debounce_ms = config.gateway.auto_responder.debounce_ms
        self.allowed = frozenset(one.lstrip("@").lower() for one in self._settings.allow_users)
        if not self.allowed:
            raise ConfigError(
                "gateway.telegram.allow_users is empty: nobody could write to the bot.",
                hint="Name the people it answers, by their numeric ids.",
            )
        self._damaged = os.path.join(config.home, "agents", config.agent_id, "telegram")
        self._bot = make_bot(
            token,
            self._settings.base_url,
            poll_timeout_s=self._settings.poll_timeout_s,
            on_unreadable=self._set_aside,
        )
        self._me = Person(0, "")
        self._told: set[int] = set()
        """Chats that know that only text is read: a series of pictures is answered once."""

    # what comes in

    async def connect(self) -> str:
        """The bot's own name. A token that Telegram does not know is an error; no network is waited for."""
        from telegram.error import InvalidToken, TelegramError

        wait_s = _FIRST_WAIT_S
        while True:
            try:
                await self._bot.initialize()
                self._me = Person(self._bot.id, self._bot.username)
                return f"@{self._bot.username}"
            except InvalidToken as exc:
                raise ChannelUnavailable(
                    "Telegram does not know this token.", hint="Check gateway.telegram.token or TELEGRAM_BOT_TOKEN."
                ) from exc
            except TelegramError as exc:
                log.warning("telegram: cannot be reached (%s); trying again", type(exc).__name__)
                await asyncio.sleep(wait_s)
                wait_s = min(_LONGEST_WAIT_S, wait_s * 2)

    async def serve(self, responder: Responder) -> None:
        """Brings messages until it is cancelled."""
        from telegram.error import Conflict, InvalidToken, RetryAfter

        offset: int | None = None
        wait_s = _FIRST_WAIT_S
        while True:
            try:
                updates = await self._bot.get_updates(
                    offset=offset, timeout=self._settings.poll_timeout_s, allowed_updates=["message"]
                )
            except InvalidToken as exc:
                raise ChannelUnavailable("Telegram does not accept this token any more.") from exc
            except RetryAfter as exc:
                await asyncio.sleep(_seconds(exc))
                continue
            except Exception as exc:  # noqa: BLE001 - also what the library makes of an update it cannot read
                if isinstance(exc, Conflict):
                    log.warning("telegram: another program fetches messages with the same token; trying again")
                else:
                    log.warning("telegram: messages cannot be fetched (%s); trying again", type(exc).__name__)
                await asyncio.sleep(wait_s)
                wait_s = min(_LONGEST_WAIT_S, wait_s * 2)
                continue
            wait_s = _FIRST_WAIT_S
            for update in updates:
                await self._take(responder, update)
                offset = update.update_id + 1

    def _read(self, update: telegram.Update) -> Meaning:
        if update.message is None:
            return None
        try:
            return read_message(update.message, me=self._me, agent_id=self._agent_id, allowed=self.allowed)
        except (AttributeError, TypeError, ValueError, LookupError):
            # Fields that the library does not check. Fetching the update again would not change them.
            self._set_aside(update.to_json().encode("utf-8", "backslashreplace"))
            return None

    def _set_aside(self, update: bytes) -> None:
        """Keep an update that cannot be read, so that the ones after it are answered."""
        try:
            beside = set_aside(self._damaged, [update])
        except KeptError as exc:
            log.warning("telegram: an update could not be read, and not be kept either (%s)", exc.message)
        else:
            log.warning("telegram: an update could not be read; it is kept in %s", beside)

    async def _take(self, responder: Responder, update: telegram.Update) -> None:
        match self._read(update):
            case Overheard(key, line):
                responder.hear(key, line)
            case Addressed(key, message):
                await self._accept(responder, key, message)
            case Unreadable(to):
                await self._say_once(to)
            case Person(user_id):
                log.info("telegram: ignored user %s, who is not in gateway.telegram.allow_users", user_id)

    async def _accept(self, responder: Responder, key: Any, message: Inbound) -> None:
        while True:
            await responder.room.wait(str(key))
            try:
                await responder.accept(key, message)
            except QueueFull:
                continue  # somebody was faster
            except MessageConflict:
                log.warning("telegram: a message came twice, with another text; the first one counts")
            return

    async def _say_once(self, to: Mapping[str, Any]) -> None:
        """No turn and no reply: whether it arrives changes nothing."""
        if to["chat"] in self._told:
            return
        self._told.add(to["chat"])
        try:
            await self._send(to["chat"], to["thread"], ONLY_TEXT)
        except Exception as exc:  # noqa: BLE001 - what is not a message must not stop those that are
            log.warning("telegram: could not say that only text is read (%s)", type(exc).__name__)

    async def close(self) -> None:
        await self._bot.shutdown()

    # what goes out

    def measure(self, text: str) -> int:
        return utf16_length(text)

    async def send(self, to: Mapping[str, Any], text: str) -> None:
        from telegram.error import BadRequest, ChatMigrated, Forbidden, InvalidToken, NetworkError, RetryAfter

        chat = to.get("chat")
        if not isinstance(chat, int):
            raise DeliveryRefused("The message does not say which chat it came from.")
        try:
            await self._send(chat, to.get("thread"), text)
        except RetryAfter as exc:
            raise NotSent("Telegram asks to wait", retry_after_s=_seconds(exc)) from exc
        except ChatMigrated as exc:
            await self.send({**to, "chat": exc.new_chat_id}, text)
        except (BadRequest, Forbidden, InvalidToken) as exc:
            raise DeliveryRefused(f"Telegram refused it ({type(exc).__name__}).") from exc
        except NetworkError as exc:
            if _never_left(exc):
                raise NotSent(f"Telegram could not take it ({type(exc).__name__})") from exc
            raise

    async def _send(self, chat: int, thread: int | None, text: str) -> None:
        await self._bot.send_message(chat, text, message_thread_id=thread, read_timeout=_SEND_TIMEOUT_S)

    async def show_typing(self, to: Mapping[str, Any]) -> None:
        from telegram.error import TelegramError

        chat = to.get("chat")
        if not isinstance(chat, int):
            return
        try:
            await self._bot.send_chat_action(chat, "typing", message_thread_id=to.get("thread"))
        except TelegramError as exc:
            log.debug("telegram: typing could not be shown (%s)", type(exc).__name__)


def _never_left(error: Exception) -> bool:
    """Whether it is certain that a message was not sent: there was no connection to send it by, or the Bot API itself
    answers that it failed. Silence, and an answer that something in between made up, say nothing."""
    import httpx

    cause = error.__cause__
    return cause is None or isinstance(cause, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)


def _seconds(error: telegram.error.RetryAfter) -> float:
    after = error.retry_after
    seconds = after if isinstance(after, int | float) else after.total_seconds()
    return float(min(max(0, seconds), _LONGEST_RETRY_S))
