"""People and groups behind conversations: whose a conversation is, and what somebody in it may see.

A person is known by accounts, such as telegram:5054. ``session.identity_links`` gives a name to several of them. What a
conversation says is for the person or the group that it is with. Conversations of the home itself, in the terminal or
imported from programs on this machine, are for its owner.

Everything follows from the key of a conversation and the settings, so a change of the settings holds at once, also for
what was said before.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace

from kept.base.values import frozen
from kept.base.visibility import KeyPattern, Viewer
from kept.config import Config
from kept.config.schema import SessionSettings
from kept.errors import UsageError
from kept.sessions.session_key import (
    DEFAULT_ACCOUNT,
    DEFAULT_CHAT_TYPE,
    GROUP,
    SessionKey,
    escape_part,
    find_key,
    parse_key,
)

HOME_CHANNELS = frozenset(
    {
        "terminal",
        "cli",
        "python",
        "claude-code",
        "codex",
        "pi",
        "chatgpt",
        "claude-ai",
        "openclaw",
        "opencode",
        "schedule",
    }
)
"""Channels on this machine, and programs that conversations are imported from. They are the owner's."""
PEOPLE_CHANNEL = "people"
"""Channel in the key of a conversation that all accounts of a person share."""
SHARED_CHANNEL, EVERYBODY = "shared", "everybody"
"""Channel and user in the key of the conversation that everybody shares."""
NO_OWNER = (
    "Nobody is the owner: what a person says is noted in memory/private/NAME, for that person alone. To name the owner:"
    " kept config set session.owner telegram:5054"
)
THREAD = "thread"
"""Type of a chat that is one of several with the same person. Its user's id is PERSON:THREAD, see `thread_id`."""
_GROUPS = (GROUP, "channel")
_PRIVATE = (DEFAULT_CHAT_TYPE, THREAD)
_PLAIN = r"[a-z0-9_-][a-z0-9._-]{0,63}"
_NOBODY = "nobody"


