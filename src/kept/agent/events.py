"""Input and output of an agent's turn. Channels and the responder know the agent only by these."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from kept.values import frozen

if TYPE_CHECKING:
    from kept.agent.session_models import SessionModels


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
    """Tool call that waits for a person's decision: `Agent.decide`. Without one in time, it counts as denied."""

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


class AnsweringAgent(Protocol):
    """Interface of an agent for the responder."""

    def respond(
        self,
        session_id: str,
        messages: Sequence[Inbound],
        *,
        group: Sequence[GroupLine] = (),
        withdraw: Callable[[], bool] = ...,
    ) -> AsyncGenerator[AgentEvent, None]:
        """Answer messages of one conversation in a single turn.

        The messages are in the transcript, with their ids, before the model is called. Called again with the same ids
        after a crash, it resumes: a reply that is in the transcript is returned without calling the model.
        """
        ...

    async def compact(self, session_id: str, *, instructions: str | None = None) -> CompactionResult: ...

    async def stop(self, session_id: str, message_ids: Sequence[str]) -> None:
        """Record that messages are no longer to be answered."""
        ...

    async def flush_ended(self, session_id: str) -> None:
        """Write down what is new in a session that has ended."""
        ...

    @property
    def models(self) -> SessionModels:
        """Models and thinking levels that a session may choose."""
        ...

    def decide(self, approval_id: str, *, allow: bool, by: str) -> bool:
        """Decide about a tool call that waits. Return False if it no longer waits."""
        ...

    def waiting_approvals(self, session_id: str | None = None) -> list[ApprovalAsked]:
        """Return the calls that wait for a decision, oldest first."""
        ...

    async def close(self) -> None:
        """End what the agent has started, such as MCP servers."""
        ...
