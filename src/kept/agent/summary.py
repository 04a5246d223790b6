"""Summary of the messages that leave the context: written by the model, or extracted if that fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from kept.agent.model_call import add_usage, ask, read_in_pieces, usage_fields
from kept.agent.no_reply import is_empty_answer
from kept.agent.services import AgentServices
from kept.context.compaction_plan import TranscriptPiece
from kept.context.context import shorten
from kept.context.fence import make_fence
from kept.context.view import LoggedMessage
from kept.errors import ModelError, ModelFailed
from kept.llm.base import ChatRequest, ModelUsage, Turn
from kept.prompts import get_prompt
from kept.values import frozen

_MAX_EXCESS = 2
"""A summary is cut if it is this many times as long as the prompt asks for."""
_EXTRACTS_HEADING = "Extracts, picked without a model:"


@frozen
class ConversationSummary:
    text: str
    source: Literal["model", "extractive"]
    model: str | None = None
    reason: str | None = None
    """Reason why the model wrote no summary."""
    usage: ModelUsage = ModelUsage()

    def metadata(self) -> dict[str, Any]:
        if self.source == "extractive":
            return {"reason": self.reason} if self.reason else {}
        return {"prompt": get_prompt("summary").label, "model": self.model, "usage": usage_fields(self.usage)}


async def summarise(
    services: AgentServices, path: str, earlier: str, removed: Sequence[LoggedMessage], *, focus: str | None = None
) -> ConversationSummary:
    """Return one summary of an earlier summary and the messages that leave the context now. Never fails."""
    budget = services.budget
    if not services.model.writes:
        return _extract(earlier, removed, budget.summary, None)
    writer = _SummaryWriter(services, path, earlier, focus)
    try:
        await read_in_pieces(removed, budget.window // 2, writer.read)
    except ModelError as exc:
        return _extract(earlier, removed, budget.summary, exc.message)
    text = shorten(writer.text.strip(), budget.summary * _MAX_EXCESS, "the summary was longer than it may be")
    return ConversationSummary(text, "model", services.model.name, usage=writer.usage)


class _SummaryWriter:
    """Summarises a conversation piece by piece. Each summary includes the one before."""

    def __init__(self, services: AgentServices, path: str, earlier: str, focus: str | None) -> None:
        self.services = services
        self.path = path
        self.text = earlier
        self.focus = focus
        self.usage = ModelUsage()

    async def read(self, piece: TranscriptPiece) -> None:
        fence = make_fence(self.services.secret, f"summary:{self.path}", [piece.text, self.text])
        blocks = [fence.block("summary", self.text, of="what came before")] if self.text.strip() else []
        blocks.append(fence.block("conversation", piece.text, source=self.path))
        budget = self.services.budget.summary
        focus = f"\n\nThe person asks for this in particular: {self.focus}" if self.focus else ""
        system = get_prompt("summary").fill(marker=fence.marker, budget=str(budget), focus=focus)
        turns = (Turn.of("user", "\n".join(blocks)),)
        request = ChatRequest(system, turns, max_tokens=budget * _MAX_EXCESS, purpose="summary")
        answer = await ask(self.services, request)
        self.usage = add_usage(self.usage, answer.usage)
        if is_empty_answer(answer.text):
            raise ModelFailed("The model gave no summary.")
        self.text = answer.text


def _extract(
    earlier: str, removed: Sequence[LoggedMessage], budget_tokens: int, reason: str | None
) -> ConversationSummary:
    """Return the most salient sentences verbatim, below the earlier summary."""
    from kept.llm.extractive import SpokenLine, extract_summary

    lines = [
        SpokenLine(message.text, message.speaker or message.role, logged.entry.timestamp, f"L{logged.line}")
        for logged in removed
        if (message := logged.message).role in ("user", "assistant") and message.text.strip()
    ]
    before = shorten(earlier, budget_tokens // 2, "older extracts are in the transcript") if earlier else ""
    extracts = extract_summary(lines, budget_tokens // 2) or f"{len(removed)} messages in which nothing stands out."
    text = "\n\n".join(filter(None, (before.removeprefix(_EXTRACTS_HEADING).strip(), extracts)))
    return ConversationSummary(f"{_EXTRACTS_HEADING}\n\n{text}", "extractive", reason=reason)
