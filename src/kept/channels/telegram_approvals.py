"""Questions with buttons in Telegram: whether a tool may be called."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from kept.agent.approvals import describe_approval
from kept.agent.events import ApprovalAsked

if TYPE_CHECKING:
    import telegram

    from kept.channels.chat_intake import Allowed

_DATA = re.compile(r"(allow|deny):([0-9a-f]{8,64})")
_TOO_LATE = "It was decided already, or nobody answered in time."

Decide = Callable[[str, bool, str], bool]
"""Decides about a call, by its id: allow or not, and by whom. Returns False if it no longer waits."""

log = logging.getLogger(__name__)


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
