"""The library's bot, with answers read in a way that one bad update cannot stop and that puts no token into a log."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kept.errors import ChannelUnavailable
from kept.limits import is_count

if TYPE_CHECKING:
    import telegram

OnUnreadable = Callable[[bytes], None]
"""Called with an update, as JSON, that the library cannot read."""


def make_bot(token: str, base_url: str | None, *, poll_timeout_s: int, on_unreadable: OnUnreadable) -> telegram.Bot:
    try:
        import telegram
        from telegram.request import HTTPXRequest
        from telegram.warnings import PTBDeprecationWarning
    except ImportError as exc:
        raise ChannelUnavailable(
            "The Telegram channel needs python-telegram-bot.", hint="pip install 'kept[telegram]'"
        ) from exc
    # Its own errors warn about themselves: the time to wait will be of another type one day, and both are read here.
    warnings.filterwarnings("ignore", message=".*retry_after", category=PTBDeprecationWarning)

    class Sending(HTTPXRequest):
        @staticmethod
        def parse_json_payload(payload: bytes) -> dict[str, Any]:
            return read_answer(payload)

    class Polling(HTTPXRequest):
        @staticmethod
        def parse_json_payload(payload: bytes) -> dict[str, Any]:
            answer = read_answer(payload)
            if isinstance(answer.get("result"), list):
                answer["result"] = readable_updates(answer["result"], on_unreadable)
            return answer

    polling = Polling(connection_pool_size=1, read_timeout=poll_timeout_s + 10)
    sending = Sending(connection_pool_size=16, pool_timeout=30)
    if base_url is None:
        return telegram.Bot(token, request=sending, get_updates_request=polling)
    base = base_url.rstrip("/") + "/bot"
    return telegram.Bot(token, base_url=base, request=sending, get_updates_request=polling)


def read_answer(payload: bytes) -> dict[str, Any]:
    """Return an answer of the Bot API. The library would log one that is not JSON, and a proxy's page may repeat the
    address that was asked for, which has the token in it."""
    from telegram.error import TelegramError

    try:
        answer = json.loads(payload.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise TelegramError("The answer is not one of the Bot API.")
    return answer


def readable_updates(updates: list[Any], on_unreadable: OnUnreadable) -> list[dict[str, Any]]:
    """Return updates that the library can read. Of any other only the number is left, which confirms it."""
    from telegram.error import TelegramError

    numbered = [one for one in updates if isinstance(one, dict) and is_count(one.get("update_id"))]
    if updates and not numbered:
        raise TelegramError("Not one of the updates has a number.")  # they would come again at once, and for ever
    readable: list[dict[str, Any]] = []
    for update in updates:
        if update not in numbered:
            on_unreadable(json.dumps(update).encode())
        elif _can_be_read(update):
            readable.append(update)
        else:
            on_unreadable(json.dumps(update).encode())
            readable.append({"update_id": update["update_id"]})
    return readable


def _can_be_read(update: dict[str, Any]) -> bool:
    import telegram

    try:
        telegram.Update.de_json(update, None)
    except Exception:  # noqa: BLE001 - the library checks nothing, so whatever it trips over
        return False
    return True
