"""One turn: recall → context → model, with tools as often as it calls them → a reply that is recorded.

Everything is in the transcript before it has an effect: the person's message before the model is called, tool calls
before they run, their results and the reply before they are yielded. So a turn that broke off anywhere can resume from
the transcript.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any

from kept.agent.compaction import CompactionRequest, compact
from kept.agent.events import (
    AgentEvent,
    GroupLine,
    Inbound,
    Notice,
    Reply,
    ReplyDelta,
    ToolEnded,
    ToolStarted,
    to_messages,
)
from kept.agent.flush import flush_and_record, is_early_flush_due
from kept.agent.model_call import ATTEMPTS
from kept.agent.no_reply import NoReplyFilter, is_no_reply, strip_no_reply
from kept.agent.recall import TurnMaterial, gather_material
from kept.agent.services import AgentServices
from kept.agent.session_log import SessionLog, find_answer, find_open_calls, run_to_end, unanswered_ids
from kept.context.context import NO_RESULT, Context, ContextMaterial, build_context
from kept.context.view import ANSWERS, ConversationView, LoggedMessage
from kept.errors import ContextOverflow, KeptError, ModelError
from kept.limits import estimate_tokens
from kept.llm.base import Finished, ModelEvent, ModelUsage, TextDelta, ToolUse
from kept.prompts import get_prompt
from kept.records import Hit
from kept.sessions.entries import Block, Message, Text, TokenUsage, ToolCall, ToolResult
from kept.tools.toolbox import LeaveOut, ToolOutcome

MAX_COMPACTIONS = 2
"""Compactions per turn because the model refused a request as too long, before the turn is given up."""
LAST_STEP = "(No more tools can be used in this turn. Answer now with what you have.)"
GAVE_UP = "I stopped here: I had used all the steps that one turn may take and have not come to an answer."
_REPLY = "reply"
"""Metadata of an answer without text: the last text that the model wrote beside its tool calls."""

log = logging.getLogger(__name__)


class AgentTurn:
    """Answer to some messages of one session."""

    def __init__(
        self,
        services: AgentServices,
        session: AbstractAsyncContextManager[SessionLog],
        messages: Sequence[Inbound],
        group: Sequence[GroupLine],
    ) -> None:
        self.services = services
        self.messages = messages
        self.group = group
        self._session = session
        self._session_log: SessionLog | None = None
        self._material = TurnMaterial()
        self._ids: list[str] = []
        """Ids of the messages that this turn answers."""
        self._texts: list[str] = []
        """Texts that the model wrote beside its tool calls."""
        self._overflows = 0

    @property
    def log(self) -> SessionLog:
        assert self._session_log is not None, "the turn has not begun"
        return self._session_log

    async def run(self) -> AsyncGenerator[AgentEvent, None]:
        """Yield the events of the turn. The last one is a `Reply`.

        A compaction that is due runs after the reply, when the next event is requested, of which there is none.
        """
        async with self._session as self._session_log:
            for event in await self._begin():
                yield event
            if not self._ids:
                return
            max_steps = self.services.config.agent.tools.max_steps
            for number in range(max_steps + 1):
                step = ModelStep()
                async with aclosing(self._ask(step, LAST_STEP if number and number == max_steps else None)) as events:
                    async for event in events:
                        yield event
                if not step.uses:
                    break
                async with aclosing(self._use_tools(step, refuse=number == max_steps)) as events:
                    async for event in events:
                        yield event
            for event in await self._finish(step):
                yield event
            await self._make_room_after_reply()

    # receiving

    async def _begin(self) -> Sequence[AgentEvent]:
        """Record the messages, and prepare the context. Return notices, or the reply if it is recorded already."""
        view = await asyncio.to_thread(self.log.view)
        ids = [message.id for message in self.messages]
        self._ids = unanswered_ids(view, ids)
        if not self._ids:
            answer = find_answer(view, ids)
            return [] if answer is None else [read_reply(answer)]
        await run_to_end(self._receive, view)
        return await self._prepare()

    def _receive(self, view: ConversationView) -> None:
        """Write the messages to the transcript, after results for tool calls that have none."""
        results = [ToolResult(call.id, NO_RESULT, call.name, is_error=True) for call in find_open_calls(view)]
        if results:
            self.log.add(Message("tool", tuple(results)))
        new = [message for message in self.messages if message.id in self._ids]
        self.log.add_inbound(to_messages(new, self.group))

    async def _prepare(self) -> list[Notice]:
        """Recall memories, and compact a conversation that is too long. Return notices for the person."""
        self._material = await asyncio.to_thread(gather_material, self.services, self.log, self.messages)
        context = await asyncio.to_thread(self._build_context)
        problems = (*self._material.problems, *map(str, context.cuts))
        notices = [Notice(problem) for problem in problems if self.log.is_new_notice(problem)]
        if self._is_too_long(context.tokens):
            result = await compact(self.services, self.log, CompactionRequest("threshold", context.fixed_tokens))
            if result.done:
                notices.append(Notice("The older part of this conversation has been summarised."))
        return notices

    def _build_context(self, remark: str | None = None) -> Context:
        view = self.log.view()
        answered = [logged.entry.id for logged in view.messages if logged.inbound_id in self._ids]
        material = ContextMaterial(
            view=view,
            path=self.log.path,
            agent=self.services.config.agent_id,
            now=self.services.clock.now(),
            files=self._material.files,
            recalled=self._material.recalled,
            recalled_for=answered[0] if answered else None,
            tools=self.services.tool_specs(),
            remark=remark,
            trusts_files=self.services.config.trusts_workspace,
            fenced=self.services.model.writes,
        )
        return build_context(material, self.services.budget, secret=self.services.secret)

    # calling the model

    async def _ask(self, step: ModelStep, remark: str | None) -> AsyncGenerator[AgentEvent, None]:
        """Call the model until an answer is complete. Do not retry once part of an answer has been shown."""
        attempt, backoff = 0, self.services.new_backoff()
        while True:
            context = await asyncio.to_thread(self._build_context, remark)
            step.begin()
            try:
                async with aclosing(self.services.model.stream(context.request)) as stream:
                    async for event in stream:
                        if text := step.read(event):
                            yield ReplyDelta(text)
                if text := step.finish():
                    yield ReplyDelta(text)
                self.services.limits.learn_scale(step.end.usage.input, context.tokens)
                return
            except ContextOverflow as exc:
                if step.was_shown or not await self._shorten(context, remark):
                    raise ContextOverflow(
                        f"The conversation does not fit into the model's window, even summarised: {exc.message}",
                        hint="Start a new session with /new, or set model.context_window to the model's limit.",
                    ) from exc
                yield Notice("The conversation was too long for the model and has been shortened.")
            except ModelError as exc:
                attempt += 1
                if not exc.retryable or step.was_shown or attempt == ATTEMPTS:
                    raise
                await asyncio.sleep(backoff.next_s())

    async def _shorten(self, context: Context, remark: str | None) -> bool:
        """Compact after the model refused a request as too long. Return whether the next request is shorter."""
        if self._overflows == MAX_COMPACTIONS:
            return False
        self._overflows += 1
        self.services.limits.learn_refusal(context.tokens)
        request = CompactionRequest("overflow", context.fixed_tokens, halvings=self._overflows - 1)
        await compact(self.services, self.log, request)
        shorter = await asyncio.to_thread(self._build_context, remark)
        return shorter.tokens < context.tokens

    # tools

    def _record_calls(self, step: ModelStep) -> None:
        texts: tuple[Block, ...] = (Text(step.text),) if step.text.strip() else ()
        calls = tuple(ToolCall(use.id, use.name, dict(use.arguments)) for use in step.uses)
        self._texts += [step.text] if step.text.strip() else []
        self.log.add(self._assistant_message((*texts, *calls), step.end.usage, {}))

    async def _use_tools(self, step: ModelStep, *, refuse: bool) -> AsyncGenerator[AgentEvent, None]:
        """Run tools one after the other: a model may search for what it has just written."""
        await run_to_end(self._record_calls, step)
        results: list[ToolResult] = []
        try:
            for use in () if refuse else step.uses:
                yield ToolStarted(use.name, use.arguments)
                outcome = await asyncio.to_thread(run_tool, self.services, use, self._is_current_question)
                results.append(ToolResult(use.id, outcome.text, use.name, outcome.is_error))
                yield ToolEnded(use.name, not outcome.is_error)
        finally:  # even if the turn is cancelled, no call stays without a result
            reason = LAST_STEP if refuse else NO_RESULT
            missing = [ToolResult(use.id, reason, use.name, is_error=True) for use in step.uses[len(results) :]]
            await run_to_end(self.log.add, Message("tool", (*results, *missing)))

    def _is_current_question(self, hit: Hit) -> bool:
        """Return whether a hit is the question itself, which is in the index already and would be the best match."""
        lines = (logged.line for logged in self.log.view().inbound if logged.inbound_id in self._ids)
        return hit.path == self.log.path and hit.start_line >= min(lines, default=hit.start_line + 1)

    # the reply

    async def _finish(self, last_step: ModelStep) -> list[AgentEvent]:
        """Record the reply, and return it after notices about how the answer ended."""
        if last_step.uses:
            max_steps = self.services.config.agent.tools.max_steps
            notices = [Notice(f"The turn was ended after {max_steps} steps with tools.")]
            return [*notices, await run_to_end(self._record_reply, GAVE_UP, ModelUsage())]
        reply = await run_to_end(self._record_reply, last_step.text, last_step.end.usage)
        return [*_end_notices(last_step.end), reply]

    def _record_reply(self, text: str, usage: ModelUsage) -> Reply:
        metadata: dict[str, Any] = {ANSWERS: list(self._ids)}
        if not text.strip() and self._texts:
            metadata[_REPLY] = self._texts[-1]
        (entry,) = self.log.add(self._assistant_message((Text(text),), usage, metadata))
        assert isinstance(entry.body, Message)
        return read_reply(LoggedMessage(0, entry, entry.body))

    def _assistant_message(self, content: tuple[Block, ...], usage: ModelUsage, metadata: dict[str, Any]) -> Message:
        model = self.services.model
        # Claude Code counts its own context, with its own prompt and tools, so ours is estimated.
        counted = usage.input + usage.output if model.runs_tools else 0
        context = counted or self._build_context().tokens + sum(
            estimate_tokens(block.text) for block in content if isinstance(block, Text)
        )
        metadata["prompt"] = get_prompt("system").label
        tokens = TokenUsage(usage.input, usage.output, context)
        return Message("assistant", content, model=model.name, usage=tokens, metadata=metadata)

    def _is_too_long(self, tokens: int) -> bool:
        """Return whether to compact. After a compaction that did not help, wait until the context is a tenth longer."""
        return tokens >= self.services.budget.compact_at and tokens > self.log.futile_tokens * 1.1

    # after the reply

    async def _make_room_after_reply(self) -> None:
        """Make room for the next turn. The reply has been given, so a failure is logged; the next turn tries again."""
        try:
            await self._make_room()
        except KeptError as exc:
            log.warning("session %s: the conversation could not be compacted (%s)", self.log.session_id, exc.code)

    async def _make_room(self) -> None:
        """Compact or flush now, while no one waits, if the next turn would have to."""
        context = await asyncio.to_thread(self._build_context)
        if self._is_too_long(context.tokens):
            await compact(self.services, self.log, CompactionRequest("threshold", context.fixed_tokens))
        elif context.tokens >= self.services.budget.flush_at and self.services.flushes:
            view = await asyncio.to_thread(self.log.view)
            if is_early_flush_due(view):
                await flush_and_record(self.services, self.log, view, view.messages)


class ModelStep:
    """One answer of the model, as far as it has arrived."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Discard everything before a new attempt."""
        self.pieces: list[str] = []
        self.uses: list[ToolUse] = []
        self.end = Finished("end", ModelUsage())
        self.was_shown = False
        """True once text has been shown. The call can then not be repeated unnoticed."""
        self._filter = NoReplyFilter()

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def read(self, event: ModelEvent) -> str:
        """Take in an event, and return the text to show now."""
        match event:
            case TextDelta(text):
                self.pieces.append(text)
                return self._show(self._filter.feed(text))
            case ToolUse():
                self.uses.append(event)
            case Finished():
                self.end = event
        return ""

    def finish(self) -> str:
        """Return the rest of the text to show."""
        return self._show(self._filter.finish())

    def _show(self, text: str) -> str:
        self.was_shown = self.was_shown or bool(text)
        return text


