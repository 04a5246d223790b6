"""Whose conversation it is: agent:{agentId}:{channel}:{accountId}:{chatType}:{userId}."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kept.errors import SessionKeyInvalid

DEFAULT_ACCOUNT = "default"
DEFAULT_CHAT_TYPE = "direct"

_PREFIX = "agent"
# Colons part the parts and '%' begins an escape; line breaks and other control characters could not be shown.
_ESCAPED = re.compile(r"[%:\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_ESCAPE = re.compile(r"%([0-9A-F]{2}|u[0-9A-F]{4})")


@dataclass(frozen=True, slots=True, order=True)
class SessionKey:
    agent_id: str
    channel: str
    account_id: str
    chat_type: str
    user_id: str

    def __post_init__(self) -> None:
        if not all((self.agent_id, self.channel, self.account_id, self.chat_type, self.user_id)):
            raise SessionKeyInvalid("No part of a session's key can be empty.")

    def __str__(self) -> str:
        parts = (self.agent_id, self.channel, self.account_id, self.chat_type, self.user_id)
        return ":".join((_PREFIX, *map(_escape, parts)))


def parse_key(text: str, *, agent_id: str) -> SessionKey:
    """A key in full, or the short {channel}:{userId}, which is expanded for the agent.

    In the short form the user's id is everything after the first colon, as it came.
    """
    parts = text.split(":")
    if parts[0] == _PREFIX and len(parts) == 6:
        return SessionKey(*map(_unescape, parts[1:]))
    channel, colon, user_id = text.partition(":")
    if not colon:
        raise SessionKeyInvalid(f"'{text}' is not the key of a session.")
    return SessionKey(agent_id, _unescape(channel), DEFAULT_ACCOUNT, DEFAULT_CHAT_TYPE, user_id)


def _escape(part: str) -> str:
    return _ESCAPED.sub(_escaped, part)


def _escaped(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"%{number:02X}" if number < 0x100 else f"%u{number:04X}"


def _unescape(part: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1].lstrip("u"), 16)), part)