@frozen
class Account:
    """A person or a group on one channel."""

    channel: str
    name: str
    is_group: bool = False

    def __str__(self) -> str:
        return f"{self.channel}:group:{self.name}" if self.is_group else f"{self.channel}:{self.name}"

    @property
    def folder(self) -> str:
        """Name of a folder for its notes. Different accounts have different ones, also where case does not count."""
        place = f"{self.channel}-group" if self.is_group else self.channel
        if re.fullmatch(_PLAIN, self.name) and re.fullmatch(_PLAIN, place):
            return f"{self.name}@{place}"
        digest = hashlib.sha256(str(self).encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return f"{_plain_text(self.name)}~{digest}@{_plain_text(place)}"


def thread_id(person: str, thread: str) -> str:
    """Return the user's id in the key of a chat that is one of several with a person."""
    return f"{person.replace('%', '%25').replace(':', '%3A')}:{thread}"


def private_chat(agent_id: str, channel: str, user: str | None, conversation: str | None) -> SessionKey:
    """Return the key of a private chat that a client names by its user, by a conversation, or by both.

    A conversation of a user is one of several with that person, whatever others call theirs. One without a user is
    nobody else's.
    """
    if user is not None and conversation not in (None, user):
        return SessionKey(agent_id, channel, DEFAULT_ACCOUNT, THREAD, thread_id(user, conversation or ""))
    return SessionKey(agent_id, channel, DEFAULT_ACCOUNT, DEFAULT_CHAT_TYPE, user or conversation or "")


def account_of(key: SessionKey) -> Account | None:
    """Return the person or group that a conversation is with, or None for one of the home itself."""
    if key.channel in HOME_CHANNELS:
        return None
    if key.chat_type in _GROUPS:
        return Account(key.channel, _without_topic(key), is_group=True)
    if key.chat_type == THREAD:
        return Account(key.channel, key.user_id.partition(":")[0].replace("%3A", ":").replace("%25", "%"))
    return Account(key.channel, _without_topic(key)) if key.chat_type in _PRIVATE else None


class People:
    """People of one agent, by its settings."""

    def __init__(self, config: Config) -> None:
        self.agent_id = config.agent_id
        self.settings: SessionSettings = config.agent.session
        links = self.settings.identity_links.items()
        self._linked = {read_account(account): name for name, listed in links for account in listed}
        owner = self.settings.owner
        self._owner = read_account(owner) if ":" in owner else None if owner in ("auto", "none") else owner.lower()

    def name_of(self, account: Account) -> str:
        """Return the name of the person behind an account, or else the account."""
        if account.channel == PEOPLE_CHANNEL and account.name in self.settings.identity_links:
            return account.name
        return self._linked.get(account, str(account))

    def session_key(self, key: SessionKey) -> SessionKey:
        """Return the key of the conversation that a message belongs to, which was sent in the chat of another key."""
        if self.settings.scope != "shared" and not self._linked:
            return key
        account = account_of(key)
        if account is None or account.is_group or key.chat_type != DEFAULT_CHAT_TYPE:
            return key
        if self.settings.scope == "shared":
            return SessionKey(self.agent_id, SHARED_CHANNEL, DEFAULT_ACCOUNT, DEFAULT_CHAT_TYPE, EVERYBODY)
        name = self._linked.get(account)
        if self.settings.scope == "per_person" and name is not None:
            return SessionKey(self.agent_id, PEOPLE_CHANNEL, DEFAULT_ACCOUNT, DEFAULT_CHAT_TYPE, name)
        return key

    def viewer_of(self, key: str) -> Viewer | None:
        """Return who may see what is said in a conversation. None for one of the home, which sees everything."""
        full = find_key(key)
        if full is None:
            return Viewer(_NOBODY, _NOBODY)
        account = account_of(full)
        return None if account is None else self.viewer(account)

    def viewer(self, account: Account, *, may_own: bool = True) -> Viewer:
        """Return the viewer behind an account, with all other accounts of the same person. It is the owner if the
        settings say so, unless ``may_own`` is False."""
        name = self.name_of(account)
        others = [read_account(text) for text in self.settings.identity_links.get(name, ())]
        accounts = [account, *others, *([Account(PEOPLE_CHANNEL, name)] if others else [])]
        is_shared = account.channel == SHARED_CHANNEL
        folders = {*({name} if others else ()), *(known.folder for known in accounts)}
        viewer = Viewer(
            name,
            name if others else account.folder,
            frozenset(folders),
            (*(pattern for known in accounts for pattern in self._patterns(known)), self._all_on(SHARED_CHANNEL)),
            writes_shared=is_shared,
        )
        is_owner = self._owner == name or self._owner in accounts
        return self.as_owner(viewer) if is_owner and may_own and not account.is_group else viewer

    def as_owner(self, viewer: Viewer) -> Viewer:
        """Return a viewer that also sees the conversations of the home, and whose notes are the shared ones."""
        home = (self._all_on(channel) for channel in sorted(HOME_CHANNELS))
        keys, folders = (*viewer.keys, *home), viewer.folders | {""}
        return replace(viewer, keys=keys, folders=folders, is_owner=True, writes_shared=True)

    def find(self, reference: str, *, may_own: bool = True) -> Viewer:
        """Return a viewer by the name of a person, an account (telegram:5054) or the full key of a conversation.

        A name has no colon, and a key begins with 'agent:', so one is never taken for another.
        """
        if ":" not in reference:
            if accounts := self.settings.identity_links.get(reference.strip().lower()):
                return self.viewer(read_account(accounts[0]), may_own=may_own)
            names = ", ".join(sorted(self.settings.identity_links))
            raise UsageError(
                f"There is no person '{reference}' in session.identity_links.",
                hint=f"There are: {names}." if names else "Name an account, such as telegram:5054.",
            )
        key = parse_key(reference, agent_id=self.agent_id)
        if key.agent_id != self.agent_id:
            raise UsageError(f"'{reference}' is a conversation of another agent.", hint="Name that agent: --agent.")
        account = account_of(key)
        if account is None:
            raise UsageError(f"'{reference}' is a conversation of this machine.", hint="Leave the person out.")
        return self.viewer(account, may_own=may_own)

    def _patterns(self, account: Account) -> Iterator[KeyPattern]:
        start = f"agent:{escape_part(self.agent_id)}:{escape_part(account.channel)}:"
        name = escape_part(account.name)
        for chat_type in _GROUPS if account.is_group else (DEFAULT_CHAT_TYPE,):
            yield KeyPattern(start, end=f":{chat_type}:{name}")
            if _has_topics(account.channel, account.name):
                yield KeyPattern(start, inside=f":{chat_type}:{name}{escape_part(':')}")
        if not account.is_group:
            yield KeyPattern(start, inside=f":{THREAD}:{escape_part(thread_id(account.name, ''))}")

    def _all_on(self, channel: str) -> KeyPattern:
        return KeyPattern(f"agent:{escape_part(self.agent_id)}:{channel}:")


def read_account(text: str) -> Account:
    """Return the account in a text such as telegram:5054, or telegram:group:-1005 for a group."""
    key = parse_key(text, agent_id=_NOBODY)
    return Account(key.channel, key.user_id, is_group=key.chat_type == GROUP)


def find_account(key: str) -> Account | None:
    """Return the person or group of a conversation by its key, or None for one of the home or without a key."""
    full = find_key(key)
    return account_of(full) if full else None


def _without_topic(key: SessionKey) -> str:
    """Return the id of a chat without the topic in it: what is said in one topic is for the whole chat."""
    name = key.user_id.partition(":")[0]
    return name if _has_topics(key.channel, name) else key.user_id


def _has_topics(channel: str, name: str) -> bool:
    """Return whether an id may be followed by a topic. On other channels, a colon may be part of the id itself."""
    return channel == "telegram" and name.lstrip("-").isdigit()


def _plain_text(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower())[:32].strip("-") or "x"
