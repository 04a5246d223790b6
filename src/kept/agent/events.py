"""Input and output of an agent's turn."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any, Literal

from kept.base.values import frozen


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


@frozen
class CompactionResult:
    done: bool
    reason: str
    """Reason for the compaction, or for not compacting."""
    source: Literal["model", "extractive"] | None = None
    """Author of the summary."""
    tokens_before: int = 0
    tokens_after: int = 0
    flushed: Literal["written", "nothing", "failed", "off"] = "off"
