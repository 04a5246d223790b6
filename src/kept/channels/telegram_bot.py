"""The library's bot, with its own reading of answers: a bad update stops nothing, and no token gets into a log."""

from __future__ import annotations

import json
import logging
import re
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kept.agent.approvals import describe_approval
from kept.agent.events import ApprovalAsked
from kept.limits import is_count
from kept.remote_errors import ChannelUnavailable

if TYPE_CHECKING:
    import telegram

    from kept.channels.chat_intake import Allowed

log = logging.getLogger(__name__)

OnUnreadable = Callable[[bytes], None]
"""Receives the JSON of an update that the library cannot read."""


POLL_TIMEOUT_S = 30
"""How long a request for messages stays open."""


def make_bot(token: str, base_url: str | None, *, on_unreadable: OnUnreadable) -> telegram.Bot:
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

    class SendingRequest(HTTPXRequest):
        @staticmethod
        def parse_json_payload(payload: bytes) -> dict[str, Any]:
            return read_answer(payload)

    class PollingRequest(HTTPXRequest):
        @staticmethod
        def parse_json_payload(payload: bytes) -> dict[str, Any]:
            answer = read_answer(payload)
            if isinstance(answer.get("result"), list):
                answer["result"] = readable_updates(answer["result"], on_unreadable)
            return answer

    polling = PollingRequest(connection_pool_size=1, read_timeout=POLL_TIMEOUT_S + 10)
    sending = SendingRequest(connection_pool_size=16, pool_timeout=30)
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


def readable_updates(updates: list[Any], on_unreadable: OnUnreadable) -> list[dict[str, Any]]:
    """Return updates that the library can read. Reduce any other to its number, so that it is confirmed."""
    from telegram.error import TelegramError

    numbered = [update for update in updates if isinstance(update, dict) and is_count(update.get("update_id"))]
    if updates and not numbered:
        # Unconfirmed, they would be fetched again at once, for ever. The error makes the caller back off.
        raise TelegramError("None of the updates has a number.")
    readable: list[dict[str, Any]] = []
    for update in updates:
        if update not in numbered:
            on_unreadable(json.dumps(update).encode())
        elif _is_readable(update):
            readable.append(update)
        else:
            on_unreadable(json.dumps(update).encode())
            readable.append({"update_id": update["update_id"]})
    return readable


def _is_readable(update: dict[str, Any]) -> bool:
    import telegram

    try:
        telegram.Update.de_json(update, None)
    except Exception as exc:  # noqa: BLE001 - the library does not validate, so it may raise anything
        log.warning("telegram: the library cannot read an update (%s)", type(exc).__name__)
        return False
    return True


_DATA = re.compile(r"(allow|deny):([0-9a-f]{8,64})")
_TOO_LATE = "It was decided already, or nobody answered in time."

Decide = Callable[[str, bool, str], bool]
"""Decides about a call, by its id: allow or not, and by whom. Returns False if it no longer waits."""


async def send_question(bot: telegram.Bot, chat: int, thread: int | None, asked: ApprovalAsked) -> None:
    """Send a question with two buttons. /approve and /deny work too."""
    from telegram import InlineKeyboardButton, InlineKeyboardMarkup

    buttons = [
        InlineKeyboardButton("Allow", callback_data=f"allow:{asked.id}"),
        InlineKeyboardButton("Deny", callback_data=f"deny:{asked.id}"),
    ]
    await bot.send_message(
        chat, describe_approval(asked), message_thread_id=thread, reply_markup=InlineKeyboardMarkup([buttons])
    )


async def read_press(query: telegram.CallbackQuery, allowed: Allowed, decide: Decide) -> None:
    """Take in that a button was pressed, and replace the buttons by the decision.

    In a group anybody can press a button: only the people that the bot answers decide.
    """
    from telegram.error import TelegramError

    match = _DATA.fullmatch(query.data or "")
    if match is None or query.from_user not in allowed:
        await query.answer("You cannot decide this.")
        return
    allow = match[1] == "allow"
    is_decided = decide(match[2], allow, f"telegram:{query.from_user.id}")
    remark = ("Allowed." if allow else "Not allowed.") if is_decided else _TOO_LATE
    try:
        await query.answer(remark)
        text = getattr(query.message, "text", None)
        if text:
            await query.edit_message_text(f"{text}\n\n{remark}")
    except TelegramError as exc:
        log.debug("telegram: a decision could not be shown (%s)", type(exc).__name__)
