"""Key of a conversation: agent:{agentId}:{channel}:{accountId}:{chatType}:{userId}."""

from __future__ import annotations

import re
from dataclasses import astuple, dataclass

from kept.errors import SessionKeyInvalid, UsageError

DEFAULT_ACCOUNT = "default"
DEFAULT_CHAT_TYPE = "direct"
GROUP = "group"
UNKNOWN_USER = "unknown"

SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""Ids of sessions: each is part of the name of a transcript."""
_PREFIX = "agent"
_PARTS = 6
# A colon separates parts and '%' starts an escape. Control characters cannot be shown, half surrogates not stored.
_ESCAPED = re.compile(r"[%:\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_ESCAPE = re.compile(r"%([0-9A-F]{2}|u[0-9A-F]{4})")


@dataclass(frozen=True, slots=True, order=True)  # not `@frozen`, which has neither `order` nor `__post_init__`
class SessionKey:
    """Identity of a conversation. Every reset starts another session under the same key."""

    agent_id: str
    channel: str
    account_id: str
    chat_type: str
    user_id: str

    def __post_init__(self) -> None:
        if not all(astuple(self)):
            raise SessionKeyInvalid("No part of a session's key can be empty.")

    @classmethod
    def parse_full(cls, text: str) -> SessionKey:
        """Parse a key in full, as transcripts have it. Raise SessionKeyInvalid for anything else."""
        parts = text.split(":")
        if parts[0] != _PREFIX or len(parts) != _PARTS:
            raise SessionKeyInvalid(f"'{text}' is not the full key of a session.")
        return cls(*map(_unescape, parts[1:]))

    def __str__(self) -> str:
        return ":".join((_PREFIX, *map(escape_part, astuple(self))))


def find_key(text: str) -> SessionKey | None:
    """Return a full key, or None for any other text: the first line of a transcript, which has the key, may be lost."""
    try:
        return SessionKey.parse_full(text)
    except SessionKeyInvalid:
        return None


def parse_key(text: str, *, agent_id: str) -> SessionKey:
    """Parse what a person typed: a full key, which begins with 'agent:', or an account, {channel}:{userId} or
    {channel}:group:{id}, whose chat with the agent is meant.

    Everything else in an account is an id, taken as it is. Keys in files are full: use `SessionKey.parse_full`.
    """
    channel, colon, user_id = text.partition(":")
    if channel == _PREFIX and colon:
        return SessionKey.parse_full(text)
    if not colon:
        raise SessionKeyInvalid(f"'{text}' is not the key of a session.")
    kind, _, group_id = user_id.partition(":")
    is_group = kind == GROUP and bool(group_id)
    chat_type, chat_id = (GROUP, group_id) if is_group else (DEFAULT_CHAT_TYPE, user_id)
    return SessionKey(agent_id, _unescape(channel), DEFAULT_ACCOUNT, chat_type, chat_id)


def escape_part(part: str) -> str:
    """Return a part of a key as the key has it."""
    return _ESCAPED.sub(_escape, part)


def _escape(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"%{number:02X}" if number < 0x100 else f"%u{number:04X}"


def _unescape(part: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1].lstrip("u"), 16)), part)


def require_id(session_id: str) -> None:
    """Raise UsageError for a text that cannot be the id of a session."""
    if not SESSION_ID.fullmatch(session_id):
        hint = "Use up to 128 letters, digits, '-', '_' and '.', starting with a letter or digit."
        raise UsageError(f"'{session_id}' cannot be the id of a session.", hint=hint)
