"""Compaction: older messages leave the context, a summary replaces them, and nothing is lost.

    plan → receipt → flush, unless one has been done → summary → entry appended to the transcript

Messages stay in the transcript, word for word. Before they leave the context, they are indexed; the receipt records
which lines left, their hash, and whether a search finds them. The summary is written by the model, or extracted if that
fails. If several processes compact the same session, one of them does it.
"""

from __future__ import annotations

import asyncio
import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal

from kept.agent.answer import TranscriptPiece, ask_about, is_empty_answer, read_in_pieces, spoken, usage_fields
from kept.agent.events import CompactionResult, Flushed
from kept.agent.flush import flush_and_record
from kept.agent.session_log import ConversationView, LoggedMessage, SessionLog, pair_calls, run_to_end
from kept.base.limits import estimate_tokens, shorten
from kept.base.remote_errors import ModelError, ModelFailed
from kept.base.values import frozen
from kept.errors import KeptError
from kept.memory import Memory
from kept.models.base import ModelUsage, get_prompt
from kept.sessions.entries import CompactionEntry, Entry, Message, Text, ToolCall, ToolResult
from kept.sessions.transcript import Transcript, Transcripts, hash_lines, is_receipt, ranges_of

if TYPE_CHECKING:
    from kept.agent.agent import AgentServices

_MIN_GAIN_DIVISOR = 10
"""A compaction that saves less than a tenth is not worth a summary: it would soon be due again."""
_MAX_EXCESS = 2
"""A summary is cut if it is this many times as long as the prompt asks for."""
_EXCLUDED = "the settings exclude conversations from search"
_EXTRACTS_HEADING = "Extracts, picked without a model:"

Reason = Literal["threshold", "overflow", "asked for"]


@frozen
class CompactionRequest:
    reason: Reason
    fixed_tokens: int = 0
    """Part of the context that a compaction cannot reduce."""
    halvings: int = 0
    """Number of times to halve the kept part, after a request was still too long."""
    instructions: str | None = None


async def compact(services: AgentServices, log: SessionLog, request: CompactionRequest) -> CompactionResult:
    with log.claimed("compaction") as is_ours:
        if not is_ours:
            return CompactionResult(False, "another process is compacting this session")
        view = await asyncio.to_thread(log.view)
        plan = _plan(services, view, request)
        if plan is None:
            return CompactionResult(False, "there is nothing old enough to be summarised")
        receipt = await asyncio.to_thread(make_receipt, services.memory, log, plan.removed)
        flushed: Flushed = "off"
        if services.flushes:  # not again, if a flush that succeeded has read all that a person said
            is_read = all(logged.line <= view.flushed_line for logged in plan.removed if logged.message.role == "user")
            if is_read and view.flush not in (None, "failed"):
                flushed = "written" if view.flush == "written" else "nothing"
            else:
                flushed = await flush_and_record(services.writer, log, view, plan.removed)
        entry = await summarise(services.writer, log.path, view.summary, plan.removed, focus=request.instructions)
        summary, metadata = entry.summary, {"why": request.reason, "flush": flushed, **entry.metadata}
        if plan.open_question is not None:  # the model has to know it
            question = shorten(plan.open_question, services.budget.summary, "the rest is in the transcript")
            summary += f"\n\nThe person's last message, which is being answered:\n{question}"
        if request.instructions:
            metadata["instructions"] = request.instructions
        entry = replace(entry, summary=summary, first_kept_id=plan.first_kept_id, receipt=receipt, metadata=metadata)
        return await run_to_end(_append, log, view, request, plan, entry, flushed)


