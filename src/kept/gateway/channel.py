"""Channels: how a message comes from one to the agent that answers it, and how the parts of the reply go back.

One gateway serves several agents. Every agent has its own inbox, queues and sessions, and the switchboard hands each
message to the agent that the routes name.

Before a part is sent, the inbox records that it is about to be. If the process is killed between that record and the
one that follows it, the part may have arrived: it is not sent again, and a warning is logged.

A reply is split into parts that a channel takes: between paragraphs, else lines, else words, else characters. A code
block that is split is closed in one part and opened again in the next, so that every part renders correctly.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kept.agent.events import ApprovalAsked, Inbound, Reply, describe_approval
from kept.base.clock import Backoff
from kept.base.grants import Grant
from kept.base.remote_errors import (
    BudgetExhausted,
    ContextOverflow,
    DeliveryRefused,
    MessageConflict,
    ModelError,
    ModelRefused,
    NotSent,
)
from kept.base.values import frozen
from kept.config.gateway_settings import RouteSettings
from kept.errors import AgentNotFound, KeptError
from kept.gateway.dispatcher import act_of
from kept.gateway.inbox import AcceptedMessage, AnswerRun
from kept.sessions.people import account_of
from kept.sessions.session_key import DEFAULT_ACCOUNT, SessionKey

if TYPE_CHECKING:
    from kept.gateway.responder import Responder

_MAX_QUESTION_PARTS = 4

log = logging.getLogger(__name__)


@frozen
class ResponderTiming:
    first_retry_s: float = 1.0
    longest_retry_s: float = 60.0
    progress_s: float = 2.0
    """Interval at which a channel shows that an answer is being written."""
    max_attempts: int = 25
    """Attempts at one answer, across restarts: a message that crashes the process every time is given up."""

    def backoff(self) -> Backoff:
        return Backoff(self.first_retry_s, self.longest_retry_s)


def channel_name(key: SessionKey) -> str:
    """Return the name of the channel of a chat, among several accounts of the gateway on it: telegram/shop."""
    return key.channel if key.account_id == DEFAULT_ACCOUNT else f"{key.channel}/{key.account_id}"


ANY_AGENT = "*"
"""Agent in the key of a chat that is not routed yet."""


class Switchboard:
    """Routes one set of channels to the responders of several agents."""

    def __init__(self, responders: Mapping[str, Responder], routes: Iterable[RouteSettings], *, default: str) -> None:
        self.responders = responders
        self._routes = tuple(routes)
        self._default = default

    def route(self, key: SessionKey, agent: str | None = None) -> SessionKey:
        """Return a key with the agent of its chat, or with the one that a client names."""
        if agent is not None and agent not in self.responders:
            names = ", ".join(self.responders)
            raise AgentNotFound(f"This gateway does not serve an agent '{agent}'.", hint=f"It serves: {names}.")
        account = account_of(key) if self._routes else None
        chats = (None, key.user_id, account.name if account else None)  # with its topic, and without
        fitting = (
            route.agent
            for route in self._routes  # the first that fits decides
            if route.channel in (None, key.channel) and route.account in (None, key.account_id) and route.chat in chats
        )
        return replace(key, agent_id=agent or next(fitting, self._default))

    async def accept(self, key: SessionKey, message: Inbound, grant: Grant | None = None) -> AcceptedMessage:
        """Accept a message for the agent of its key. Message ids are unique per channel, across agents. Raise
        ScopeMissing if the token of the sender does not allow what the message does; ``grant`` is None for a sender
        who needs no token."""
        if grant is not None:
            grant.require(act_of(message))
        others = (responder for agent, responder in self.responders.items() if agent != key.agent_id)
        if any(responder.inbox.find(key.channel, message.id) for responder in others):
            raise MessageConflict(f"Another agent has a message with the id '{message.id}'.")
        return await self.responders[key.agent_id].accept(key, message)

    def find_chat(self, approval_id: str) -> SessionKey | None:
        """Return the key of the chat in which a call of a tool waits for a person, or None."""
        return next((key for each in self.responders.values() if (key := each.find_chat(approval_id))), None)

    def decide(self, approval_id: str, *, allow: bool, by: str) -> bool:
        return any(each.approvals.decide(approval_id, allow=allow, by=by) for each in self.responders.values())

    def holder(self, channel: str, message_id: str) -> Responder:
        """Return the responder that has accepted a message; that of the default agent if there is none."""
        holders = (each for each in self.responders.values() if each.inbox.find(channel, message_id))
        return next(holders, self.responders[self._default])


class Channel:
    """Transport of messages and replies. This one sends nothing: its clients fetch their replies."""

    pushes = False
    """True if replies have to be sent. Otherwise clients fetch them, any number of times."""
    limit: int | None = None
    """Largest length of a part, as ``measure`` counts it."""

    def __init__(self, *, debounce_ms: int = 0) -> None:
        self.debounce_ms = debounce_ms

    def measure(self, text: str) -> int:
        return len(text)

    def address(self, user_id: str) -> Mapping[str, Any]:
        """Return what `send` needs to write first to the user or chat of a session key.

        Raise ScheduleInvalid if the channel cannot do that.
        """
        return {}

    async def send(self, to: Mapping[str, Any], text: str) -> None:
        """Send one part. ``to`` is the metadata of the message that is answered.

        Raise NotSent if the part was certainly not sent, DeliveryRefused if it never will be. After any other error
        the part may have arrived, and it is not sent again.
        """
        raise NotImplementedError

    async def ask(self, to: Mapping[str, Any], asked: ApprovalAsked) -> None:
        """Ask a person whether a tool may be called. They answer with a command.

        Raise DeliveryRefused if nobody would read all parts of the question: the call is denied.
        """
        minutes = max(1, round(asked.timeout_s / 60))
        # Markdown in an argument could hide a part of it, so the arguments are in a code block that they cannot end.
        question = describe_approval(asked).replace("`", "\\u0060")
        answers = f"/approve allows it, /deny does not. After {minutes} min it counts as denied."
        parts = split_reply(f"```\n{question}\n```\n\n{answers}", self)
        if len(parts) > _MAX_QUESTION_PARTS:
            raise DeliveryRefused("The call has too many arguments to be shown.")
        for part in parts:
            await self.send(to, part)

    async def show_progress(self, to: Mapping[str, Any], text: str) -> None:
        """Show for a few seconds that an answer is being written, and ``text`` of it if the channel can. Never
        raise."""


ChangeRun = Callable[..., Awaitable[AnswerRun]]
"""`Inbox.change`, called until it is on disk."""


async def deliver(
    run: AnswerRun, channel: Channel, to: Mapping[str, Any], change: ChangeRun, timing: ResponderTiming
) -> AnswerRun:
    """Send the parts of a reply that are not settled. Retry a part for as long as it was certainly not sent."""
    if run.sending:
        run = await _give_up(run, change, "the program ended while it was being sent")
    backoff = timing.backoff()
    while not run.finished:
        run = await change(run, sending=True)
        try:
            await channel.send(to, (run.parts or ())[run.settled])
        except NotSent as exc:
            run = await change(run, sending=False)
            log.warning("%s: a reply could not be sent yet (%s)", run.channel, exc.message)
            await asyncio.sleep(backoff.next_s() if exc.retry_after_s is None else exc.retry_after_s)
        except DeliveryRefused as exc:
            run = await _give_up(run, change, exc.message)
        except Exception as exc:  # noqa: BLE001 - a channel's library may raise anything, and the part may have left
            run = await _give_up(run, change, f"{type(exc).__name__} while it was being sent")
        else:
            run = await change(run, sending=False, settled=run.settled + 1)
            backoff.reset()
    return run


async def _give_up(run: AnswerRun, change: ChangeRun, reason: str) -> AnswerRun:
    log.warning("%s: part %d of a reply is not sent again: %s", run.channel, run.settled + 1, reason)
    return await change(run, sending=False, settled=run.settled + 1, unconfirmed=run.unconfirmed + 1)


# splitting a reply

MAX_PARTS = 25
"""A model that does not come to an end must not flood a chat. The conversation has the whole reply."""
TOO_LONG = "[… The rest of this reply is too long to be sent. The conversation has all of it.]"

Measure = Callable[[str], int]

_FENCE = re.compile(r"\s*(`{3,}|~{3,})([^`]*)$")


def utf16_length(text: str) -> int:
    """Return the length in UTF-16 units, as Telegram counts: characters beyond the basic plane (most emoji) are two."""
    return len(text) + sum(char > "\uffff" for char in text)


def split_reply(text: str, channel: Channel) -> list[str]:
    """Return the parts of a reply. None is blank or longer than the channel takes; only blank space is left out."""
    limit, measure, text = channel.limit, channel.measure, text.strip("\n")
    if limit is None or measure(text) <= limit:
        return [text] if text.strip() else []
    parts: list[list[str]] = []
    lines: list[str] = []
    paragraph = 0  # index of the line with which the last paragraph begins
    opening = closing = ""  # fences of the code block that is open
    for line in text.split("\n"):
        fence = _FENCE.match(line)
        mark = line.strip()
        is_end = bool(opening) and len(mark) >= len(closing) and set(mark) == {closing[0]}
        is_opening = not opening and fence is not None and measure(line) <= limit // 3
        end = fence[1] if fence and is_opening else "" if is_end else closing
        room = limit - measure(opening) - len(closing) - 2 if opening else limit
        for piece in _cut(line, room, measure, at_words=not opening):
            while lines and measure("\n".join(filter(None, ("\n".join(lines), piece or " ", end)))) > limit:
                if paragraph:
                    parts.append(lines[:paragraph])
                    lines, paragraph = lines[paragraph:], 0
                else:
                    parts.append([*lines, closing])
                    lines = [opening] if opening else []
            lines.append(piece)
        if is_opening and fence:
            opening, closing = line, fence[1]
        elif is_end:
            opening = closing = ""
        elif not opening and not line.strip():
            paragraph = len(lines)
    texts = ("\n".join(part).strip("\n") for part in (*parts, lines))
    return [part for part in texts if part.strip()]


def _cut(line: str, limit: int, measure: Measure, *, at_words: bool) -> list[str]:
    pieces: list[str] = []
    while measure(line) > limit:
        end = limit
        while end > 1 and (over := measure(line[:end]) - limit) > 0:
            end -= (over + 1) // 2  # no character counts more than two
        end = max(1, end)  # so that cutting always ends
        space = line.rfind(" ", 1, end + 1) if at_words else -1
        if space > 0 and line[:space].strip():
            pieces.append(line[:space])
            line = line[space + 1 :]
        else:
            pieces.append(line[:end])
            line = line[end:]
    return [*pieces, line]


# what a person is told, and not told

_HEARTBEAT_OK = re.compile(r"\bHEARTBEAT_OK\b[.!]?")
_FAILURES: Mapping[type[KeptError], str] = {
    ContextOverflow: "This conversation is too long for the model. Start a new one with /new.",
    BudgetExhausted: "Today's budget for the model is used up. Try again tomorrow.",
    ModelRefused: "The model does not accept this conversation. Start a new one with /new.",
    ModelError: "The model cannot answer at the moment. Try again later.",
}


def explain_failure(error: KeptError) -> str:
    """Return what a person in a chat is told. Addresses, paths and settings are for the log alone."""
    return next((text for kind, text in _FAILURES.items() if isinstance(error, kind)), "That did not work.")


def quiet_heartbeat(reply: Reply, *, is_failure: bool) -> Reply:
    """Return a reply to a heartbeat as it is sent: nobody asked, so a failure is for the log alone.

    Checklists that were written for OpenClaw ask for HEARTBEAT_OK if there is nothing to say.
    """
    text = _HEARTBEAT_OK.sub("", reply.text)
    is_silent = reply.silent or is_failure or not text.strip(" \n*_`.!")
    return replace(reply, text="" if is_silent else text.strip(), silent=is_silent)
