"""Telegram: a bot that answers the people on a list, by long polling.

An update is confirmed to Telegram when its message is on disk, so an update that a crash lost is fetched again. While
the queue is full, nothing is fetched. A part that may have been sent is not sent again.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kept.agent.events import ApprovalAsked, Inbound
from kept.channels.switchboard import ResponderFront
from kept.channels.telegram_approvals import read_press, send_question
from kept.channels.telegram_bot import make_bot
from kept.channels.telegram_messages import (
    AddressedMessage,
    Allowed,
    OverheardMessage,
    Person,
    UnreadableMessage,
    read_message,
)
from kept.config import Config
from kept.durable import set_aside
from kept.errors import (
    ChannelUnavailable,
    ConfigError,
    DeliveryRefused,
    KeptError,
    MessageConflict,
    NotSent,
    QueueFull,
    ScheduleInvalid,
)
from kept.responder.channel import ResponderTiming, utf16_length
from kept.sessions.session_key import SessionKey

if TYPE_CHECKING:
    import telegram

NAME = "telegram"
LIMIT = 4096
_SEND_TIMEOUT_S = 30.0
_LONGEST_RETRY_S = 3_600.0
"""Longest wait that Telegram, or a proxy before it, can ask for."""
TEXT_ONLY = "I can only read text. Your message was not kept."

UpdateContent = AddressedMessage | OverheardMessage | UnreadableMessage | Person | None

log = logging.getLogger(__name__)


def find_token(config: Config) -> str | None:
    return config.gateway.telegram.token or config.keys.telegram


class TelegramChannel:
    """Channel to a bot: fetches its messages for the responder, and sends the replies."""

    pushes = True
    limit: int | None = LIMIT

    def __init__(self, config: Config, timing: ResponderTiming | None = None) -> None:
        token = find_token(config)
        if not token:
            raise ConfigError("There is no Telegram token.", hint="Set gateway.telegram.token or TELEGRAM_BOT_TOKEN.")
        self._settings = config.gateway.telegram
        self._agent_id = config.agent_id
        self.debounce_ms = config.gateway.auto_responder.debounce_ms
        self.allowed = Allowed.of(self._settings.allow_users)
        if not self.allowed:
            raise ConfigError(
                "gateway.telegram.allow_users is empty: the bot would answer no one.",
                hint="List the numeric ids of the people that it answers.",
            )
        self._timing = timing or ResponderTiming()
        self._damaged = os.path.join(config.paths.folder, "telegram")
        self._bot = make_bot(
            token,
            self._settings.base_url,
            poll_timeout_s=self._settings.poll_timeout_s,
            on_unreadable=self._set_aside,
        )
        self._me = Person(0, "")
        self._text_only_sent: set[int] = set()
        """Chats that were sent TEXT_ONLY: a series of pictures is answered once."""

    # receiving

    async def connect(self) -> str:
        """Return the name of the bot. Wait for the network; raise ChannelUnavailable if the token is wrong."""
        from telegram.error import InvalidToken, TelegramError

        backoff = self._timing.backoff()
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
                await asyncio.sleep(backoff.next_s())

    async def serve(self, responder: ResponderFront) -> None:
        """Hand messages to the responder until cancelled."""
        from telegram.error import Conflict, InvalidToken, RetryAfter

        offset: int | None = None
        backoff = self._timing.backoff()
        while True:
            try:
                updates = await self._bot.get_updates(
                    offset=offset, timeout=self._settings.poll_timeout_s, allowed_updates=["message", "callback_query"]
                )
            except InvalidToken as exc:
                raise ChannelUnavailable("Telegram does not accept this token any more.") from exc
            except RetryAfter as exc:
                await asyncio.sleep(_seconds(exc))
                continue
            except Exception as exc:  # noqa: BLE001 - the library may raise anything for an update that it cannot read
                if isinstance(exc, Conflict):
                    log.warning("telegram: another program fetches messages with the same token; trying again")
                else:
                    log.warning("telegram: messages cannot be fetched (%s); trying again", type(exc).__name__)
                await asyncio.sleep(backoff.next_s())
                continue
            backoff.reset()
            for update in updates:
                await self._handle(responder, update)
                offset = update.update_id + 1

    def _read(self, update: telegram.Update) -> UpdateContent:
        if update.message is None:
            return None
        try:
            return read_message(update.message, me=self._me, agent_id=self._agent_id, allowed=self.allowed)
        except (AttributeError, TypeError, ValueError, LookupError):
            # Fields that the library does not check. The same update would fail again, so it is not fetched again.
            self._set_aside(update.to_json().encode("utf-8", "backslashreplace"))
            return None

    def _set_aside(self, update: bytes) -> None:
        """Keep an update that cannot be read in a file, so that the updates after it are answered."""
        try:
            beside = set_aside(self._damaged, [update])
        except KeptError as exc:
            log.warning("telegram: an update could not be read, nor kept (%s)", exc.message)
        else:
            log.warning("telegram: an update could not be read; it is kept in %s", beside)

    async def _handle(self, responder: ResponderFront, update: telegram.Update) -> None:
        if update.callback_query is not None:
            await self._read_press(responder, update.callback_query)
            return
        match self._read(update):
            case OverheardMessage(key, line) if line.timestamp:  # the library does not require one
                responder.add_group_line(key, line)
            case AddressedMessage(key, message):
                await self._accept(responder, key, message)
            case UnreadableMessage(to):
                await self._send_text_only(to)
            case Person(user_id):
                log.info("telegram: ignored user %s, who is not in gateway.telegram.allow_users", user_id)

    async def _accept(self, responder: ResponderFront, key: SessionKey, message: Inbound) -> None:
        while True:
            await responder.limits.wait_for_space(str(key))
            try:
                await responder.accept(key, message)
            except QueueFull:
                continue  # another channel was faster
            except MessageConflict:
                log.warning("telegram: a message came twice with different texts; the first is used")
            return

    async def _send_text_only(self, to: Mapping[str, Any]) -> None:
        """Send TEXT_ONLY, once per chat. It is not a reply: nothing depends on its arrival."""
        if to["chat"] in self._text_only_sent:
            return
        self._text_only_sent.add(to["chat"])
        try:
            await self._send(to["chat"], to["thread"], TEXT_ONLY)
        except Exception as exc:  # noqa: BLE001 - it must not stop the messages after it
            log.warning("telegram: could not answer that only text is read (%s)", type(exc).__name__)

    async def _read_press(self, responder: ResponderFront, query: telegram.CallbackQuery) -> None:
        try:
            await read_press(query, self.allowed, lambda name, allow, by: responder.decide(name, allow=allow, by=by))
        except Exception as exc:  # noqa: BLE001 - it must not stop the messages after it
            log.warning("telegram: a button could not be read (%s)", type(exc).__name__)

    async def close(self) -> None:
        await self._bot.shutdown()

    # sending

    def measure(self, text: str) -> int:
        return utf16_length(text)

    def address(self, user_id: str) -> Mapping[str, Any]:
        chat, _, thread = user_id.partition(":")
        try:
            number, topic = int(chat), int(thread) if thread else None
        except ValueError:
            raise ScheduleInvalid(f"telegram:{user_id} is not the number of a person or a group.") from None
        if number > 0 and number not in self.allowed.ids and not self.allowed.names:
            raise ScheduleInvalid(f"telegram:{number} is not in gateway.telegram.allow_users.")
        return {"chat": number, "thread": topic}

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
            if _certainly_not_sent(exc):
                raise NotSent(f"Telegram could not take it ({type(exc).__name__})") from exc
            raise

    async def _send(self, chat: int, thread: int | None, text: str) -> None:
        await self._bot.send_message(chat, text, message_thread_id=thread, read_timeout=_SEND_TIMEOUT_S)

    async def ask(self, to: Mapping[str, Any], asked: ApprovalAsked) -> None:
        chat = to.get("chat")
        if not isinstance(chat, int):
            raise DeliveryRefused("The message does not say which chat it came from.")
        await send_question(self._bot, chat, to.get("thread"), asked)

    async def show_typing(self, to: Mapping[str, Any]) -> None:
        from telegram.error import TelegramError

        chat = to.get("chat")
        if not isinstance(chat, int):
            return
        try:
            await self._bot.send_chat_action(chat, "typing", message_thread_id=to.get("thread"))
        except TelegramError as exc:
            log.debug("telegram: typing could not be shown (%s)", type(exc).__name__)


def _certainly_not_sent(error: Exception) -> bool:
    """Return True if a message was certainly not sent: there was no connection, or the Bot API answered that it failed.

    After a timeout, or an answer that a proxy made up, it may have been sent.
    """
    import httpx

    cause = error.__cause__
    return cause is None or isinstance(cause, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)


def _seconds(error: telegram.error.RetryAfter) -> float:
    after = error.retry_after
    seconds = after if isinstance(after, int | float) else after.total_seconds()
    return float(min(max(0, seconds), _LONGEST_RETRY_S))
