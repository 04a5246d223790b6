"""Tool calls that wait for a person's decision.

A call is recorded in the transcript before anybody is asked, and so is the decision. If the program ends in between,
the next turn finds a call that was asked about and not decided: it was not carried out, and counts as denied.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from kept.agent.context.view import APPROVAL, ASKED
from kept.agent.events import ApprovalAsked, ApprovalDecided
from kept.base.clock import new_id
from kept.models.base import ToolUse
from kept.sessions.entries import StateEntry

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


def asked_state(use: ToolUse) -> StateEntry:
    """Return the entry that records that a person is asked about a call."""
    return StateEntry(APPROVAL, {"call": use.id, "tool": use.name, "decision": ASKED})


def decided_state(use: ToolUse, decided: ApprovalDecided) -> StateEntry:
    """Return the entry that records a decision."""
    word = "allowed" if decided.allowed else "timeout" if decided.timed_out else "denied"
    return StateEntry(APPROVAL, {"call": use.id, "tool": use.name, "decision": word, "by": decided.by})


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
        finally:
            self.drop(asked)
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
