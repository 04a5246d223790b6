"""What a compaction would take out of the context and what it would leave. Plans only. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kept.context.turns import turn_text
from kept.context.view import ConversationView, LoggedMessage
from kept.llm.base import Part, TextPart, ToolOutput, ToolUse, Turn
from kept.sessions.entries import Message, Text, ToolCall, ToolResult
from kept.tokens import estimate_tokens
from kept.values import frozen


@frozen
class CompactionPlan:
    leaving: tuple[LoggedMessage, ...]
    kept: tuple[LoggedMessage, ...]
    first_kept_id: str | None
    tokens_before: int
    """Of the summary so far and all messages."""
    tokens_kept: int
    open_question: str | None
    """What the person asked, where the cut goes through the answer to it."""

    @property
    def last_line(self) -> int:
        return self.leaving[-1].line


@frozen
class NothingToCompact:
    reason: str


def plan_compaction(
    view: ConversationView, *, keep_tokens: int, message_tokens: int
) -> CompactionPlan | NothingToCompact:
    """The oldest messages leave, as many as it takes for the rest to fit into ``keep_tokens``.

    A call of a tool is never parted from its result. A turn is parted only where it is too long by itself.
    """
    said = view.said
    sizes = [min(weight_of(one.message), message_tokens) for one in said]
    places = safe_cuts(said)
    fits_from = _first_fitting(sizes, keep_tokens)
    cut = _choose(said, places, fits_from)
    if cut is None or cut == 0:
        return NothingToCompact("there is nothing old enough to be summarised")
    return CompactionPlan(
        leaving=said[:cut],
        kept=said[cut:],
        first_kept_id=said[cut].id if cut < len(said) else None,
        tokens_before=estimate_tokens(view.summary) + sum(sizes),
        tokens_kept=sum(sizes[cut:]),
        open_question=_open_question(said, cut),
    )


def weight_of(message: Message) -> int:
    parts: list[Part] = []
    for block in message.content:
        match block:
            case Text(text):
                parts.append(TextPart(text))
            case ToolCall(call_id, name, arguments):
                parts.append(ToolUse(call_id, name, arguments))
            case ToolResult(call_id=call_id, text=text):
                parts.append(ToolOutput(call_id, text))
    return estimate_tokens(turn_text(Turn("user", tuple(parts))))


def safe_cuts(said: Sequence[LoggedMessage]) -> list[int]:
    """Places between two messages over which no tool call reaches to its result."""
    results: dict[str, list[int]] = {}
    for place, one in enumerate(said):
        for block in one.message.content:
            if isinstance(block, ToolResult):
                results.setdefault(block.call_id, []).append(place)
    cuts, reach = [], 0
    for place, one in enumerate(said):
        if reach <= place:
            cuts.append(place)
        for block in one.message.content:
            if isinstance(block, ToolCall):
                # Ids come again in some transcripts: what answers a call is the first result behind it.
                behind = (at for at in results.get(block.id, ()) if at >= place)
                reach = max(reach, next(behind, place) + 1)
    return cuts


def _first_fitting(sizes: Sequence[int], keep_tokens: int) -> int:
    """From which message on the rest fits."""
    left = keep_tokens
    for place in range(len(sizes) - 1, -1, -1):
        left -= sizes[place]
        if left < 0:
            return place + 1
    return 0


def _choose(said: Sequence[LoggedMessage], places: Sequence[int], fits_from: int) -> int | None:
    """Before a question, if there is one from there on; else, within a turn that is too long, before an answer."""
    questions = [place for place in places if _asks(said, place) and place >= fits_from]
    if questions:
        return questions[0]
    last_question = max((place for place in places if _asks(said, place)), default=0)
    within = [place for place in places if place >= fits_from and said[place].message.role == "assistant"]
    if within:
        return within[0]
    return last_question or None


def _asks(said: Sequence[LoggedMessage], place: int) -> bool:
    message = said[place].message
    return message.role == "user" and not (place and said[place - 1].message.role == "user")


def _open_question(said: Sequence[LoggedMessage], cut: int) -> str | None:
    if cut >= len(said) or said[cut].message.role == "user":
        return None
    asked = [one.message for one in said[:cut] if one.message.role == "user" and one.message.text.strip()]
    if not asked:
        return None
    return f"{asked[-1].speaker}: {asked[-1].text}" if asked[-1].forwarded_from else asked[-1].text
