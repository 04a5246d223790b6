"""What goes into an agent's turn and what comes out of it. Channels and the responder know the agent by this alone."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal, Protocol

from kept.values import frozen


@frozen
class Inbound:
    """A message as a channel received it."""

    id: str
    """The channel's own id of it. The same id is answered once, whatever crashed in between."""
    text: str
    sender: str | None = None
    timestamp: dt.datetime | None = None
    metadata: Mapping[str, Any] | None = None


@frozen
class GroupLine:
    """Something said in a group since the last reply, to which nobody wants an answer."""

    sender: str
    text: str
    timestamp: dt.datetime


@frozen
class ReplyDelta:
    """More of the reply."""

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
class Notice:
    """Something that the person should know and the model did not say: a compaction, a degraded recall."""

    text: str


@frozen
class Reply:
    """The last event. It stands in the transcript when this is given out."""

    text: str
    entry_id: str
    silent: bool = False
    """The model had nothing to say (NO_REPLY): nothing is sent."""


AgentEvent = ReplyDelta | ToolStarted | ToolEnded | Notice | Reply


@frozen
class CompactionResult:
    """What a compaction did. ``source`` says who wrote the summary."""

    done: bool
    reason: str
    """Why it was done, or why there was nothing to do."""
    source: Literal["model", "extractive"] | None = None
    tokens_before: int = 0
    tokens_after: int = 0
    flushed: Literal["written", "nothing", "failed", "off"] = "off"


class AnsweringAgent(Protocol):
    """An agent, as those who bring it messages see it."""

    def respond(
        self, session_id: str, messages: Sequence[Inbound], *, group: Sequence[GroupLine] = ()
    ) -> AsyncIterator[AgentEvent]:
        """Answers messages of one conversation, which are one turn. They are in the transcript, with their ids, before
        the model is asked. Asked again with the same ids after a crash, it goes on where it broke off: a reply that is
        in the transcript is given out as it is, without asking the model."""
        ...

    async def compact(self, session_id: str, *, instructions: str | None = None) -> CompactionResult: ...
