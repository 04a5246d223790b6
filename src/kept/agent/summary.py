"""The summary that stands for what leaves the context: the model's, or without one the sentences that matter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from kept.agent.asking import add_usage, ask, says_nothing, usage_fields
from kept.agent.equipment import AgentServices
from kept.agent.reading import read_in_pieces
from kept.context.fence import make_fence
from kept.context.talk import Piece
from kept.context.trim import shorten
from kept.context.view import LoggedMessage
from kept.errors import ModelError, ModelFailed
from kept.llm.base import ChatRequest, ModelUsage, Turn
from kept.prompts import get_prompt
from kept.values import frozen

_LONGEST = 2
"""A summary may be so many times as long as was asked for; behind that it is cut."""


@frozen
class ConversationSummary:
    text: str
    source: Literal["model", "extractive"]
    model: str | None = None
    reason: str | None = None
    """Why there was no model's summary."""
    usage: ModelUsage = ModelUsage()

    def metadata(self) -> dict[str, Any]:
        if self.source == "extractive":
            return {"reason": self.reason} if self.reason else {}
        return {"prompt": get_prompt("summary").label, "model": self.model, "usage": usage_fields(self.usage)}


async def summarise(
    equipment: AgentServices, path: str, earlier: str, leaving: Sequence[LoggedMessage], *, focus: str | None = None
) -> ConversationSummary:
    """Of what left before, as its summary says it, and of what leaves now. There always is one."""
    if not equipment.has_model:
        return extract(earlier, leaving, equipment.budget.summary, None)
    writer = _SummaryWriter(equipment, path, earlier, focus)
    try:
        await read_in_pieces(leaving, equipment.budget.window // 2, writer.read)
    except ModelError as exc:
        return extract(earlier, leaving, equipment.budget.summary, exc.message)
    limit = equipment.budget.summary * _LONGEST
    text = shorten(writer.text.strip(), limit, "the summary was longer than it may be")
    return ConversationSummary(text, "model", equipment.model.name, usage=writer.usage)


class _SummaryWriter:
    """Goes through the conversation piece by piece; each summary takes in the one before."""

    def __init__(self, equipment: AgentServices, path: str, earlier: str, focus: str | None) -> None:
        self.equipment = equipment
        self.path = path
        self.text = earlier
        self.focus = focus
        self.usage = ModelUsage()

    async def read(self, piece: Piece) -> None:
        fence = make_fence(self.equipment.secret, f"summary:{self.path}", [piece.text, self.text])
        blocks = [fence.block("summary", self.text, of="what came before")] if self.text.strip() else []
        blocks.append(fence.block("conversation", piece.text, source=self.path))
        budget = self.equipment.budget.summary
        focus = f"\n\nThe person asks for this in particular: {self.focus}" if self.focus else ""
        system = get_prompt("summary").fill(marker=fence.marker, budget=str(budget), focus=focus)
        turns = (Turn.of("user", "\n".join(blocks)),)
        answer = await ask(self.equipment, ChatRequest(system, turns, max_tokens=budget * _LONGEST, purpose="summary"))
        self.usage = add_usage(self.usage, answer.usage)
        if says_nothing(answer.text):
            raise ModelFailed("The model gave no summary.")
        self.text = answer.text


def extract(
    earlier: str, leaving: Sequence[LoggedMessage], budget_tokens: int, reason: str | None
) -> ConversationSummary:
    """The sentences that matter, as they were said, below what is known from before."""
    from kept.llm.extractive import SpokenLine as Sentence
    from kept.llm.extractive import summarise as pick

    talk = [
        Sentence(one.message.text, one.message.speaker or one.message.role, one.entry.timestamp, f"L{one.line}")
        for one in leaving
        if one.message.role in ("user", "assistant") and one.message.text.strip()
    ]
    before = shorten(earlier, budget_tokens // 2, "older extracts are in the transcript") if earlier else ""
    heading = "Extracts, picked without a model:"
    picked = pick(talk, budget_tokens // 2) or f"{len(leaving)} messages in which nothing stands out."
    text = "\n\n".join(filter(None, (before.removeprefix(heading).strip(), picked)))
    return ConversationSummary(f"{heading}\n\n{text}", "extractive", reason=reason)
