"""One turn: recall → context → model, with tools as often as it asks for them → a reply that is remembered.

What is said stands in the transcript before anything is done with it: the person's message before the model is asked,
the model's calls before they are carried out, their results and the reply before they are given out. So a turn that
broke off, wherever it did, is gone on with from what the transcript says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

from kept.agent.compaction import CompactionRequest, compact, flush_and_record
from kept.agent.equipment import AgentServices
from kept.agent.events import AgentEvent, GroupLine, Inbound, Notice, Reply, ToolEnded, ToolStarted
from kept.agent.flush import is_due_early
from kept.agent.inbound import messages_of
from kept.agent.journal import SessionLog, find_answer, open_calls, unanswered
from kept.agent.quiet import is_quiet, without_quiet
from kept.agent.recall import TurnMaterial, bring
from kept.agent.step import ModelStep
from kept.agent.tooling import run_tool
from kept.context.build import Context, Material, build_context
from kept.context.turns import NO_RESULT
from kept.context.view import ANSWERS, ConversationView, LoggedMessage
from kept.errors import ContextOverflow, KeptError, ModelError
from kept.llm.base import ModelUsage, ToolUse
from kept.prompts import get_prompt
from kept.records import Hit
from kept.sessions.entries import Block, Message, Text, TokenUsage, ToolCall, ToolResult
from kept.tokens import estimate_tokens

ATTEMPTS = 3
COMPACTIONS = 2
"""How often a turn that is too long for the model is made shorter before it is given up."""
LAST_STEP = "(No more tools can be used in this turn. Answer now with what you have.)"
GAVE_UP = "I stopped here: I had used all the steps that one turn may take and have not come to an answer."
_REPLY = "reply"
"""In the metadata of an answer: what it said before its last step, where it says nothing in that."""

log = logging.getLogger(__name__)


class TurnLoop:
    def __init__(
        self,
        equipment: AgentServices,
        journal: SessionLog,
        messages: Sequence[Inbound],
        group: Sequence[GroupLine],
        *,
        told: set[str],
    ) -> None:
        self.equipment = equipment
        self.journal = journal
        self.messages = messages
        self.group = group
        self._told = told
        self._brought = TurnMaterial()
        self._asked: list[str] = []
        """Ids of the messages that this turn answers."""
        self._said: list[str] = []
        """What the model has said beside its calls of tools."""
        self._overflows = 0

    async def run(self) -> AsyncGenerator[AgentEvent, None]:
        view = await asyncio.to_thread(self.journal.view)
        ids = [message.id for message in self.messages]
        self._asked = unanswered(view, ids)
        if not self._asked:
            answer = find_answer(view, ids)
            if answer is not None:
                yield reply_of(answer)
            return
        await asyncio.to_thread(self._receive, view)
        async for event in self._prepare():
            yield event
        reply = None
        async for event in self._steps():
            reply = event if isinstance(event, Reply) else reply
            yield event
        if reply is not None:
            await self._make_room_quietly()

    # taking in

    def _receive(self, view: ConversationView) -> None:
        """The messages are on disk after this, and no call of a tool is without its result."""
        results = [ToolResult(call.id, NO_RESULT, call.name, is_error=True) for call in open_calls(view)]
        if results:
            self.journal.add(Message("tool", tuple(results)))
        wanted = [message for message in self.messages if message.id in self._asked]
        self.journal.add_inbound(messages_of(wanted, self.group))

    async def _prepare(self) -> AsyncIterator[AgentEvent]:
        """Brings in what is remembered, and makes room where the conversation has become too long."""
        self._brought = await asyncio.to_thread(bring, self.equipment, self.journal, self.messages)
        for problem in self._brought.problems:
            if notice := self._once(problem):
                yield notice
        context = await asyncio.to_thread(self._context)
        for cut in context.cuts:
            if notice := self._once(str(cut)):
                yield notice
        if self._is_too_long(context.tokens):
            done = await compact(self.equipment, self.journal, CompactionRequest("threshold", context.fixed_tokens))
            if done.done:
                yield Notice("The older part of this conversation has been summarised.")

    def _once(self, text: str) -> Notice | None:
        if text in self._told:
            return None
        self._told.add(text)
        return Notice(text)

    def _context(self, remark: str | None = None) -> Context:
        view = self.journal.view()
        asked = [one.id for one in view.said if one.inbound in self._asked]
        material = Material(
            view=view,
            path=self.journal.path,
            agent=self.equipment.config.agent_id,
            now=self.equipment.clock.now(),
            files=self._brought.files,
            recalled=self._brought.recalled,
            recalled_for=asked[0] if asked else None,
            tools=self.equipment.tool_specs(),
            remark=remark,
            trusts_files=self.equipment.config.trusts_workspace,
            fenced=self.equipment.has_model,
        )
        return build_context(material, self.equipment.budget, secret=self.equipment.secret)

    # answering

    async def _steps(self) -> AsyncIterator[AgentEvent]:
        most = self.equipment.config.agent.tools.max_steps
        for number in range(most + 1):
            remark = LAST_STEP if number and number == most else None
            step = ModelStep()
            async for event in self._ask(step, remark):
                yield event
            if not step.uses:
                async for event in self._finish(step):
                    yield event
                return
            await asyncio.to_thread(self._record_calls, step)
            if number < most:
                async for event in self._use_tools(step.uses):
                    yield event
            else:
                await asyncio.to_thread(self._refuse_calls, step.uses)
        yield Notice(f"The turn was ended after {most} steps with tools.")
        yield await asyncio.to_thread(self._record_reply, GAVE_UP, ModelUsage())

    async def _ask(self, step: ModelStep, remark: str | None) -> AsyncIterator[AgentEvent]:
        """Asks until an answer has come whole, as long as nobody has seen part of one that did not."""
        attempt, wait_s = 0, self.equipment.retry_wait_s
        while True:
            context = await asyncio.to_thread(self._context, remark)
            try:
                async for event in step.listen(self.equipment.model, context.request):
                    yield event
                self.equipment.learn_scale(step.end.usage.input, context.tokens)
                return
            except ContextOverflow as exc:
                if step.given_out or not await self._shorten(context, remark):
                    raise ContextOverflow(
                        f"The conversation does not fit into the model's window, even summarised: {exc.message}",
                        hint="Begin a new session with /new, or set model.context_window to what the model takes.",
                    ) from exc
                yield Notice("The conversation was too long for the model and has been shortened.")
            except ModelError as exc:
                attempt += 1
                if not exc.retryable or step.given_out or attempt == ATTEMPTS:
                    raise
                await asyncio.sleep(wait_s)
                wait_s *= 2

    async def _shorten(self, context: Context, remark: str | None) -> bool:
        """After the model has refused a request as too long: whether there is a shorter one to try."""
        if self._overflows == COMPACTIONS:
            return False
        self._overflows += 1
        self.equipment.learn_window(context.tokens)
        order = CompactionRequest("overflow", context.fixed_tokens, squeeze=self._overflows - 1)
        await compact(self.equipment, self.journal, order)
        shorter = await asyncio.to_thread(self._context, remark)
        return shorter.tokens < context.tokens

    # tools

    def _record_calls(self, step: ModelStep) -> None:
        said: tuple[Block, ...] = (Text(step.text),) if step.text.strip() else ()
        calls = tuple(ToolCall(use.id, use.name, dict(use.arguments)) for use in step.uses)
        self._said += [step.text] if step.text.strip() else []
        self.journal.add(self._assistant((*said, *calls), step.end.usage, {}))

    async def _use_tools(self, uses: Sequence[ToolUse]) -> AsyncIterator[AgentEvent]:
        """One after the other: a model may rely on what it wrote before it searches."""
        done: list[ToolResult] = []
        try:
            for use in uses:
                yield ToolStarted(use.name, use.arguments)
                outcome = await asyncio.to_thread(run_tool, self.equipment, use, self._is_being_said)
                done.append(ToolResult(use.id, outcome.text, use.name, outcome.is_error))
                yield ToolEnded(use.name, not outcome.is_error)
        finally:  # cancelled or not, a call does not stay without a result
            left = [ToolResult(use.id, NO_RESULT, use.name, is_error=True) for use in uses[len(done) :]]
            self.journal.add(Message("tool", (*done, *left)))

    def _is_being_said(self, hit: Hit) -> bool:
        """The question is in the index already, and fits itself best of all."""
        asked = (one.line for one in self.journal.view().asked if one.inbound in self._asked)
        return hit.path == self.journal.path and hit.start_line >= min(asked, default=hit.start_line + 1)

    def _refuse_calls(self, uses: Sequence[ToolUse]) -> None:
        results = (ToolResult(use.id, LAST_STEP, use.name, is_error=True) for use in uses)
        self.journal.add(Message("tool", tuple(results)))

    # the reply

    async def _finish(self, step: ModelStep) -> AsyncIterator[AgentEvent]:
        if step.end.reason == "length":
            yield Notice("The answer was cut off where the model's limit is.")
        elif step.end.reason == "refused":
            yield Notice("The model declined to answer.")
        yield await asyncio.to_thread(self._record_reply, step.text, step.end.usage)

    def _record_reply(self, text: str, usage: ModelUsage) -> Reply:
        metadata: dict[str, Any] = {ANSWERS: list(self._asked)}
        if not text.strip() and self._said:
            metadata[_REPLY] = self._said[-1]
        content: tuple[Block, ...] = (Text(text),)
        (entry,) = self.journal.add(self._assistant(content, usage, metadata))
        assert isinstance(entry.body, Message)
        return reply_of(LoggedMessage(0, entry, entry.body))

    def _assistant(self, content: tuple[Block, ...], usage: ModelUsage, metadata: dict[str, Any]) -> Message:
        model = self.equipment.model
        # What a program like claude counts is its own context, with its own prompt and tools; ours is estimated.
        counted = usage.input + usage.output if model.runs_tools else 0
        context = counted or self._context().tokens + sum(
            estimate_tokens(block.text) for block in content if isinstance(block, Text)
        )
        metadata["prompt"] = get_prompt("system").label
        taken = TokenUsage(usage.input, usage.output, context)
        return Message("assistant", content, model=model.name, usage=taken, metadata=metadata)

    def _is_too_long(self, tokens: int) -> bool:
        """A compaction that did not help is not tried again until a tenth more has been said."""
        return tokens >= self.equipment.budget.compact_at and tokens > self.journal.futile_tokens * 1.1

    # afterwards

    async def _make_room_quietly(self) -> None:
        """The reply has been given out. What does not work now is tried again before the next."""
        try:
            await self._make_room()
        except KeptError as exc:
            log.warning("session %s: no room could be made (%s)", self.journal.session_id, exc.code)

    async def _make_room(self) -> None:
        """After the reply, when nobody is waiting: writes down and summarises what the next turn has no room for."""
        context = await asyncio.to_thread(self._context)
        if self._is_too_long(context.tokens):
            await compact(self.equipment, self.journal, CompactionRequest("threshold", context.fixed_tokens))
        elif context.tokens >= self.equipment.budget.flush_at and self.equipment.flushes:
            view = await asyncio.to_thread(self.journal.view)
            if is_due_early(view):
                await flush_and_record(self.equipment, self.journal, view, view.said)


def reply_of(answer: LoggedMessage) -> Reply:
    """A reply as it stands in the transcript."""
    text = answer.message.metadata.get(_REPLY) or answer.message.text
    return Reply(without_quiet(text).strip() if is_quiet(text) else without_quiet(text), answer.id, is_quiet(text))
