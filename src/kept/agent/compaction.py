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
from kept.agent.equipment import Equipment
from kept.agent.events import Compacted
from kept.agent.flush import Flushed, flush, is_due
from kept.agent.journal import Journal
from kept.agent.summary import Summary, summarise
from kept.context.compact import CompactionPlan as Plan
from kept.context.compact import NothingToCompact, plan_compaction
from kept.context.trim import shorten
from kept.context.view import Said, View
from kept.lock import claimed
from kept.sessions.entries import Compaction
from kept.tokens import estimate_tokens
from kept.values import frozen

CLAIM_ENDING = ".compacting"
_LEAST_GAIN = 10
"""One that saves less than a tenth is not worth a summary, and would soon be wanted again."""

Why = Literal["threshold", "overflow", "asked for"]


@frozen
class Order:
    """What is wanted of a compaction."""

    why: Why
    fixed_tokens: int = 0
    """What of the context it cannot make less."""
    squeeze: int = 0
    """How many times what is kept is halved, after it was still too much."""
    instructions: str | None = None


async def compact(equipment: Equipment, journal: Journal, order: Order) -> Compacted:
    with claimed(journal.absolute + CLAIM_ENDING) as ours:
        if not ours:
            return Compacted(False, "another process is compacting this session")
        view = await asyncio.to_thread(journal.view)
        plan = _plan(equipment, view, order)
        if isinstance(plan, NothingToCompact):
            return Compacted(False, plan.reason)
        receipt = await asyncio.to_thread(make_checkpoint, equipment.memory, journal, plan.leaving)
        flushed = await _flush(equipment, journal, view, plan.leaving)
        summary = await summarise(equipment, journal.path, view.summary, plan.leaving, focus=order.instructions)
        summary = _with_question(summary, plan, equipment.budget.summary)
        return await asyncio.to_thread(_append, journal, view, order, plan, summary, receipt, flushed)


def _plan(equipment: Equipment, view: View, order: Order) -> Plan | NothingToCompact:
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


async def _flush(equipment: Equipment, journal: Journal, view: View, leaving: Sequence[Said]) -> Flushed | None:
    """One for each compaction: where one has worked since the last, what it has read is not read again."""
    if not equipment.flushes:
        return None
    if not is_due(view):
        return Flushed("written", view.flushed_line) if _wrote(view) else Flushed("nothing", view.flushed_line)
    return await flush_and_record(equipment, journal, view, leaving)


async def flush_and_record(equipment: Equipment, journal: Journal, view: View, said: Sequence[Said]) -> Flushed:
    new = [one for one in said if one.line > view.flushed_line]
    through = max((one.line for one in said), default=view.flushed_line)
    flushed = await flush(equipment, journal.path, new, through_line=through)
    await asyncio.to_thread(journal.add, flushed.state())
    return flushed


def _wrote(view: View) -> bool:
    value = view.flush.value if view.flush else None
    return isinstance(value, dict) and value.get("outcome") == "written"


def _with_question(summary: Summary, plan: Plan, limit_tokens: int) -> Summary:
    """Where the cut goes through an answer, what was asked must not be lost with the part that leaves."""
    if plan.open_question is None:
        return summary
    asked = shorten(plan.open_question, limit_tokens, "the rest is in the transcript")
    return replace(summary, text=f"{summary.text}\n\nThe person's last message, which is being answered:\n{asked}")


def _append(
    journal: Journal,
    view: View,
    order: Order,
    plan: Plan,
    summary: Summary,
    receipt: dict[str, Any],
    flushed: Flushed | None,
) -> Compacted:
    before = order.fixed_tokens + plan.tokens_before
    after = order.fixed_tokens + plan.tokens_kept + estimate_tokens(summary.text)
    told = flushed.outcome if flushed else "off"
    if plan.tokens_before - (after - order.fixed_tokens) < plan.tokens_before // _LEAST_GAIN:
        journal.futile_tokens = before
        return Compacted(False, "a summary would not be shorter", tokens_before=before, flushed=told)
    metadata: dict[str, Any] = {"why": order.why, "flush": told, **summary.metadata()}
    if order.instructions:
        metadata["instructions"] = order.instructions
    entry = journal.add_compaction(
        Compaction(
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
        return Compacted(False, "another process has compacted this session", flushed=told)
    return Compacted(True, order.why, summary.source, before, after, told)