def _plan(services: AgentServices, view: ConversationView, request: CompactionRequest) -> CompactionPlan | None:
    budget = services.budget
    room = max(0, budget.compact_at - request.fixed_tokens) // 2
    keep = min(budget.keep_recent, room) >> request.halvings
    plan = plan_compaction(view, keep_tokens=keep, message_tokens=budget.message)
    if plan is None and request.reason == "asked for":
        # Everything fits, but the person asked for a compaction: remove the older half.
        whole = plan_compaction(view, keep_tokens=0, message_tokens=budget.message)
        if whole is not None:
            return plan_compaction(view, keep_tokens=whole.tokens_before // 2, message_tokens=budget.message)
    return plan


@frozen
class CompactionPlan:
    removed: tuple[LoggedMessage, ...]
    first_kept_id: str | None
    tokens_before: int
    """Size of the previous summary and all messages."""
    tokens_kept: int
    open_question: str | None
    """Message of the person, if the cut goes through the answer to it."""


def plan_compaction(view: ConversationView, *, keep_tokens: int, message_tokens: int) -> CompactionPlan | None:
    """Remove the oldest messages until the rest fits into ``keep_tokens``. Return None if none can be removed.

    A tool call is never separated from its result. A question is separated from its answer only if the two are too long
    together.
    """
    messages = view.messages
    sizes = [min(count_message_tokens(logged.message), message_tokens) for logged in messages]
    fits_from = len(sizes) - bisect_right(list(accumulate(reversed(sizes))), keep_tokens)
    cut = _choose_cut(messages, find_safe_cuts(messages), fits_from)
    if cut is None or cut == 0:
        return None
    return CompactionPlan(
        removed=messages[:cut],
        first_kept_id=messages[cut].entry.id if cut < len(messages) else None,
        tokens_before=estimate_tokens(view.summary) + sum(sizes),
        tokens_kept=sum(sizes[cut:]),
        open_question=_find_open_question(messages, cut),
    )


def count_message_tokens(message: Message) -> int:
    texts: list[str] = []
    for block in message.content:
        match block:
            case Text(text) | ToolResult(text=text):
                texts.append(text)
            case ToolCall(name=name, arguments=arguments):
                texts.append(f"{name} {json.dumps(dict(arguments), ensure_ascii=False, default=str)}")
    return estimate_tokens("\n".join(texts))


def find_safe_cuts(messages: Sequence[LoggedMessage]) -> list[int]:
    """Return the indexes before which the conversation can be cut without separating a tool call from its result."""
    inside: set[int] = set()
    for at, _, result in pair_calls(messages):
        if result is not None:
            inside.update(range(at + 1, result[0] + 1))
    return [at for at in range(len(messages)) if at not in inside]


def _choose_cut(messages: Sequence[LoggedMessage], cuts: Sequence[int], fits_from: int) -> int | None:
    """Return the index of the first message to keep.

    Prefer a cut before a question. If the last question and its answer are too long, cut before a part of the answer;
    if that is not possible either, before the last question.
    """
    roles = [logged.message.role for logged in messages]
    # The first of the person's messages in a row.
    questions = [at for at in cuts if roles[at] == "user" and not (at and roles[at - 1] == "user")]
    fitting = [index for index in questions if index >= fits_from]
    if fitting:
        return fitting[0]
    within = [index for index in cuts if index >= fits_from and roles[index] == "assistant"]
    if within:
        return within[0]
    return max(questions, default=0) or None


def _find_open_question(messages: Sequence[LoggedMessage], cut: int) -> str | None:
    if cut >= len(messages) or messages[cut].message.role == "user":
        return None
    of_user = (logged.message for logged in reversed(messages[:cut]) if logged.message.role == "user")
    last = next((message for message in of_user if message.text.strip()), None)
    if last is None:
        return None
    return f"{last.speaker}: {last.text}" if last.forwarded_from else last.text


# the work


def _append(
    log: SessionLog,
    view: ConversationView,
    request: CompactionRequest,
    plan: CompactionPlan,
    entry: CompactionEntry,
    flushed: Flushed,
) -> CompactionResult:
    before = request.fixed_tokens + plan.tokens_before
    after = request.fixed_tokens + plan.tokens_kept + estimate_tokens(entry.summary)
    if before - after < plan.tokens_before // _MIN_GAIN_DIVISOR:
        log.futile_tokens = before
        return CompactionResult(False, "a summary would not be shorter", tokens_before=before, flushed=flushed)
    entry = replace(entry, tokens_before=before, tokens_after=after)
    if not log.add_compaction(entry, after=view.compaction.id if view.compaction else None):
        return CompactionResult(False, "another process has compacted this session", flushed=flushed)
    return CompactionResult(True, request.reason, entry.source, before, after, flushed)


# summaries


async def summarise(
    services: AgentServices, path: str, earlier: str, removed: Sequence[LoggedMessage], *, focus: str | None = None
) -> CompactionEntry:
    """Return one summary of an earlier summary and the messages that leave the context now. Never fails."""
    budget, prompt = services.budget, get_prompt("summary")
    if not services.model.writes:
        return _extract(earlier, removed, budget.summary, None)
    wanted = f"\n\nThe person asks for this in particular: {focus}" if focus else ""
    text, usage = earlier, ModelUsage()

    async def read(piece: TranscriptPiece) -> None:
        """Summarise a piece. Each summary includes the one before."""
        nonlocal text, usage
        answer = await ask_about(
            services,
            "summary",
            path,
            piece,
            before=text,
            max_tokens=budget.summary * _MAX_EXCESS,
            budget=str(budget.summary),
            focus=wanted,
        )
        usage += answer.end.usage
        if is_empty_answer(answer.text):
            raise ModelFailed("The model gave no summary.")
        text = answer.text

    try:
        await read_in_pieces(removed, budget.window // 2, read)
    except ModelError as exc:
        return _extract(earlier, removed, budget.summary, exc.message)
    metadata = {"prompt": prompt.label, "model": services.model.name, "usage": usage_fields(usage)}
    text = shorten(text.strip(), budget.summary * _MAX_EXCESS, "the summary was longer than it may be")
    return CompactionEntry(text, source="model", metadata=metadata)


def _extract(earlier: str, removed: Sequence[LoggedMessage], budget_tokens: int, reason: str | None) -> CompactionEntry:
    """Return the most salient sentences verbatim, below the earlier summary."""
    from kept.models.extractive import extract_summary

    before = shorten(earlier, budget_tokens // 2, "older extracts are in the transcript") if earlier else ""
    extracts = extract_summary(spoken(removed), budget_tokens // 2)
    nothing = f"{len(removed)} messages in which nothing stands out."
    text = "\n\n".join(filter(None, (before.removeprefix(_EXTRACTS_HEADING).strip(), extracts or nothing)))
    metadata = {"reason": reason} if reason else {}
    return CompactionEntry(f"{_EXTRACTS_HEADING}\n\n{text}", source="extractive", metadata=metadata)


# receipts


def make_receipt(memory: Memory, log: SessionLog, removed: Sequence[LoggedMessage]) -> dict[str, Any]:
    """Index the removed messages. Return a receipt: their lines, the hash of these, whether a search finds them."""
    ranges: list[tuple[int, int]] = []
    for logged in removed:
        if ranges and logged.line == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], logged.line)
        else:
            ranges.append((logged.line, logged.line))
    receipt: dict[str, Any] = {
        "path": log.path,
        "lines": [list(line_range) for line_range in ranges],
        "sha256": hash_lines(log.transcript.iter_lines(), ranges),
        "messages": len(removed),
    }
    try:
        reason = _why_not_searchable(memory, log.path, ranges, sync=True)
    except KeptError as exc:
        reason = exc.message
    return receipt | ({"searchable": True} if reason is None else {"searchable": False, "reason": reason})


def _why_not_searchable(
    memory: Memory, path: str, ranges: Sequence[tuple[int, int]], *, sync: bool = False
) -> str | None:
    if not memory.settings.enabled or "sessions" not in memory.settings.sources:
        return _EXCLUDED
    if sync:
        memory.sync()
    unindexed = memory.index_service.find_unindexed(path, first_line=ranges[0][0], last_line=ranges[-1][1])
    missing = [line for line in unindexed if any(first <= line <= last for first, last in ranges)]
    return f"{len(missing)} lines are not in the index, the first is {missing[0]}" if missing else None


def iter_receipts(transcript: Transcript) -> Iterator[Mapping[str, Any]]:
    """Yield the receipts in a transcript. Those of imported sessions, which name other files, are left out."""
    path = transcript.citation
    for line in transcript.iter_lines():
        body = line.content.body if isinstance(line.content, Entry) else None
        if isinstance(body, CompactionEntry) and is_receipt(body.receipt) and body.receipt["path"] == path:
            yield body.receipt


def verify_receipt(memory: Memory, transcripts: Transcripts, receipt: Mapping[str, Any]) -> str | None:
    """Return how a receipt differs from the transcript and the index, or None if it is still true."""
    ranges = ranges_of(receipt)
    if hash_lines(transcripts.get(receipt["path"]).iter_lines(), ranges) != receipt["sha256"]:
        return "the lines have changed"
    reason = _why_not_searchable(memory, receipt["path"], ranges) if receipt["searchable"] and ranges else None
    return None if reason == _EXCLUDED else reason
