"""Choose which old tool results are cut from the context. Pure.

Results are long and soon out of date. Cutting them makes room without a summary. Every cut changes the prefix of the
next request, which a provider has cached, so cuts are rare and large: the line up to which results are cut is recorded
in the transcript and moves only if that saves a good part of the window.
"""

from __future__ import annotations

from kept.context.compaction_plan import count_message_tokens
from kept.context.view import ConversationView
from kept.limits import estimate_tokens
from kept.sessions.entries import ToolResult
from kept.values import frozen

MIN_CUT_TOKENS = 100
"""Shorter results stay: the remark in their place would hardly be shorter."""


@frozen
class PruningPlan:
    through_line: int
    """Results up to this line of the transcript are cut."""
    saved_tokens: int


def plan_pruning(view: ConversationView, *, keep_tokens: int, min_saved_tokens: int) -> PruningPlan | None:
    """Return what to cut, or None if it is not worth it. The last ``keep_tokens`` of the conversation stay whole."""
    left, through_line, saved = keep_tokens, 0, 0
    for logged in reversed(view.messages):
        left -= count_message_tokens(logged.message)
        if left >= 0 or logged.line <= view.pruned_line:
            continue
        sizes = [estimate_tokens(block.text) for block in logged.message.content if isinstance(block, ToolResult)]
        cut = sum(size for size in sizes if size > MIN_CUT_TOKENS)
        if cut:
            through_line, saved = max(through_line, logged.line), saved + cut
    return PruningPlan(through_line, saved) if through_line and saved >= min_saved_tokens else None


def cut_remark(tokens: int, tool: str | None, place: str) -> str:
    """Return what a model reads instead of a result."""
    return f"[{tokens:,} tokens of {tool or 'a tool'} were cut here to make room; the full text is in {place}]"
