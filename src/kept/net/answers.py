"""Reading what a service answers when it does not answer what was asked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

from kept.errors import ConfigError
from kept.net.endpoint import parse_endpoint
from kept.net.text import one_line
from kept.net.timing import LONGEST_RETRY_AFTER_S
from kept.values import frozen

TOO_LARGE = re.compile(
    r"context.{0,3}(length|size|window)|max_tokens_per_request|too many tokens|token limit|tokens? per (request|batch)"
    r"|max.{0,30}tokens|exceeds the|tokens.{0,30}exceed|too (large|long)|request size|batch size",
    re.IGNORECASE,
)
BAD_KEY = re.compile(r"api.?key.{0,20}(not valid|invalid|expired|not found)|API_KEY_INVALID", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)
_RETRY_INFO = re.compile(rb'"retryDelay"\s*:\s*"([0-9.]+)s"')


REDIRECTS = (301, 302, 303, 307, 308)


@frozen
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes


def leads_elsewhere(reply: Reply) -> bool:
    if reply.status not in REDIRECTS:
        return False
    try:
        place = parse_endpoint(reply.headers.get("location", ""))
    except ConfigError:
        return False
    return place.is_loopback or place.origin.startswith("https:")


def is_daily_quota(reply: Reply) -> bool:
    """Gemini answers 429 to both: the minute's quota comes back in a minute, the day's does not."""
    return reply.status == 429 and b"PerDay" in reply.body


def asked_to_wait_s(reply: Reply, *, now: float) -> float | None:
    given = reply.headers.get("retry-after", "").strip()
    found = _RETRY_INFO.search(reply.body)
    if not given and found:
        given = found.group(1).decode()
    try:
        wait_s = float(given)
    except ValueError:
        try:
            wait_s = parsedate_to_datetime(given).timestamp() - now
        except (ValueError, TypeError, OverflowError):
            return None
    return min(max(0.0, wait_s), LONGEST_RETRY_AFTER_S) if wait_s == wait_s else None


def summary(reply: Reply) -> str:
    """What an answer says, in one short line: the message of an error, the title of a web page."""
    text = reply.body.decode("utf-8", "replace").strip()
    try:
        said = _message_in(json.loads(text))
    except (ValueError, RecursionError):
        said = text
        if text.startswith("<") or "<html" in text[:1000].lower():
            title = _TITLE.search(text)
            said = f"a web page, '{one_line(title.group(1))}'" if title else "a web page"
    return one_line(said) or _phrase(reply.status)


def _message_in(tree: Any) -> str:
    """The services agree on a name for the text of an error as little as on anything else."""
    if isinstance(tree, list) and tree:
        return _message_in(tree[0])
    if not isinstance(tree, dict):
        return tree if isinstance(tree, str) else ""
    for name in ("error", "detail", "message", "msg"):
        if tree.get(name):
            return _message_in(tree[name])
    return ""


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "no reason given"


def after_tries(attempt: int) -> str:
    return f" after {attempt} tries" if attempt > 1 else ""