def _end_notices(end: Finished) -> list[Notice]:
    match end.reason:
        case "length":
            return [Notice("The answer was cut off at the model's limit.")]
        case "refused":
            return [Notice("The model declined to answer.")]
    return []


def read_reply(answer: LoggedMessage) -> Reply:
    """Return the reply that an entry of the transcript records."""
    text = answer.message.metadata.get(_REPLY) or answer.message.text
    silent = is_no_reply(text)
    reply = strip_no_reply(text)
    return Reply(reply.strip() if silent else reply, answer.entry.id, silent)


def run_tool(services: AgentServices, use: ToolUse, leave_out: LeaveOut) -> ToolOutcome:
    """Run a tool. Every failure is an outcome, so that the model learns about it and can react."""
    names = [spec.name for spec in services.tool_specs()]
    if use.name not in names:
        return _failed_outcome(f"There is no tool '{use.name}'. There are: {', '.join(names)}.")
    try:
        return services.toolbox.run(use.name, use.arguments, leave_out=leave_out)
    except Exception as exc:  # noqa: BLE001 - a defect of a tool must not end the turn
        return _failed_outcome(f"{use.name} failed: {type(exc).__name__}: {exc}")


def _failed_outcome(message: str) -> ToolOutcome:
    return ToolOutcome(message, {"error": {"code": "tool_failed", "message": message, "hint": ""}}, is_error=True)
