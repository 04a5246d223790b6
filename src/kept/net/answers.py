"""Reads replies that are not the answer: errors, redirects, requests to wait."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

from kept.errors import ConfigError, Overloaded, QuotaExhausted, RemoteError, RequestRefused
from kept.limits import printable_line
from kept.net.endpoint import parse_endpoint
from kept.net.retry import LONGEST_RETRY_AFTER_S
from kept.values import frozen

CONTEXT_OVERFLOW = re.compile(
    r"prompt (?:is )?too long|context.{0,3}(?:length|window|size|limit)|maximum (?:context|model length)"
    r"|too long to fit|request_too_large|max_tokens must be at least 1, got -|input token count|inputs?`? tokens \+"
    r"|reduce the length of|tokens must be reduced|too large for model",
    re.IGNORECASE,
)
"""Wordings of Anthropic, OpenAI, Ollama, llama.cpp, vLLM and others for "longer than the model's context"."""

_TOO_LARGE = re.compile(
    CONTEXT_OVERFLOW.pattern
    + r"|max_tokens_per_request|too many tokens|token limit|tokens? per (?:request|batch)|max.{0,30}tokens|exceeds the"
    r"|tokens.{0,30}exceed|too (?:large|long)|request size|batch size",
    re.IGNORECASE,
)
"""Adds the limits of a batch of texts. Only for embeddings: a chat model also complains about `max_tokens`."""

_BAD_KEY = re.compile(r"api.?key.{0,20}(not valid|invalid|expired|not found)|API_KEY_INVALID", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)
_RETRY_INFO = re.compile(rb'"retryDelay"\s*:\s*"([0-9.]+)s"')

REDIRECTS = (301, 302, 303, 307, 308)


@frozen
class HttpReply:
    status: int
    headers: Mapping[str, str]
    body: bytes


def is_file_redirect(reply: HttpReply) -> bool:
    """Return whether a reply redirects to an address that a file may be fetched from: HTTPS, or this machine."""
    if reply.status not in REDIRECTS:
        return False
    try:
        endpoint = parse_endpoint(reply.headers.get("location", ""))
    except ConfigError:
        return False
    return endpoint.is_loopback or endpoint.origin.startswith("https:")


def classify_failure(reply: HttpReply, message: str, *, detail: str) -> RemoteError:
    """Return the error that a reply with a failure status means. ``detail`` is the service's message."""
    status = reply.status
    if status == 402 or b"insufficient_quota" in reply.body or _is_daily_quota(reply):
        return QuotaExhausted(message, status=status, detail=detail)
    if status == 413 or (status in (400, 422, 500) and _TOO_LARGE.search(detail)):
        return RequestRefused(message, status=413, detail=detail)
    if status in (401, 403) or (status == 400 and _BAD_KEY.search(detail)):
        return RequestRefused(message, status=401, detail=detail)
    if status in (408, 425, 429) or status >= 500:
        return Overloaded(message, hint="Try again later; nothing is lost.")
    return RequestRefused(message, status=status, detail=detail)


def _is_daily_quota(reply: HttpReply) -> bool:
    """Tell Gemini's daily quota from its quota per minute: both are 429, but only the latter is worth a retry."""
    return reply.status == 429 and b"PerDay" in reply.body


def retry_after_s(reply: HttpReply, *, now: float) -> float | None:
    """Return the pause that a service asks for, in seconds, or None."""
    wait = reply.headers.get("retry-after", "").strip()
    retry_info = _RETRY_INFO.search(reply.body)
    if not wait and retry_info:
        wait = retry_info.group(1).decode()
    try:
        wait_s = float(wait)
    except ValueError:
        try:
            wait_s = parsedate_to_datetime(wait).timestamp() - now
        except (ValueError, TypeError, OverflowError):
            return None
    is_nan = wait_s != wait_s
    return None if is_nan else min(max(0.0, wait_s), LONGEST_RETRY_AFTER_S)


def summarise(reply: HttpReply) -> str:
    """Return the content of a reply in one line: the message of an error, the title of a web page."""
    text = reply.body.decode("utf-8", "replace").strip()
    try:
        summary = _message_in(json.loads(text))
    except (ValueError, RecursionError):
        summary = text
        if text.startswith("<") or "<html" in text[:1000].lower():
            title = _TITLE.search(text)
            summary = f"a web page, '{printable_line(title.group(1))}'" if title else "a web page"
    return printable_line(summary) or _phrase(reply.status)


def _message_in(tree: Any) -> str:
    """Return the text of an error. Providers use different keys for it."""
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
