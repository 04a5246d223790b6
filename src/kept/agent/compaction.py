"""Compaction: older messages leave the context, a summary replaces them, and nothing is lost.

    plan → receipt → flush, unless one has been done → summary → entry appended to the transcript

Messages stay in the transcript, word for word. Before they leave the context, they are indexed; the receipt records
which lines left, their hash, and whether a search finds them. The summary is written by the model, or extracted if that
fails. If several processes compact the same session, one of them does it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from kept.agent.answer import is_empty_answer
from kept.agent.context.compaction_plan import (
    CompactionPlan,
    TranscriptPiece,
    plan_compaction,
    split_transcript,
)
from kept.agent.context.fence import make_fence
from kept.agent.context.shortening import shorten
from kept.agent.context.view import ConversationView, LoggedMessage
from kept.agent.events import CompactionResult
from kept.agent.flush import FlushResult, flush_and_record, is_flush_due
from kept.agent.services import AgentServices, add_usage, ask, read_in_pieces, usage_fields
from kept.agent.session_log import SessionLog, run_to_end
from kept.base.file_lock import claimed
from kept.base.limits import estimate_tokens
from kept.base.remote_errors import ModelError, ModelFailed
from kept.base.values import frozen
from kept.errors import KeptError
from kept.memory import Memory
from kept.models.base import ChatRequest, ModelUsage, Turn
from kept.models.prompts import get_prompt
from kept.sessions.entries import CompactionEntry, Entry
from kept.sessions.transcript import Transcript, hash_lines, is_receipt, ranges_of
from kept.sessions.transcript_paths import cite_transcript, find_cited_path

_MOST_PIECES = 2
"""Pieces of a conversation that a compaction lets the model read while somebody waits."""
CLAIM_ENDING = ".compacting"
_MIN_GAIN_DIVISOR = 10
"""A compaction that saves less than a tenth is not worth a summary: it would soon be due again."""
_MAX_EXCESS = 2
"""A summary is cut if it is this many times as long as the prompt asks for."""
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


async def compact(services: AgentServices, log: SessionLog, request: CompactionRequest) -> CompactionResult:
    with claimed(log.absolute + CLAIM_ENDING) as is_ours:
        if not is_ours:
            return CompactionResult(False, "another process is compacting this session")
        view = await asyncio.to_thread(log.view)
        plan = _plan(services, view, request)
        if plan is None:
            return CompactionResult(False, "there is nothing old enough to be summarised")
        receipt = await asyncio.to_thread(make_receipt, services.memory, log, plan.removed)
        older, newer = _split_work(services.writer, plan, request)
        flushed = await _flush_once(services.writer, log, view, newer)
        earlier = _extract(view.summary, older, services.budget.summary, None).text if older else view.summary
        summary = await summarise(services.writer, log.path, earlier, newer, focus=request.instructions)
        summary = _with_open_question(summary, plan, services.budget.summary)
        return await run_to_end(_append, log, view, request, plan, summary, receipt, flushed)


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


def _split_work(
    services: AgentServices, plan: CompactionPlan, request: CompactionRequest
) -> tuple[Sequence[LoggedMessage], Sequence[LoggedMessage]]:
    """Return the messages that are only extracted, and those that the model reads.

    Somebody waits for a reply: of a very long conversation, such as an imported one, the model reads the last part.
    """
    pieces = split_transcript(plan.removed, services.budget.window // 2) if request.reason != "asked for" else []
    if len(pieces) <= _MOST_PIECES:
        return (), plan.removed
    first = pieces[-1].first_line
    older = [logged for logged in plan.removed if logged.line < first]
    return older, [logged for logged in plan.removed if logged.line >= first]


async def _flush_once(
    services: AgentServices, log: SessionLog, view: ConversationView, removed: Sequence[LoggedMessage]
) -> FlushResult | None:
    """Flush the removed messages, unless a flush that succeeded has read all that a person said."""
    if not services.flushes:
        return None
    is_read = all(logged.line <= view.flushed_line for logged in removed if logged.message.role == "user")
    if is_read and not is_flush_due(view):
        value = view.flush.value if view.flush else None
        wrote_facts = isinstance(value, dict) and value.get("outcome") == "written"
        return FlushResult("written" if wrote_facts else "nothing", view.flushed_line)
    return await flush_and_record(services, log, view, removed)


def _with_open_question(summary: ConversationSummary, plan: CompactionPlan, limit_tokens: int) -> ConversationSummary:
    """Append the question to the summary if the cut goes through its answer: the model has to know it."""
    if plan.open_question is None:
        return summary
    question = shorten(plan.open_question, limit_tokens, "the rest is in the transcript")
    return replace(summary, text=f"{summary.text}\n\nThe person's last message, which is being answered:\n{question}")


def _append(
    log: SessionLog,
    view: ConversationView,
    request: CompactionRequest,
    plan: CompactionPlan,
    summary: ConversationSummary,
    receipt: dict[str, Any],
    flush: FlushResult | None,
) -> CompactionResult:
    before = request.fixed_tokens + plan.tokens_before
    after = request.fixed_tokens + plan.tokens_kept + estimate_tokens(summary.text)
    flushed = flush.outcome if flush else "off"
    if before - after < plan.tokens_before // _MIN_GAIN_DIVISOR:
        log.futile_tokens = before
        return CompactionResult(False, "a summary would not be shorter", tokens_before=before, flushed=flushed)
    metadata: dict[str, Any] = {"why": request.reason, "flush": flushed, **summary.metadata()}
    if request.instructions:
        metadata["instructions"] = request.instructions
    entry = log.add_compaction(
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
        return CompactionResult(False, "another process has compacted this session", flushed=flushed)
    return CompactionResult(True, request.reason, summary.source, before, after, flushed)


# summaries


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
        self.usage = add_usage(self.usage, answer.end.usage)
        if is_empty_answer(answer.text):
            raise ModelFailed("The model gave no summary.")
        self.text = answer.text


def _extract(
    earlier: str, removed: Sequence[LoggedMessage], budget_tokens: int, reason: str | None
) -> ConversationSummary:
    """Return the most salient sentences verbatim, below the earlier summary."""
    from kept.models.extractive import SpokenLine, extract_summary

    lines = [
        SpokenLine(message.text, message.speaker or message.role, logged.entry.timestamp, f"L{logged.line}")
        for logged in removed
        if (message := logged.message).role in ("user", "assistant") and message.text.strip()
    ]
    before = shorten(earlier, budget_tokens // 2, "older extracts are in the transcript") if earlier else ""
    extracts = extract_summary(lines, budget_tokens // 2) or f"{len(removed)} messages in which nothing stands out."
    text = "\n\n".join(filter(None, (before.removeprefix(_EXTRACTS_HEADING).strip(), extracts)))
    return ConversationSummary(f"{_EXTRACTS_HEADING}\n\n{text}", "extractive", reason=reason)


# receipts


def make_receipt(memory: Memory, log: SessionLog, removed: Sequence[LoggedMessage]) -> dict[str, Any]:
    """Index the removed messages. Return a receipt: their lines, the hash of these, whether a search finds them."""
    ranges = _line_ranges(removed)
    receipt: dict[str, Any] = {
        "path": log.path,
        "lines": [list(line_range) for line_range in ranges],
        "sha256": hash_lines(Transcript(log.absolute).iter_raw(), ranges),
        "messages": len(removed),
    }
    reason = _why_not_searchable(memory, log.path, ranges)
    return receipt | ({"searchable": True} if reason is None else {"searchable": False, "reason": reason})


def _line_ranges(messages: Sequence[LoggedMessage]) -> list[tuple[int, int]]:
    """Return the lines of messages as ranges of consecutive lines: first and last."""
    ranges: list[tuple[int, int]] = []
    for logged in messages:
        if ranges and logged.line == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], logged.line)
        else:
            ranges.append((logged.line, logged.line))
    return ranges


def _why_not_searchable(memory: Memory, path: str, ranges: Sequence[tuple[int, int]]) -> str | None:
    if not _searches_sessions(memory):
        return "the settings exclude conversations from search"
    try:
        memory.sync()
        missing = _find_missing(memory, path, ranges)
    except KeptError as exc:
        return exc.message
    return f"{len(missing)} lines are not in the index, the first is {missing[0]}" if missing else None


def _searches_sessions(memory: Memory) -> bool:
    return memory.settings.enabled and "sessions" in memory.settings.sources


def _find_missing(memory: Memory, path: str, ranges: Sequence[tuple[int, int]]) -> list[int]:
    if not ranges:
        return []
    unindexed = memory.index_service.find_unindexed(path, first_line=ranges[0][0], last_line=ranges[-1][1])
    return [line for line in unindexed if any(first <= line <= last for first, last in ranges)]


def iter_receipts(transcript: Transcript) -> Iterator[Mapping[str, Any]]:
    """Yield the receipts in a transcript. Those of imported sessions, which name other files, are left out."""
    path = cite_transcript(transcript.path)
    for line in transcript.iter_lines():
        body = line.content.body if isinstance(line.content, Entry) else None
        if isinstance(body, CompactionEntry) and is_receipt(body.receipt) and body.receipt["path"] == path:
            yield body.receipt


def verify_receipt(memory: Memory, sessions_folder: str, receipt: Mapping[str, Any]) -> str | None:
    """Return how a receipt differs from the transcript and the index, or None if it is still true."""
    ranges = ranges_of(receipt)
    transcript = Transcript(find_cited_path(sessions_folder, receipt["path"]))
    if hash_lines(transcript.iter_raw(), ranges) != receipt["sha256"]:
        return "the lines have changed"
    if not receipt["searchable"] or not _searches_sessions(memory):
        return None
    missing = _find_missing(memory, receipt["path"], ranges)
    return f"{len(missing)} lines are no longer in the index" if missing else None
