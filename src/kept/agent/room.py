"""Make room in a conversation, and catch up with what was put off: work that no one waits for."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from kept.agent.flush import flush, flush_and_record
from kept.agent.services import AgentServices
from kept.agent.session_log import SessionLog, run_to_end
from kept.context.compaction_plan import split_transcript
from kept.context.pruning import plan_pruning
from kept.context.view import BACKLOG, PRUNED
from kept.limits import estimate_tokens
from kept.sessions.entries import StateEntry

_PRUNE_DIVISOR = 8
"""Old tool results are cut if that saves at least this fraction of what fits: an eighth."""
_MIN_ENDED_TOKENS = 200
"""A session with less that is new to a flush is not flushed at its end: a greeting has no facts."""


async def prune(services: AgentServices, log: SessionLog) -> bool:
    """Cut old tool results from the context, if that is worth it. Return whether it was."""
    budget = services.budget
    if not services.config.agent.compaction.prune_tool_results:
        return False
    view = await asyncio.to_thread(log.view)
    plan = plan_pruning(view, keep_tokens=budget.keep_recent, min_saved_tokens=budget.compact_at // _PRUNE_DIVISOR)
    if plan is None:
        return False
    value = {"throughLine": plan.through_line, "tokens": plan.saved_tokens}
    await run_to_end(log.add, StateEntry(PRUNED, value))
    return True


async def flush_backlog(services: AgentServices, log: SessionLog) -> bool:
    """Flush the oldest piece of the messages that a compaction left without a flush. Return whether there was one."""
    view = await asyncio.to_thread(log.view)
    pieces = split_transcript(view.backlog, services.budget.window // 2) if view.backlog else []
    if not pieces or not services.flushes:
        return False
    first = pieces[0]
    messages = [logged for logged in view.backlog if first.first_line <= logged.line <= first.last_line]
    result = await flush(services, log.path, messages, through_line=first.last_line)
    state = result.state()
    await run_to_end(log.add, replace(state, value={**state.value, BACKLOG: True}))
    return True


async def flush_ended(services: AgentServices, log: SessionLog) -> None:
    """Flush what no flush has read, at the end of a session. Only the last part of a very long rest is read."""
    if not services.flushes or not services.config.agent.compaction.memory_flush.at_session_end:
        return
    view = await asyncio.to_thread(log.view)
    new = [logged for logged in view.messages if logged.line > view.flushed_line]
    texts = [logged.message.text for logged in new if logged.message.role in ("user", "assistant")]
    if not services.model.writes or sum(map(estimate_tokens, texts)) < _MIN_ENDED_TOKENS:
        return
    pieces = split_transcript(new, services.budget.window // 2)[-2:]
    messages = [logged for logged in new if logged.line >= pieces[0].first_line]
    await flush_and_record(services, log, view, messages)
