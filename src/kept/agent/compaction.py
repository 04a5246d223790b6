"""A compaction: older turns leave the context, a summary stands for them, and nothing is lost.

    plan → checkpoint with receipt → flush, unless there was one → summary → an entry that is added to the transcript

Of several processes that want to compact one session, one does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from kept.agent.checkpoint import make_checkpoint
from kept.agent.equipment import AgentServices
from kept.agent.events import CompactionResult
from kept.agent.flush import FlushResult, flush, is_due
from kept.agent.journal import SessionLog
from kept.agent.summary import ConversationSummary, summarise
from kept.context.compact import CompactionPlan as Plan
from kept.context.compact import NothingToCompact, plan_compaction
from kept.context.trim import shorten
from kept.context.view import ConversationView, LoggedMessage
from kept.lock import claimed
from kept.sessions.entries import CompactionEntry
from kept.tokens import estimate_tokens
from kept.values import frozen

CLAIM_ENDING = ".compacting"
_LEAST_GAIN = 10
"""One that saves less than a tenth is not worth a summary, and would soon be wanted again."""

Why = Literal["threshold", "overflow", "asked for"]


@frozen
class CompactionRequest:
    """What is wanted of a compaction."""

    why: Why
    fixed_tokens: int = 0
    """What of the context it cannot make less."""
    squeeze: int = 0
    """How many times what is kept is halved, after it was still too much."""
    instructions: str | None = None


async def compact(equipment: AgentServices, journal: SessionLog, order: CompactionRequest) -> CompactionResult:
    with claimed(journal.absolute + CLAIM_ENDING) as ours:
        if not ours:
            return CompactionResult(False, "another process is compacting this session")
        view = await asyncio.to_thread(journal.view)
        plan = _plan(equipment, view, order)
        if isinstance(plan, NothingToCompact):
            return CompactionResult(False, plan.reason)
        receipt = await asyncio.to_thread(make_checkpoint, equipment.memory, journal, plan.leaving)
        flushed = await _flush(equipment, journal, view, plan.leaving)
        summary = await summarise(equipment, journal.path, view.summary, plan.leaving, focus=order.instructions)
        summary = _with_question(summary, plan, equipment.budget.summary)
        return await asyncio.to_thread(_append, journal, view, order, plan, summary, receipt, flushed)


def _plan(equipment: AgentServices, view: ConversationView, order: CompactionRequest) -> Plan | NothingToCompact:
    budget = equipment.budget
    room = max(0, budget.compact_at - order.fixed_tokens) // 2
    keep = min(budget.keep_recent, room) >> order.squeeze
    plan = plan_compaction(view, keep_tokens=keep, message_tokens=budget.message)
    if isinstance(plan, NothingToCompact) and order.why == "asked for":
        # All of it would have fitted. Whoever asks wants the older half gone nevertheless.
        total = plan_compaction(view, keep_tokens=0, message_tokens=budget.message)
        if isinstance(total, Plan):
            return plan_compaction(view, keep_tokens=total.tokens_before // 2, message_tokens=budget.message)
    return plan


async def _flush(
    equipment: AgentServices, journal: SessionLog, view: ConversationView, leaving: Sequence[LoggedMessage]
) -> FlushResult | None:
    """One for each compaction: where one has worked since the last, what it has read is not read again."""
    if not equipment.flushes:
        return None
    if not is_due(view):
        return FlushResult("written", view.flushed_line) if _wrote(view) else FlushResult("nothing", view.flushed_line)
    return await flush_and_record(equipment, journal, view, leaving)


async def flush_and_record(
    equipment: AgentServices, journal: SessionLog, view: ConversationView, said: Sequence[LoggedMessage]
) -> FlushResult:
    new = [one for one in said if one.line > view.flushed_line]
    through = max((one.line for one in said), default=view.flushed_line)
    flushed = await flush(equipment, journal.path, new, through_line=through)
    await asyncio.to_thread(journal.add, flushed.state())
    return flushed


def _wrote(view: ConversationView) -> bool:
    value = view.flush.value if view.flush else None
    return isinstance(value, dict) and value.get("outcome") == "written"


def _with_question(summary: ConversationSummary, plan: Plan, limit_tokens: int) -> ConversationSummary:
    """Where the cut goes through an answer, what was asked must not be lost with the part that leaves."""
    if plan.open_question is None:
        return summary
    asked = shorten(plan.open_question, limit_tokens, "the rest is in the transcript")
    return replace(summary, text=f"{summary.text}\n\nThe person's last message, which is being answered:\n{asked}")


def _append(
    journal: SessionLog,
    view: ConversationView,
    order: CompactionRequest,
    plan: Plan,
    summary: ConversationSummary,
    receipt: dict[str, Any],
    flushed: FlushResult | None,
) -> CompactionResult:
    before = order.fixed_tokens + plan.tokens_before
    after = order.fixed_tokens + plan.tokens_kept + estimate_tokens(summary.text)
    told = flushed.outcome if flushed else "off"
    if plan.tokens_before - (after - order.fixed_tokens) < plan.tokens_before // _LEAST_GAIN:
        journal.futile_tokens = before
        return CompactionResult(False, "a summary would not be shorter", tokens_before=before, flushed=told)
    metadata: dict[str, Any] = {"why": order.why, "flush": told, **summary.metadata()}
    if order.instructions:
        metadata["instructions"] = order.instructions
    entry = journal.add_compaction(
        CompactionEntry(
            summary.text,
            first_kept_id=plan.first_kept_id,
            tokens_before=before,
            tokens_after=after,
            source=summary.source,
            receipt=receipt,
            metadata=metadata,
        ),
        after=view.compaction_id,
    )
    if entry is None:
        return CompactionResult(False, "another process has compacted this session", flushed=told)
    return CompactionResult(True, order.why, summary.source, before, after, told)
