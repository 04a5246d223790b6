"""Input and output of an agent's turn, and the tool calls in it that wait for a person's decision.

A call is recorded in the transcript before anybody is asked, and so is the decision. If the program ends in between,
the next turn finds a call that was asked about and not decided: it was not carried out, and counts as denied.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from kept.base.clock import new_id
from kept.base.values import frozen

if TYPE_CHECKING:
    from kept.models.base import ToolUse


@frozen
class Inbound:
    """Message as a channel received it."""

    id: str
    """Id in the channel. Messages with the same id are answered once, even after a crash."""
    text: str
    sender: str | None = None
    timestamp: dt.datetime | None = None
    metadata: Mapping[str, Any] | None = None


@frozen
class GroupLine:
    """Message in a group since the last reply that was not addressed to the agent."""

    sender: str
    text: str
    timestamp: dt.datetime


@frozen
class ReplyDelta:
    """Next piece of the reply."""

    text: str


@frozen
class ToolStarted:
    name: str
    arguments: Mapping[str, Any]


@frozen
class ToolEnded:
    name: str
    ok: bool


@frozen
class ApprovalAsked:
    """Tool call that waits for a person's decision: `Agent.approvals`. Without one in time, it counts as denied."""

    id: str
    session_id: str
    tool: str
    arguments: Mapping[str, Any]
    timeout_s: float


@frozen
class ApprovalDecided:
    id: str
    tool: str
    allowed: bool
    by: str
    """Who decided, such as telegram:5054; "nobody" if no one could be asked or no one answered."""
    timed_out: bool = False


@frozen
class Notice:
    """Information for the person that is not part of the reply, such as a compaction or a degraded recall."""

    text: str


@frozen
class Reply:
    """Last event. The reply is in the transcript before this is yielded."""

    text: str
    entry_id: str
    silent: bool = False
    """True if the model answered NO_REPLY: nothing is sent."""
    tokens_in: int = 0
    tokens_out: int = 0
    """Tokens of all calls to the model in this turn."""
    context: Mapping[str, Any] | None = None
    """Memories that were recalled, and the size of each part of the last request. None for a command."""


AgentEvent = ReplyDelta | ToolStarted | ToolEnded | ApprovalAsked | ApprovalDecided | Notice | Reply


Flushed = Literal["written", "nothing", "failed", "off"]


@frozen
class CompactionResult:
    done: bool
    reason: str
    """Reason for the compaction, or for not compacting."""
    source: str | None = None
    """Author of the summary: model or extractive."""
    tokens_before: int = 0
    tokens_after: int = 0
    flushed: Flushed = "off"


# approvals

NOBODY = "nobody"
"""Author of a decision that was made because nobody could be asked or nobody answered."""

_SHOWN_CHARS = 200
"""Characters of a value that a person is shown."""
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[^"\[\]{},:\s]+')
"""Text, number or word in JSON."""

UNDECIDED = "The program ended before anybody had allowed this call. It was not carried out."
ASK_TIMEOUT_S = 300.0
"""How long a call that needs permission waits for a person. Then it counts as denied."""


def denied_text(decided: ApprovalDecided) -> str:
    """Return the result of a call that was not allowed, for the model."""
    if decided.timed_out:
        return "Nobody allowed this call in time, which counts as no. It was not carried out."
    if decided.by == NOBODY:
        return "This call needs the permission of a person, and nobody can be asked here. It was not carried out."
    return "The person did not allow this call, so it was not carried out. Do not try it again unless they ask."


class ApprovalDesk:
    """Calls that wait for a decision, in this process. Used from the event loop only."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[ApprovalAsked, asyncio.Future[tuple[bool, str]]]] = {}

    def open(self, session_id: str, use: ToolUse) -> ApprovalAsked:
        """Add a call. The code that shows it to a person calls `decide` with its id."""
        asked = ApprovalAsked(new_id(), session_id, use.name, use.arguments, ASK_TIMEOUT_S)
        self._waiting[asked.id] = (asked, asyncio.get_running_loop().create_future())
        return asked

    async def wait(self, asked: ApprovalAsked) -> ApprovalDecided:
        """Return the decision. Without one in time, the call is denied."""
        _, decided = self._waiting[asked.id]
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                allowed, by = await decided
        except TimeoutError:
            return ApprovalDecided(asked.id, asked.tool, False, NOBODY, timed_out=True)
        return ApprovalDecided(asked.id, asked.tool, allowed, by)

    def drop(self, asked: ApprovalAsked) -> None:
        """Forget a call that no longer waits, because its turn was stopped for instance."""
        self._waiting.pop(asked.id, None)

    def decide(self, approval_id: str, *, allow: bool, by: str) -> bool:
        """Decide about a call. Return False if it does not wait: it was decided, it timed out, or it never was."""
        _, decided = self._waiting.get(approval_id, (None, None))
        if decided is None or decided.done():
            return False
        decided.set_result((allow, by))
        return True

    def waiting(self, session_id: str | None = None) -> list[ApprovalAsked]:
        """Return the calls that wait, oldest first."""
        return [
            asked
            for asked, decided in self._waiting.values()
            if not decided.done() and session_id in (None, asked.session_id)
        ]


def approval_json(asked: ApprovalAsked) -> dict[str, Any]:
    return {"id": asked.id, "tool": asked.tool, "arguments": dict(asked.arguments), "timeoutS": asked.timeout_s}


def describe_approval(asked: ApprovalAsked) -> str:
    """Return the question for a person, on one line. It has every argument: only long values are cut, each by itself,
    so that none can push another out of sight. What cannot be seen, such as a change of direction, is spelled out."""
    arguments = _TOKEN.sub(_cut, json.dumps(dict(asked.arguments), ensure_ascii=False, default=str))
    visible = "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in arguments)
    return f"The agent wants to call {asked.tool} with {visible}"


def _cut(token: re.Match[str]) -> str:
    text: str = token[0]
    if len(text) <= _SHOWN_CHARS:
        return text
    value = json.loads(text) if text.startswith('"') else text
    shown = json.dumps(value[:_SHOWN_CHARS], ensure_ascii=False)[1:-1]
    return f'"{shown}…" ({len(value):,} characters)'
