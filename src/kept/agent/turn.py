"""A turn: recall → context → model, with tools as often as it calls them → a reply that is recorded.

Everything is in the transcript before it has an effect: the person's message before the model is called, tool calls
before they run, their results and the reply before they are yielded. So a turn that broke off anywhere can resume from
the transcript.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kept.agent.answer import ATTEMPTS, MAX_RETRY_WAIT_S, ModelAnswer, is_no_reply, strip_no_reply, usage_fields
from kept.agent.compaction import CompactionRequest, compact
from kept.agent.context import CONTEXT, Context, TurnMaterial, build_context, read_context
from kept.agent.events import (
    UNDECIDED,
    AgentEvent,
    GroupLine,
    Inbound,
    Notice,
    Reply,
    ReplyDelta,
    ToolEnded,
    ToolStarted,
    denied_text,
)
from kept.agent.flush import flush_and_record
from kept.agent.material import gather_material
from kept.agent.session_log import ANSWERS, APPROVAL, ASKED, NO_RESULT, SessionLog, run_to_end
from kept.agent.tools.tool_definitions import TOOLS
from kept.agent.tools.toolbox import Toolbox, ToolOutcome
from kept.base.clock import Backoff
from kept.base.limits import estimate_tokens
from kept.base.records import SeenTail
from kept.base.remote_errors import ContextOverflow, ModelError
from kept.base.timings import timed
from kept.errors import KeptError
from kept.models.base import ModelEvent, ModelUsage, ToolOutput, ToolUse, get_prompt
from kept.sessions.echoes import RECALLED
from kept.sessions.entries import Block, Entry, Message, StateEntry, Text, Thinking, TokenUsage, ToolCall, ToolResult

if TYPE_CHECKING:
    from kept.agent.agent import AgentServices, SessionModels

MAX_COMPACTIONS = 2
"""Compactions per turn because the model refused a request as too long, before the turn is given up."""
LAST_STEP = "(No more tools can be used in this turn. Answer now with what you have.)"
_MEMORY_TOOLS = frozenset(tool.name for tool in TOOLS)
GAVE_UP = "I stopped here: I had used all the steps that one turn may take and have not come to an answer."
REPLY = "reply"
"""Metadata of an answer whose own text is not the whole reply: the reply, with what the model wrote beside its tool
calls. Also what is sent instead of an empty answer."""

_TURN_USAGE = "turnUsage"
"""Metadata of an answer after tool calls: tokens of all calls of the model in its turn."""

_END_NOTICES = {
    "length": "The answer was cut off at the model's limit.",
    "refused": "The model declined to answer.",
}
BROKE_OFF = "\n\n[The answer broke off and begins again.]\n\n"
EMPTY_ANSWER = "The model sent an empty answer."

log = logging.getLogger(__name__)


@dataclass
class AgentTurn:
    """Answer to some messages of one session."""

    models: SessionModels
    session: AbstractAsyncContextManager[SessionLog]
    messages: Sequence[Inbound]
    group: Sequence[GroupLine]
    log: SessionLog = field(init=False)
    services: AgentServices = field(init=False)
    _material: TurnMaterial = field(init=False)
    _context: Context = field(init=False)
    """Next request, or the last one once the model has answered. All four are set when the turn begins."""
    _answer: ModelAnswer = field(default_factory=ModelAnswer)
    """Last answer of the model."""
    _ids: list[str] = field(default_factory=list)
    """Ids of the messages that this turn answers."""
    _texts: list[str] = field(default_factory=list)
    """Texts that the model wrote beside its tool calls."""
    _overflows: int = 0
    """Requests that were too long."""
    _failures: int = 0
    """Failed attempts at the next answer."""
    _requests: int = 0
    _usage: ModelUsage = ModelUsage()
    _steps: int = 0
    """Answers with tool calls so far."""
    _own_calls: dict[str, str] = field(default_factory=dict)
    """Names of the tools that the model's own program has called, by the id of the call."""
    _results: list[ToolResult] = field(default_factory=list)
    """Results of the tools that the last answer calls, so far."""
    _remark: str | None = None
    """What the next request says after everything else."""
    _is_answered: bool = False
    """True once the model is not called again."""

    async def run(self) -> AsyncGenerator[AgentEvent, None]:
        """Yield the events of the turn. The last one is a `Reply`.

        A compaction that is due runs after the reply, when the next event is requested, of which there is none.
        """
        async with self.session as self.log:
            self.services = await asyncio.to_thread(self.models.equip, self.log)
            for event in await self._begin():
                yield event
            if not self._ids:
                return
            while not self._is_answered:
                try:
                    async with aclosing(self._read_answer()) as events:
                        async for event in events:
                            yield event
                except ModelError as exc:
                    for event in await self._recover(exc):
                        yield event
                    continue
                usage, self._is_answered = self._answer.end.usage, not self._answer.uses
                self._requests, self._failures, self._usage = self._requests + 1, 0, self._usage + usage
                self.services.limits.learn_answer(usage.input, self._context.tokens)
                if self._answer.uses:
                    async with aclosing(self._use_tools()) as events:
                        async for event in events:
                            yield event
            for event in await self._finish():
                yield event
            await self._compact_or_flush()

    # receiving

    async def _begin(self) -> Sequence[AgentEvent]:
        """Record the messages, recall memories, and compact a conversation that is too long.

        Return notices for the person, or the reply if it is recorded already.
        """
        view = await asyncio.to_thread(self.log.view)
        ids = [message.id for message in self.messages]
        self._ids = [message_id for message_id in dict.fromkeys(ids) if message_id not in view.answered_ids]
        if not self._ids:
            answers = [answer for answer in view.answers if set(ids) & set(answer.answered_ids)]
            return [read_reply(answer.entry) for answer in answers[-1:]]
        # A turn that broke off may have written texts beside its tool calls.
        lines = [logged.line for logged in view.inbound if logged.inbound_id in self._ids]
        self._texts = [
            logged.message.text
            for logged in view.messages
            if lines and logged.line > min(lines) and logged.message.role == "assistant" and not logged.answered_ids
        ]
        new = [message for message in self.messages if message.id in self._ids]
        await run_to_end(self.log.receive, new, self.group)
        extra = self.services.extra
        unavailable = await extra.prepare() if self.services.model.runs_tools and extra.servers else []
        self._material = await asyncio.to_thread(gather_material, self.services, self.log, self.messages)
        self._context = await asyncio.to_thread(self._build_context)
        cuts = (f"Not in the context: {cut}." for cut in self._context.cuts)
        problems = [*self._material.problems, *cuts, *unavailable]
        if (view.compaction or self._context.tokens >= self.services.budget.flush_at) and self.services.flushes:
            problems += filter(None, [self.services.memory.workspace.why_read_only()])
        notices = [Notice(problem) for problem in dict.fromkeys(problems) if problem not in self.log.notices]
        self.log.notices.update(problems)
        if self._is_too_long():
            result = await compact(self.services, self.log, CompactionRequest("threshold", self._context.fixed_tokens))
            if result.done:
                notices.append(Notice("The older part of this conversation has been summarised."))
                self._context = await asyncio.to_thread(self._build_context)
        return notices

    def _build_context(self) -> Context:
        """Return the request for the conversation as it is now."""
        view = self.log.view()
        answering = tuple(logged.entry.id for logged in view.messages if logged.inbound_id in self._ids)
        material = replace(self._material, view=view, answering=answering, remark=self._remark)
        return build_context(material, self.services.budget, secret=self.services.secret)

    # calling the model

    async def _read_answer(self) -> AsyncGenerator[AgentEvent, None]:
        """Call the model, and yield its answer as it arrives: in no other way do tokens go to the caller."""
        self._answer = answer = ModelAnswer()
        model = self.services.model
        # Pieces of a reply in several steps add up to the reply.
        lead = "\n\n" if any(strip_no_reply(text).strip() for text in self._texts) else ""
        async with aclosing(model.stream(self._context.request)) as stream:
            async for event in stream:
                if not model.runs_tools and (own_call := await self._record_own_call(event)):
                    yield own_call
                elif text := answer.read(event):
                    yield ReplyDelta(lead + text)
                    lead = ""

    async def _recover(self, error: ModelError) -> Sequence[AgentEvent]:
        """Prepare to call the model again after an error, and return notices for the person.

        Raise the error if that is no use. Whoever has seen a part of the answer is told that it begins again.
        """
        if isinstance(error, ContextOverflow):
            if self._answer.was_shown or not await self._shorten():
                raise ContextOverflow(
                    f"The conversation does not fit into the model's window, even summarised: {error.message}",
                    hint="Start a new session with /new, or set model.context_window to the model's limit.",
                ) from error
            return [Notice("The conversation was too long for the model and has been shortened.")]
        self._failures += 1
        if not error.retryable or self._failures == ATTEMPTS:
            raise error
        first_s = self.services.retry_wait_s * 2 ** (self._failures - 1)
        await asyncio.sleep(Backoff(first_s, MAX_RETRY_WAIT_S).next_s())
        return [ReplyDelta(BROKE_OFF)] if self._answer.was_shown else []

    async def _shorten(self) -> bool:
        """Compact after the model refused a request as too long. Return whether the next request is shorter."""
        if self._overflows == MAX_COMPACTIONS:
            return False
        self._overflows += 1
        refused = self._context
        self.services = replace(self.services, limits=self.services.limits.narrowed(refused.tokens))
        request = CompactionRequest("overflow", refused.fixed_tokens, halvings=self._overflows - 1)
        await compact(self.services, self.log, request)
        self._context = await asyncio.to_thread(self._build_context)
        return self._context.tokens < refused.tokens

    # tools

    async def _use_tools(self) -> AsyncGenerator[AgentEvent, None]:
        """Run the tools that the last answer calls. After the last step they are refused."""
        self._texts.append(self._answer.text)
        self._results = []
        calls = (ToolCall(use.id, use.name, dict(use.arguments)) for use in self._answer.uses)
        claim = ExitStack()
        # Shows other processes that these calls are being carried out. The claim ends with this process.
        await run_to_end(claim.enter_context, self.log.claimed("calls"))
        try:
            await run_to_end(self._record, {}, *calls)
            self._steps += 1
            max_steps = self.services.memory.config.agent.tools.max_steps
            self._remark = LAST_STEP if self._steps == max_steps else None
            self._is_answered = self._steps > max_steps
            try:
                if not self._is_answered:
                    async with aclosing(self._run_tools()) as events:
                        async for event in events:
                            yield event
            finally:  # even if the turn is cancelled, no call stays without a result
                missing = LAST_STEP if self._is_answered else NO_RESULT
                rest = self._answer.uses[len(self._results) :]
                self._results += (ToolResult(use.id, missing, use.name, is_error=True) for use in rest)
                await run_to_end(self.log.add, Message("tool", tuple(self._results)))
        finally:
            await run_to_end(claim.close)
        if not self._is_answered:
            self._context = await asyncio.to_thread(self._build_context)

    async def _run_tools(self) -> AsyncGenerator[AgentEvent, None]:
        """Run the tools one after the other: a model may search for what it has just written."""
        approvals = self.services.approvals
        for use in self._answer.uses:
            tool = self.services.extra.tools.get(use.name)
            if tool is not None and tool.permission == "ask":
                asked, state = approvals.open(self.log.session_id, use), {"call": use.id, "tool": use.name}
                # This result stands if the turn is stopped while a person is asked.
                self._results.append(ToolResult(use.id, UNDECIDED, use.name, is_error=True))
                try:
                    await run_to_end(self.log.add, StateEntry(APPROVAL, {**state, "decision": ASKED}))
                    yield asked
                    decided = await approvals.wait(asked)
                finally:
                    approvals.drop(asked)
                self._results.pop()
                word = "allowed" if decided.allowed else "timeout" if decided.timed_out else "denied"
                await run_to_end(self.log.add, StateEntry(APPROVAL, {**state, "decision": word, "by": decided.by}))
                yield decided
                if not decided.allowed:
                    self._results.append(ToolResult(use.id, denied_text(decided), use.name, is_error=True))
                    continue
            yield ToolStarted(use.name, use.arguments)
            is_known = tool is not None or use.name in _MEMORY_TOOLS  # a model may make up any name
            with timed("tool_call", tool=use.name if is_known else "unknown") as measured:
                if tool is not None:
                    outcome = await self.services.extra.call(tool, use.arguments)
                else:
                    outcome = await asyncio.to_thread(self._call_memory, use)
                measured["ok"] = not outcome.is_error
            self._results.append(ToolResult(use.id, outcome.text, use.name, outcome.is_error))
            yield ToolEnded(use.name, not outcome.is_error)

    def _call_memory(self, use: ToolUse) -> ToolOutcome:
        names = [spec.name for spec in self._material.tools]
        if use.name not in names:
            return ToolOutcome(f"There is no tool '{use.name}'. There are: {', '.join(names)}.", is_error=True)
        lines = (logged.line for logged in self.log.view().inbound if logged.inbound_id in self._ids)
        seen = SeenTail(self.log.path, min(lines, default=1))
        try:
            toolbox = Toolbox(self.services.memory, self.services.sessions)
            return toolbox.run(use.name, use.arguments, seen=seen, session=self.log.session_id)
        except Exception as exc:  # a defect of a tool must not end the turn
            log.exception("tool %s failed", use.name)
            return ToolOutcome(f"{use.name} failed: {type(exc).__name__}: {exc}", is_error=True)

    async def _record_own_call(self, event: ModelEvent) -> AgentEvent | None:
        """Record a call that the model's own program carries out, or its result. Return None for any other event."""
        match event:
            case ToolUse(call_id, name, arguments):
                self._own_calls[call_id] = name
                call = ToolCall(call_id, name, dict(arguments))
                await run_to_end(self.log.add, Message("assistant", (call,), model=self.services.model.name))
                return ToolStarted(name, arguments)
            case ToolOutput(call_id, text, is_error) if call_id in self._own_calls:
                result = ToolResult(call_id, text, self._own_calls[call_id], is_error)
                await run_to_end(self.log.add, Message("tool", (result,)))
                return ToolEnded(self._own_calls[call_id], not is_error)
        return None

    # the reply

    async def _finish(self) -> list[AgentEvent]:
        """Record the reply, and return it after a notice about how the answer ended."""
        notice = _END_NOTICES.get(self._answer.end.reason)
        if self._answer.uses:
            notice = f"The turn was ended after {self.services.memory.config.agent.tools.max_steps} steps with tools."
            self._answer = ModelAnswer(GAVE_UP)
        text = self._answer.text
        metadata: dict[str, Any] = {ANSWERS: list(self._ids)}
        metadata |= {RECALLED: list(self._context.recalled)} if self._context.recalled else {}
        metadata[CONTEXT] = {**self._context.record, "requests": self._requests}
        reply = "\n\n".join(part.strip("\n") for part in map(strip_no_reply, (*self._texts, text)) if part.strip())
        if not reply and not is_no_reply(text):  # the person would wait for an answer
            reply, notice = notice or EMPTY_ANSWER, None
        if reply != strip_no_reply(text):
            metadata[REPLY] = reply
        if self._usage != self._answer.end.usage:
            metadata[_TURN_USAGE] = usage_fields(self._usage)
        event = read_reply(await run_to_end(self._record, metadata))
        return [Notice(notice), event] if notice else [event]

    def _record(self, metadata: dict[str, Any], *calls: ToolCall) -> Entry:
        """Write the last answer of the model to the transcript, with its tool calls if it has any."""
        answer, model, usage = self._answer, self.services.model, self._answer.end.usage
        content: list[Block] = [Thinking(thought.text, thought.signature or None) for thought in answer.thoughts]
        content += [Thinking(text) for text in [answer.reasoning.strip()] if text]
        content += [Text(text) for text in [answer.text] if text.strip()]
        content = [*content, *calls] or [Text("")]
        # Claude Code counts its own context, with its own prompt and tools, so ours is estimated.
        counted = usage.input + usage.output if model.runs_tools else 0
        context = counted or self._build_context().tokens + estimate_tokens(answer.text)
        metadata["prompt"] = get_prompt("system").label
        tokens = TokenUsage(usage.input, usage.output, context)
        (entry,) = self.log.add(Message("assistant", tuple(content), model=model.name, usage=tokens, metadata=metadata))
        return entry

    def _is_too_long(self) -> bool:
        """Return whether to compact. After a compaction that did not help, wait until the context is a tenth longer."""
        tokens = self._context.tokens
        return tokens >= self.services.budget.compact_at and tokens > self.log.futile_tokens * 1.1

    # after the reply

    async def _compact_or_flush(self) -> None:
        """Compact or flush now, while no one waits, if the next turn would have to.

        The reply has been given, so a failure is logged; the next turn tries again.
        """
        flush_at = self.services.budget.flush_at
        if self._context.tokens + estimate_tokens(self._answer.text) < flush_at * 0.9:
            return  # the next request, which repeats no memories of this one, is not much longer
        try:
            self._context = await asyncio.to_thread(self._build_context)
            if self._is_too_long():
                await compact(self.services, self.log, CompactionRequest("threshold", self._context.fixed_tokens))
            elif self._context.tokens >= flush_at and self.services.flushes:
                view = await asyncio.to_thread(self.log.view)
                if view.flush is None:  # one attempt is made, whatever its outcome
                    await flush_and_record(self.services.writer, self.log, view, view.messages)
        except KeptError as exc:
            log.warning("session %s: the conversation could not be compacted (%s)", self.log.session_id, exc.code)


def read_reply(answer: Entry) -> Reply:
    """Return the reply that an entry of the transcript records."""
    assert isinstance(answer.body, Message)
    reply = strip_no_reply(answer.body.metadata.get(REPLY) or answer.body.text)
    is_silent = not reply.strip()
    own = usage_fields(answer.body.usage) if answer.body.usage else {}
    tokens = {**own, **(answer.body.metadata.get(_TURN_USAGE) or {})}
    return Reply(
        "" if is_silent else reply,
        answer.id,
        is_silent,
        tokens_in=tokens.get("input", 0),
        tokens_out=tokens.get("output", 0),
        context=read_context(answer.body),
    )
