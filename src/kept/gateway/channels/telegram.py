"""Telegram: a bot that answers the people on a list, by long polling.

An update is confirmed to Telegram when its message is on disk, so an update that a crash lost is fetched again. While
the queue is full, nothing is fetched. A part that may have been sent is not sent again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import warnings
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kept.agent.events import ApprovalAsked
from kept.base.limits import is_count
from kept.base.remote_errors import ChannelUnavailable, DeliveryRefused, EndpointDown, NotSent
from kept.config import Config
from kept.errors import ConfigError, ScheduleInvalid
from kept.gateway.channel import ResponderTiming, Switchboard, split_reply, utf16_length
from kept.gateway.channels.chat_intake import (
    AddressedMessage,
    BotChannel,
    OverheardMessage,
    Person,
)
from kept.gateway.channels.telegram_messages import read_message, render_reply, visible_text
from kept.sessions.session_key import DEFAULT_ACCOUNT

if TYPE_CHECKING:
    import telegram


NAME = "telegram"
LIMIT = 4096
_POLL_TIMEOUT_S = 30
"""How long a request for messages stays open."""
_SEND_TIMEOUT_S = 30.0
_LONGEST_RETRY_S = 3_600.0
"""Longest wait that Telegram, or a proxy before it, can ask for."""

log = logging.getLogger(__name__)


def bot_tokens(config: Config) -> dict[str, str]:
    """Return the tokens of all bots, by the names of their accounts."""
    own = config.gateway.telegram.token or config.keys.find("telegram")
    return {**({DEFAULT_ACCOUNT: own} if own else {}), **config.gateway.telegram.accounts}


class TelegramChannel(BotChannel):
    name = NAME
    limit = LIMIT

    def __init__(
        self, config: Config, timing: ResponderTiming | None = None, *, account_id: str = DEFAULT_ACCOUNT
    ) -> None:
        token = bot_tokens(config).get(account_id)
        if not token:
            raise ConfigError("There is no Telegram token.", hint="Set gateway.telegram.token or TELEGRAM_BOT_TOKEN.")
        self._settings = config.gateway.telegram
        super().__init__(config, self._settings, timing)
        self._account_id = account_id
        self._bot = make_bot(token, self._settings.base_url)

    # receiving

    async def sign_in(self) -> Person:
        from telegram.error import InvalidToken, TelegramError

        try:
            await self._bot.initialize()
        except InvalidToken as exc:
            raise ChannelUnavailable(
                "Telegram does not know this token.", hint="Check gateway.telegram.token or TELEGRAM_BOT_TOKEN."
            ) from exc
        except TelegramError as exc:
            raise EndpointDown(type(exc).__name__) from exc
        return Person(self._bot.id, self._bot.username)

    async def serve(self, front: Switchboard) -> None:
        from telegram.error import Conflict, InvalidToken, RetryAfter

        offset: int | None = None
        backoff = self._timing.backoff()
        while True:
            try:
                updates = await self._bot.get_updates(
                    offset=offset, timeout=_POLL_TIMEOUT_S, allowed_updates=["message", "callback_query"]
                )
            except InvalidToken as exc:
                raise ChannelUnavailable("Telegram no longer accepts this token.") from exc
            except RetryAfter as exc:
                await asyncio.sleep(_seconds(exc))
                continue
            except Exception as exc:  # noqa: BLE001 - the library may raise anything for an update that it cannot read
                reason = (
                    "another program fetches messages with the same token"
                    if isinstance(exc, Conflict)
                    else type(exc).__name__
                )
                log.warning("telegram: messages cannot be fetched (%s); trying again", reason)
                await asyncio.sleep(backoff.next_s())
                continue
            backoff.reset()
            for update in updates:
                if update.callback_query is not None:
                    await self._decide(front, update.callback_query)
                await self.take(front, self._read(update))
                offset = update.update_id + 1

    def _read(self, update: telegram.Update) -> AddressedMessage | OverheardMessage | Person | None:
        if update.message is None:
            return None
        try:
            return read_message(update.message, me=self._me, allowed=self.allowed, account_id=self._account_id)
        except (AttributeError, TypeError, ValueError, LookupError):
            # Fields that the library does not check. The same update would fail again, so it is not fetched again.
            log.warning("telegram: update %d could not be read, and is left out", update.update_id)
            return None

    async def ask(self, to: Mapping[str, Any], asked: ApprovalAsked) -> None:
        """Ask with two buttons, too."""
        from telegram import InlineKeyboardButton, InlineKeyboardMarkup

        await super().ask(to, asked)
        buttons = [InlineKeyboardButton(word, callback_data=f"{word}:{asked.id}") for word in ("Allow", "Deny")]
        markup = InlineKeyboardMarkup([buttons])
        await self._bot.send_message(to["chat"], asked.tool, message_thread_id=to.get("thread"), reply_markup=markup)

    async def _decide(self, front: Switchboard, pressed: telegram.CallbackQuery) -> None:
        """Take in that a button was pressed, and replace the buttons by the decision. In a group anybody can press one,
        but only the people that the bot answers decide."""
        from telegram.error import TelegramError

        word, _, approval_id = (pressed.data or "").partition(":")
        person, allow = pressed.from_user, word == "Allow"
        if person not in self.allowed:
            remark = "You cannot decide this."
        elif front.decide(approval_id, allow=allow, by=f"telegram:{person.id}"):
            remark = "Allowed." if allow else "Not allowed."
        else:
            remark = "It was decided already, or nobody answered in time."
        try:
            await pressed.answer(remark)
            if person in self.allowed:
                await pressed.edit_message_text(remark)
        except TelegramError as exc:
            log.warning("telegram: a decision could not be shown (%s)", type(exc).__name__)

    async def fetch(self, source: str) -> bytes:
        file = await self._bot.get_file(source)
        return bytes(await file.download_as_bytearray())

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
        if number > 0:
            self.require_allowed(number)
        return {"chat": number, "thread": topic}

    async def send(self, to: Mapping[str, Any], text: str) -> None:
        import httpx
        from telegram.error import ChatMigrated, NetworkError

        chat = to.get("chat")
        if not isinstance(chat, int):
            raise DeliveryRefused("The message does not say which chat it came from.")

        send = partial(self._bot.send_message, chat, message_thread_id=to.get("thread"), read_timeout=_SEND_TIMEOUT_S)
        try:
            await _in_best_form(text, send)
        except ChatMigrated as exc:
            await self.send({**to, "chat": exc.new_chat_id}, text)
        except NetworkError as exc:
            # Certainly not sent, if there was no connection or the Bot API answered that it failed. After a timeout, or
            # an answer that a proxy made up, it may have been sent.
            if isinstance(exc.__cause__, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | None):
                raise NotSent(f"Telegram could not take it ({type(exc).__name__})") from exc
            raise

    async def show_progress(self, to: Mapping[str, Any], text: str) -> None:
        """Show that an answer is being written, and to a person the draft of it. Telegram removes a draft by itself."""
        from telegram.error import TelegramError

        chat, thread = to.get("chat"), to.get("thread")
        if not isinstance(chat, int):
            return
        try:
            if chat > 0 and text.strip():
                draft = partial(self._bot.send_message_draft, chat, to.get("message") or 1, message_thread_id=thread)
                await _in_best_form(split_reply(text, self)[-1], draft)
            else:
                await self._bot.send_chat_action(chat, "typing", message_thread_id=thread)
        except NotSent as exc:
            await asyncio.sleep(exc.retry_after_s or 0.0)
        except (DeliveryRefused, TelegramError) as exc:
            log.debug("telegram: progress could not be shown (%s)", type(exc).__name__)


async def _in_best_form(text: str, call: Callable[..., Awaitable[Any]]) -> None:
    """Call the Bot API with formatted text. If it does not take that, call it with the text as it is.

    Raise NotSent or DeliveryRefused for what the Bot API has refused for certain.
    """
    from telegram.error import BadRequest, Forbidden, InvalidToken, RetryAfter

    try:
        rendered = render_reply(text)
        if rendered is not None and utf16_length(visible_text(rendered)) <= LIMIT:
            try:
                await call(text=rendered, parse_mode="HTML")
                return
            except BadRequest as exc:
                log.debug("telegram: sent as plain text (%s)", type(exc).__name__)
        await call(text=text)
    except RetryAfter as exc:
        raise NotSent("Telegram asks to wait", retry_after_s=_seconds(exc)) from exc
    except (BadRequest, Forbidden, InvalidToken) as exc:
        raise DeliveryRefused(f"Telegram refused it ({type(exc).__name__}).") from exc


def _seconds(error: telegram.error.RetryAfter) -> float:
    after = error.retry_after
    seconds = after if isinstance(after, int | float) else after.total_seconds()
    return float(min(max(0, seconds), _LONGEST_RETRY_S))


# the library's bot, with its own reading of answers: a bad update stops nothing, and no token gets into a log


def make_bot(token: str, base_url: str | None) -> telegram.Bot:
    try:
        import telegram
        from telegram.request import HTTPXRequest
        from telegram.warnings import PTBDeprecationWarning
    except ImportError as exc:
        raise ChannelUnavailable(
            "The Telegram channel needs python-telegram-bot.", hint="pip install 'kept[telegram]'"
        ) from exc
    # The library warns that `retry_after` will change its type. Both types are read here.
    warnings.filterwarnings("ignore", message=".*retry_after", category=PTBDeprecationWarning)

    class SafeRequest(HTTPXRequest):
        @staticmethod
        def parse_json_payload(payload: bytes) -> dict[str, Any]:
            answer = read_answer(payload)
            if isinstance(answer.get("result"), list):  # of updates, which nothing else returns
                answer["result"] = readable_updates(answer["result"])
            return answer

    polling = SafeRequest(connection_pool_size=1, read_timeout=_POLL_TIMEOUT_S + 10)
    sending = SafeRequest(connection_pool_size=16, pool_timeout=30)
    if base_url is None:
        return telegram.Bot(token, request=sending, get_updates_request=polling)
    base, files = base_url.rstrip("/") + "/bot", base_url.rstrip("/") + "/file/bot"
    return telegram.Bot(token, base_url=base, base_file_url=files, request=sending, get_updates_request=polling)


def read_answer(payload: bytes) -> dict[str, Any]:
    """Return an answer of the Bot API.

    The library logs answers that are not JSON. The page of a proxy may repeat the URL, which has the token in it.
    """
    from telegram.error import TelegramError

    try:
        answer = json.loads(payload.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise TelegramError("The answer is not from the Bot API.")
    return answer


def readable_updates(updates: list[Any]) -> list[dict[str, Any]]:
    """Return updates that the library can read. Reduce any other to its number, so that it is confirmed."""
    import telegram
    from telegram.error import TelegramError

    numbered = [update for update in updates if isinstance(update, dict) and is_count(update.get("update_id"))]
    if updates and not numbered:
        # Unconfirmed, they would be fetched again at once, for ever. The error makes the caller back off.
        raise TelegramError("None of the updates has a number.")
    readable: list[dict[str, Any]] = []
    for update in numbered:
        try:
            telegram.Update.de_json(update, None)
        except Exception as exc:  # noqa: BLE001 - the library does not validate, so it may raise anything
            number = update["update_id"]
            log.warning("telegram: the library cannot read update %d (%s)", number, type(exc).__name__)
            readable.append({"update_id": number})
        else:
            readable.append(update)
    return readable
