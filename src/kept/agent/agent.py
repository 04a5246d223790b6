"""Agent: answers messages, remembers, and keeps a conversation within the window of its model.

A turn: recall → context → model, with tools as often as it calls them → a reply that is recorded.

Everything is in the transcript before it has an effect: the person's message before the model is called, tool calls
before they run, their results and the reply before they are yielded. So a turn that broke off anywhere can resume from
the transcript.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from kept.agent.answer import ModelAnswer, is_no_reply, strip_no_reply
from kept.agent.approvals import ApprovalDesk
from kept.agent.compaction import CompactionRequest, compact
from kept.agent.events import (
    AgentEvent,
    ApprovalAsked,
    CompactionResult,
    GroupLine,
    Inbound,
    Notice,
    Reply,
    ReplyDelta,
)
from kept.agent.extra_tools import ExtraTools
from kept.agent.flush import flush_and_record, is_early_flush_due
from kept.agent.function_tool import FunctionTool
from kept.agent.material import TurnMaterial, find_day_notes, gather_material
from kept.agent.room import flush_backlog, flush_ended, prune
from kept.agent.services import ATTEMPTS, AgentServices, ModelLimits, add_usage, load_secret, usage_fields
from kept.agent.session_log import SessionLog, run_to_end
from kept.agent.session_models import SessionModels
from kept.agent.tool_step import LAST_STEP, ToolStep
from kept.agent.turn_context import ContextPreview, build_turn_context, preview_context
from kept.clock import Clock
from kept.context.context import Context
from kept.context.context_parts import CONTEXT, read_context
from kept.context.view import ANSWERS, ConversationView
from kept.errors import ContextOverflow, KeptError, ModelError
from kept.limits import estimate_tokens
from kept.llm.base import NO_REPLY, ChatModel, ModelUsage
from kept.memory import Memory
from kept.prompts import get_prompt
from kept.sessions.echoes import RECALLED
from kept.sessions.entries import Block, Entry, Message, Text, Thinking, TokenUsage, ToolCall
from kept.sessions.store import SessionStore
from kept.tools.tool_definitions import TOOLS
from kept.tools.toolbox import Toolbox

MAX_COMPACTIONS = 2
"""Compactions per turn because the model refused a request as too long, before the turn is given up."""
GAVE_UP = "I stopped here: I had used all the steps that one turn may take and have not come to an answer."
_REPLY = "reply"
"""Metadata of an answer whose own text is not the whole reply: the reply, with what the model wrote beside its tool
calls. Also what is sent instead of an empty answer."""

_TURN_USAGE = "turnUsage"
"""Metadata of an answer after tool calls: tokens of all calls of the model in its turn."""

_END_NOTICES = {
    "length": "The answer was cut off at the model's limit.",
    "refused": "The model declined to answer.",
}
EMPTY_ANSWER = "The model sent an empty answer."
STOPPED = "(Stopped by the person before there was an answer.)"
_MAX_LOGS = 32
"""Sessions whose lines are kept in memory."""

log = logging.getLogger(__name__)


class Agent:
    """One agent: a memory, its conversations and a model.

    >>> agent = Agent(memory, sessions, model)
    >>> session = sessions.get_or_create("terminal", "me")
    >>> async for event in agent.respond(session.id, [Inbound("1", "Which port is staging on?")]):
    ...     print(event)

    Turns of one session run one after the other; those of different sessions run concurrently.
    """

    def __init__(
        self,
        memory: Memory,
        sessions: SessionStore,
        model: ChatModel,
        *,
        tools: Sequence[Callable[..., Any] | FunctionTool] = (),
        toolbox: Toolbox | None = None,
        clock: Clock | None = None,
        retry_wait_s: float = 1.0,
    ) -> None:
        """``tools`` are functions that the model may call. See `FunctionTool` for those that need permission."""
        settings = memory.config.agent.tools
        self.services = AgentServices(
            config=memory.config,
            memory=memory,
            sessions=sessions,
            model=model,
            toolbox=toolbox or Toolbox(memory, sessions),
            clock=clock or memory.clock,
            limits=ModelLimits(model, clock=clock or memory.clock),
            extra=ExtraTools(
                tools,
                memory.config.agent.mcp_servers,
                reserved=[tool.name for tool in TOOLS],
                max_result_chars=settings.max_result_chars,
                clock=clock or memory.clock,
            ),
            approvals=ApprovalDesk(timeout_s=settings.ask_timeout_s),
            retry_wait_s=retry_wait_s,
            secret=load_secret(memory.config.paths.fence_key),
        )
        self.models = SessionModels(self.services)
        self._logs: OrderedDict[str, SessionLog] = OrderedDict()
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}
        """Lock of each session in use, and the number of turns that hold it or wait for it."""

    def respond(
        self,
        session_id: str,
        messages: Sequence[Inbound],
        *,
        group: Sequence[GroupLine] = (),
        withdraw: Callable[[], bool] = lambda: False,
    ) -> AsyncGenerator[AgentEvent, None]:
        """Answer messages of one conversation in a single turn; see `AgentTurn.run`.

        ``withdraw`` is called if an answer breaks off after some of it was yielded. It returns True if nobody has seen
        those pieces and they are dropped; then the model is called again.
        """
        return AgentTurn(self.services, self.models, self._session(session_id), messages, group, withdraw).run()

    def preview(self, text: str, session_id: str | None = None) -> ContextPreview:
        """Return what the model would be sent for a message now, in a conversation or a new one. Nothing is written,
        and the model is not called."""
        return preview_context(self.services, session_id, text)

    async def stop(self, session_id: str, message_ids: Sequence[str]) -> None:
        """Record that messages are not to be answered any more, so that no later request repeats them."""
        async with self._session(session_id) as log:
            view = await asyncio.to_thread(log.view)
            answered = {answered_id for answer in view.answers for answered_id in answer.answered_ids}
            received = {logged.inbound_id for logged in view.inbound}
            open_ids = [name for name in message_ids if name in received and name not in answered]
            if open_ids:
                metadata = {ANSWERS: open_ids, _REPLY: NO_REPLY}
                await run_to_end(log.add, Message("assistant", (Text(STOPPED),), metadata=metadata))

    async def compact(self, session_id: str, *, instructions: str | None = None) -> CompactionResult:
        async with self._session(session_id) as log:
            services = await asyncio.to_thread(self.models.equip, self.services, log)
            return await compact(services, log, CompactionRequest("asked for", instructions=instructions))

    async def flush_ended(self, session_id: str) -> None:
        """Write down what is new in a session that has ended. A failure is logged: nobody waits for it."""
        try:
            async with self._session(session_id) as ended:
                services = await asyncio.to_thread(self.models.equip, self.services, ended)
                await flush_ended(services.writer, ended)
        except KeptError as exc:
            log.warning("session %s: it could not be flushed at its end (%s)", session_id, exc.code)

    def decide(self, approval_id: str, *, allow: bool, by: str) -> bool:
        """Decide about a call of a tool that waits. Return False if it does not wait any more."""
        return self.services.approvals.decide(approval_id, allow=allow, by=by)

    def waiting_approvals(self, session_id: str | None = None) -> list[ApprovalAsked]:
        """Return the calls that wait for a decision, oldest first."""
        return self.services.approvals.waiting(session_id)

    async def close(self) -> None:
        """End the MCP servers that the agent has started."""
        await self.services.extra.close()

    @asynccontextmanager
    async def _session(self, session_id: str) -> AsyncIterator[SessionLog]:
        """Hold a session for one turn, and return its log."""
        lock, users = self._turns.get(session_id, (asyncio.Lock(), 0))
        self._turns[session_id] = (lock, users + 1)
        try:
            async with lock:
                log = self._logs.get(session_id)
                if log is None:
                    log = await asyncio.to_thread(SessionLog, self.services.sessions, session_id)
                self._logs[session_id] = log
                self._logs.move_to_end(session_id)
                while len(self._logs) > _MAX_LOGS:
                    self._logs.popitem(last=False)
                yield log
        finally:
            lock, users = self._turns[session_id]
            if users == 1:
                del self._turns[session_id]
            else:
                self._turns[session_id] = (lock, users - 1)


@dataclass
class AgentTurn:
    """Answer to some messages of one session."""

    services: AgentServices
    models: SessionModels
    session: AbstractAsyncContextManager[SessionLog]
    messages: Sequence[Inbound]
    group: Sequence[GroupLine]
    withdraw: Callable[[], bool]
    log: SessionLog = field(init=False)
    """Set when the turn begins."""
    shared_limits: ModelLimits = field(init=False)
    """Limits that all turns share. After a refusal, those in ``services`` are the turn's own."""
    _material: TurnMaterial = field(default=TurnMaterial(), init=False)
    _answer: ModelAnswer = field(default_factory=ModelAnswer, init=False)
    """Last answer of the model."""
    _ids: list[str] = field(default_factory=list, init=False)
    """Ids of the messages that this turn answers."""
    _texts: list[str] = field(default_factory=list, init=False)
    """Texts that the model wrote beside its tool calls."""
    _overflows: int = field(default=0, init=False)
    _refused_tokens: int = field(default=0, init=False)
    """Size of the last request that the model refused as too long."""
    _usage: ModelUsage = field(default=ModelUsage(), init=False)
    _sent: Context | None = field(default=None, init=False)
    """Last request that the model answered."""
    _prepared: Context | None = field(default=None, init=False)
    """Request that was built when the turn began, until it is sent."""
    _requests: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.shared_limits = self.services.limits

    async def run(self) -> AsyncGenerator[AgentEvent, None]:
        """Yield the events of the turn. The last one is a `Reply`.

        A compaction that is due runs after the reply, when the next event is requested, of which there is none.
        """
        async with self.session as self.log:
            self.services = await asyncio.to_thread(self.models.equip, self.services, self.log)
            self.shared_limits = self.services.limits
            for event in await self._begin():
                yield event
            if not self._ids:
                return
            max_steps = self.services.config.agent.tools.max_steps
            for number in range(max_steps + 1):
                async with aclosing(self._ask(LAST_STEP if number and number == max_steps else None)) as events:
                    async for event in events:
                        yield event
                if not self._answer.uses:
                    break
                async with aclosing(self._use_tools(refuse=number == max_steps)) as events:
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
        answered = {answered_id for answer in view.answers for answered_id in answer.answered_ids}
        self._ids = [message_id for message_id in dict.fromkeys(ids) if message_id not in answered]
        if not self._ids:
            answers = [answer for answer in view.answers if set(ids) & set(answer.answered_ids)]
            return [read_reply(answer.entry) for answer in answers[-1:]]
        self._texts = list(_texts_beside_calls(view, self._ids))
        new = [message for message in self.messages if message.id in self._ids]
        day_notes = await asyncio.to_thread(find_day_notes, self.services, view)
        await run_to_end(self.log.receive, new, self.group, day_notes)
        unavailable = await self.services.extra.prepare() if self.services.model.runs_tools else []
        self._material = await asyncio.to_thread(gather_material, self.services, self.log, self.messages)
        context = await asyncio.to_thread(self._build_context)
        problems = (*self._material.problems, *map(str, context.cuts), *unavailable)
        notices = [Notice(problem) for problem in problems if self.log.is_new_notice(problem)]
        if self._is_too_long(context.tokens) and await prune(self.services, self.log):
            context = await asyncio.to_thread(self._build_context)
        if self._is_too_long(context.tokens):
            result = await compact(self.services, self.log, CompactionRequest("threshold", context.fixed_tokens))
            if result.done:
                notices.append(Notice("The older part of this conversation has been summarised."))
        else:
            self._prepared = context
        return notices

    def _build_context(self, remark: str | None = None) -> Context:
        return build_turn_context(self.services, self.log, self._material, self._ids, remark)

    # calling the model

    async def _ask(self, remark: str | None) -> AsyncGenerator[AgentEvent, None]:
        """Call the model until an answer is complete. Do not retry once part of an answer has been shown."""
        attempt, backoff = 0, None
        while True:
            prepared, self._prepared = self._prepared, None
            context = await asyncio.to_thread(self._build_context, remark) if prepared is None else prepared
            self._answer = answer = ModelAnswer()
            try:
                async with aclosing(self.services.model.stream(context.request)) as stream:
                    async for event in stream:
                        had_shown = answer.was_shown
                        if text := answer.read(event):
                            # Pieces of a reply in several steps add up to the reply.
                            yield ReplyDelta(text if had_shown or not self._has_text() else f"\n\n{text}")
                self._learn(answer.end.usage, context)
                return
            except ContextOverflow as exc:
                if answer.was_shown or not await self._shorten(context, remark):
                    raise ContextOverflow(
                        f"The conversation does not fit into the model's window, even summarised: {exc.message}",
                        hint="Start a new session with /new, or set model.context_window to the model's limit.",
                    ) from exc
                yield Notice("The conversation was too long for the model and has been shortened.")
            except ModelError as exc:
                attempt += 1
                if not exc.retryable or attempt == ATTEMPTS or (answer.was_shown and not self.withdraw()):
                    raise
                backoff = backoff or self.services.new_backoff()
                await asyncio.sleep(backoff.next_s())

    async def _shorten(self, context: Context, remark: str | None) -> bool:
        """Compact after the model refused a request as too long. Return whether the next request is shorter."""
        if self._overflows == MAX_COMPACTIONS:
            return False
        self._overflows += 1
        self._refused_tokens = context.tokens
        self.services = replace(self.services, limits=self.services.limits.narrowed(context.tokens))
        request = CompactionRequest("overflow", context.fixed_tokens, halvings=self._overflows - 1)
        await compact(self.services, self.log, request)
        shorter = await asyncio.to_thread(self._build_context, remark)
        return shorter.tokens < context.tokens

    def _learn(self, usage: ModelUsage, context: Context) -> None:
        """Note that the model accepted a request of this size."""
        tokens = context.tokens
        self._sent, self._requests = context, self._requests + 1
        self._usage = add_usage(self._usage, usage)
        for limits in {self.services.limits, self.shared_limits}:
            limits.learn_answer(usage.input, tokens)
        if self._refused_tokens > tokens:
            self.shared_limits.learn_refusal(self._refused_tokens)
        self._refused_tokens = 0

    def _has_text(self) -> bool:
        return any(strip_no_reply(text).strip() for text in self._texts)

    # tools

    async def _use_tools(self, *, refuse: bool) -> AsyncGenerator[AgentEvent, None]:
        uses, text = self._answer.uses, self._answer.text
        self._texts.append(text)
        calls = (ToolCall(use.id, use.name, dict(use.arguments)) for use in uses)
        blocks = (*_text_blocks(self._answer), *calls)
        step = ToolStep(self.services, self.log, self._ids, uses)
        await run_to_end(step.claim)
        try:
            await run_to_end(self._record, blocks, self._answer.end.usage, {})
            if refuse:
                await run_to_end(step.refuse)
                return
            async with aclosing(step.run()) as events:
                async for event in events:
                    yield event
        finally:
            await run_to_end(step.release)

    # the reply

    async def _finish(self) -> list[AgentEvent]:
        """Record the reply, and return it after a notice about how the answer ended."""
        content, usage = (*_text_blocks(self._answer),) or (Text(""),), self._answer.end.usage
        text, notice = self._answer.text, _END_NOTICES.get(self._answer.end.reason)
        if self._answer.uses:
            notice = f"The turn was ended after {self.services.config.agent.tools.max_steps} steps with tools."
            text, usage = GAVE_UP, ModelUsage()
            content = (Text(text),)
        metadata: dict[str, Any] = {ANSWERS: list(self._ids)}
        if self._sent is not None:
            metadata |= {RECALLED: list(self._sent.recalled)} if self._sent.recalled else {}
            metadata[CONTEXT] = {**self._sent.parts.to_json(), "requests": self._requests}
        reply = "\n\n".join(part.strip("\n") for part in map(strip_no_reply, (*self._texts, text)) if part.strip())
        if not reply and not is_no_reply(text):  # the person would wait for an answer
            reply, notice = notice or EMPTY_ANSWER, None
        if reply != strip_no_reply(text):
            metadata[_REPLY] = reply
        if self._usage != usage:
            metadata[_TURN_USAGE] = usage_fields(self._usage)
        event = read_reply(await run_to_end(self._record, content, usage, metadata))
        return [Notice(notice), event] if notice else [event]

    def _record(self, content: tuple[Block, ...], usage: ModelUsage, metadata: dict[str, Any]) -> Entry:
        """Write an answer of the model to the transcript."""
        model = self.services.model
        # Claude Code counts its own context, with its own prompt and tools, so ours is estimated.
        counted = usage.input + usage.output if model.runs_tools else 0
        context = counted or self._build_context().tokens + sum(
            estimate_tokens(block.text) for block in content if isinstance(block, Text)
        )
        metadata["prompt"] = get_prompt("system").label
        tokens = TokenUsage(usage.input, usage.output, context)
        (entry,) = self.log.add(Message("assistant", content, model=model.name, usage=tokens, metadata=metadata))
        return entry

    def _is_too_long(self, tokens: int) -> bool:
        """Return whether to compact. After a compaction that did not help, wait until the context is a tenth longer."""
        return tokens >= self.services.budget.compact_at and tokens > self.log.futile_tokens * 1.1

    # after the reply

    async def _compact_or_flush(self) -> None:
        """Compact or flush now, while no one waits, if the next turn would have to.

        The reply has been given, so a failure is logged; the next turn tries again.
        """
        try:
            if await flush_backlog(self.services.writer, self.log):
                return
            context = await asyncio.to_thread(self._build_context)
            if context.tokens >= self.services.budget.flush_at and await prune(self.services, self.log):
                context = await asyncio.to_thread(self._build_context)
            if self._is_too_long(context.tokens):
                await compact(self.services, self.log, CompactionRequest("threshold", context.fixed_tokens))
            elif context.tokens >= self.services.budget.flush_at and self.services.flushes:
                view = await asyncio.to_thread(self.log.view)
                if is_early_flush_due(view):
                    await flush_and_record(self.services.writer, self.log, view, view.messages)
        except KeptError as exc:
            log.warning("session %s: the conversation could not be compacted (%s)", self.log.session_id, exc.code)


def _text_blocks(answer: ModelAnswer) -> Iterator[Block]:
    yield from (Thinking(thought.text, thought.signature or None) for thought in answer.thoughts)
    if answer.reasoning:
        yield Thinking(answer.reasoning)
    if answer.text.strip():
        yield Text(answer.text)


def _texts_beside_calls(view: ConversationView, ids: Collection[str]) -> Iterator[str]:
    """Yield what the model has written for these messages beside its tool calls, in a turn that broke off."""
    lines = [logged.line for logged in view.inbound if logged.inbound_id in ids]
    for logged in view.messages:
        if lines and logged.line > min(lines) and logged.message.role == "assistant" and not logged.answered_ids:
            yield logged.message.text


def read_reply(answer: Entry) -> Reply:
    """Return the reply that an entry of the transcript records."""
    assert isinstance(answer.body, Message)
    reply = strip_no_reply(answer.body.metadata.get(_REPLY) or answer.body.text)
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
