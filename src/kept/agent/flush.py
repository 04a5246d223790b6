"""A flush: before turns leave the context, what will still matter is written into today's note.

The model reads the turns as data and names facts. It has no other way to act: whatever it answers, the only thing that
happens is one append to the daily note, which takes the date when it is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

from kept.agent.asking import add_usage, ask, usage_fields
from kept.agent.equipment import AgentServices
from kept.agent.facts import Fact, fact_of_call, facts_in_text, new_facts
from kept.agent.reading import read_in_pieces
from kept.context.fence import Fence, make_fence
from kept.context.talk import Piece
from kept.context.view import ConversationView, LoggedMessage, flush_succeeded
from kept.errors import KeptError, ModelError
from kept.llm.base import ChatRequest, ModelUsage, ToolOutput, ToolSpec, ToolUse, Turn
from kept.prompts import get_prompt
from kept.sessions.entries import FLUSH, StateEntry
from kept.values import frozen

MAX_STEPS = 12
"""A model that writes one fact at a time is given so many times to do it."""
_WRITE_ATTEMPTS = 3
_EXTRACTED = 12
_TOOL = ToolSpec(
    "memory_write",
    "Write one fact into today's log.",
    {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "One sentence that can be understood by itself."},
            "lines": {"type": "string", "description": "The lines it comes from, such as L12-L14."},
        },
        "required": ["text"],
        "additionalProperties": False,
    },
)

Outcome = Literal["written", "nothing", "failed"]


@frozen
class FlushResult:
    outcome: Outcome
    through_line: int
    facts: int = 0
    duplicates: int = 0
    note: str | None = None
    """Where the facts now stand."""
    reason: str | None = None
    """Why it failed."""
    fallback: str | None = None
    """What took the place of the model."""
    model: str | None = None
    usage: ModelUsage = ModelUsage()

    def state(self) -> StateEntry:
        """As it is written down in the transcript."""
        given = {
            "note": self.note,
            "reason": self.reason,
            "fallback": self.fallback,
            "model": self.model,
            "usage": usage_fields(self.usage) if self.usage != ModelUsage() else None,
            "prompt": get_prompt("flush").label if self.model else None,
        }
        told: dict[str, Any] = {"outcome": self.outcome, "throughLine": self.through_line, "facts": self.facts}
        told |= {"duplicates": self.duplicates} if self.duplicates else {}
        return StateEntry(FLUSH, told | {name: value for name, value in given.items() if value is not None})


def is_due_early(view: ConversationView) -> bool:
    """Whether a flush is still to come before the next compaction. One attempt is made early, whatever comes of it."""
    return view.flush is None


def is_due(view: ConversationView) -> bool:
    """Whether there has to be one at the compaction itself: none has worked since the last."""
    return view.flush is None or not flush_succeeded(view.flush)


async def flush(
    equipment: AgentServices, path: str, said: Sequence[LoggedMessage], *, through_line: int
) -> FlushResult:
    """Writes down what matters of these messages. Never raises for what a model or a disk does: that is an outcome."""
    if not said:
        return FlushResult("nothing", through_line)
    reader = _FlushReader(equipment, path)
    failure: str | None = None
    fallback = None
    if equipment.has_model:
        try:
            await read_in_pieces(said, equipment.budget.window // 2, reader.read)
        except ModelError as exc:
            failure = exc.message
    if failure is not None or not equipment.has_model:
        fallback = "extractive"
        reader.facts += _extracted(said)
    try:
        fresh, note = await _write(equipment, path, reader.facts)
    except KeptError as exc:
        return FlushResult("failed", through_line, reason=exc.message, fallback=fallback)
    outcome: Outcome = "failed" if failure is not None else "written" if fresh else "nothing"
    return FlushResult(
        outcome,
        through_line,
        facts=len(fresh),
        duplicates=len(reader.facts) - len(fresh),
        note=note,
        reason=failure,
        fallback=fallback,
        model=equipment.model.name if equipment.has_model else None,
        usage=reader.usage,
    )


class _FlushReader:
    """Asks the model piece by piece. What it has named stays named, should a later piece fail."""

    def __init__(self, equipment: AgentServices, path: str) -> None:
        self.equipment = equipment
        self.path = path
        self.facts: list[Fact] = []
        self.usage = ModelUsage()

    async def read(self, piece: Piece) -> None:
        fence = make_fence(self.equipment.secret, f"flush:{self.path}", [piece.text])
        turns = [Turn.of("user", fence.block("conversation", piece.text, source=self.path))]
        found: list[Fact] = []
        for _ in range(MAX_STEPS):
            answer = await ask(self.equipment, self._request(fence, turns))
            self.usage = add_usage(self.usage, answer.usage)
            if not answer.uses:
                # Behind calls, a text only says that they were made.
                found += [] if found else facts_in_text(answer.text, piece)
                break
            found += [fact for use in answer.uses if (fact := fact_of_call(use, piece))]
            turns += [Turn("assistant", answer.uses), Turn("user", tuple(map(_output, answer.uses)))]
        self.facts += found

    def _request(self, fence: Fence, turns: Sequence[Turn]) -> ChatRequest:
        now = self.equipment.clock.now()
        system = get_prompt("flush").fill(marker=fence.marker, date=f"{now:%A}, {now:%Y-%m-%d}")
        tools = (_TOOL,) if self.equipment.model.runs_tools else ()
        return ChatRequest(system, tuple(turns), tools, purpose="flush")


def _output(use: ToolUse) -> ToolOutput:
    if use.name != "memory_write":
        return ToolOutput(use.id, "There is only memory_write here.", is_error=True)
    if not isinstance(use.arguments.get("text"), str):
        return ToolOutput(use.id, "It wants a text.", is_error=True)
    return ToolOutput(use.id, "Noted.")


def _extracted(said: Sequence[LoggedMessage]) -> list[Fact]:
    from kept.llm.extractive import SpokenLine as Sentence
    from kept.llm.extractive import salient_facts

    talk = [
        Sentence(one.message.text, one.message.speaker or one.message.role, one.entry.timestamp, str(one.line))
        for one in said
        if one.message.role in ("user", "assistant") and one.message.text.strip()
    ]
    return [
        Fact(f"{fact.speaker}: {fact.text}", int(fact.source), int(fact.source))
        for fact in salient_facts(talk, limit=_EXTRACTED)
    ]


async def _write(equipment: AgentServices, path: str, facts: Sequence[Fact]) -> tuple[list[Fact], str | None]:
    """What was new, and where it now stands. A lock that is held or a full disk is tried again."""
    fresh = await asyncio.to_thread(new_facts, equipment.memory, facts)
    if not fresh:
        return [], None
    text = "\n".join(fact.stand(path) for fact in fresh)
    wait_s = equipment.retry_wait_s
    for attempt in range(_WRITE_ATTEMPTS):
        try:
            written = await asyncio.to_thread(equipment.memory.add, text, by_tool=True)
            return fresh, written.citation
        except KeptError as exc:
            if not exc.retryable or attempt + 1 == _WRITE_ATTEMPTS:
                raise
        await asyncio.sleep(wait_s)
        wait_s *= 2
    raise AssertionError("at least one attempt is made")
