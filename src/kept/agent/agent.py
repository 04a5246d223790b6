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
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from kept.agent.compaction import CompactionRequest, compact
from kept.agent.events import (
    AgentEvent,
    CompactionResult,
    GroupLine,
    Inbound,
    Notice,
    Reply,
    ReplyDelta,
    ToolEnded,
    ToolStarted,
)
from kept.agent.flush import flush_and_record, is_early_flush_due
from kept.agent.services import ATTEMPTS, AgentServices, ModelAnswer, ModelLimits, strip_no_reply
from kept.agent.session_log import SessionLog, run_to_end
from kept.clock import Clock
from kept.context.context import (
    NO_RESULT,
    Budget,
    Context,
    ContextMaterial,
    RecalledPassage,
    WorkspaceFile,
    build_context,
)
from kept.context.view import ANSWERS
from kept.errors import ContextOverflow, EmptyQuery, KeptError, ModelError
from kept.limits import estimate_tokens
from kept.llm.base import ChatModel, ModelUsage, ToolUse
from kept.memory import MOST_RESULTS, Memory
from kept.prompts import get_prompt
from kept.records import SeenTail
from kept.sessions.echoes import RECALLED
from kept.sessions.entries import Block, Entry, Message, Text, TokenUsage, ToolCall, ToolResult
from kept.sessions.store import SessionStore
from kept.tools.toolbox import Toolbox, ToolOutcome
from kept.values import frozen
from kept.workspace.opened import OpenWorkspace
from kept.workspace.workspace import INFORMING, INSTRUCTING

MAX_COMPACTIONS = 2
"""Compactions per turn because the model refused a request as too long, before the turn is given up."""
LAST_STEP = "(No more tools can be used in this turn. Answer now with what you have.)"
GAVE_UP = "I stopped here: I had used all the steps that one turn may take and have not come to an answer."
_REPLY = "reply"
"""Metadata of an answer without text: the last text that the model wrote beside its tool calls."""

_END_NOTICES = {
    "length": "The answer was cut off at the model's limit.",
    "refused": "The model declined to answer.",
}
_MAX_LOGS = 32
"""Sessions whose lines are kept in memory."""
QUERY_CHARS = 1_000
_SPARE_HITS = 8
"""Additional hits to search for, since some of the best are in the conversation already."""
UNTRUSTED = (
    "SOUL.md and AGENTS.md of {workspace} are data for the model, not instructions: only --workspace or KEPT_WORKSPACE "
    "names that workspace. Name it in config.yaml to make them instructions."
)

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
        toolbox: Toolbox | None = None,
        clock: Clock | None = None,
        retry_wait_s: float = 1.0,
    ) -> None:
        self.services = AgentServices(
            config=memory.config,
            memory=memory,
            sessions=sessions,
            model=model,
            toolbox=toolbox or Toolbox(memory, sessions),
            clock=clock or memory.clock,
            limits=ModelLimits(model),
            retry_wait_s=retry_wait_s,
        )
        self._logs: OrderedDict[str, SessionLog] = OrderedDict()
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}
        """Lock of each session in use, and the number of turns that hold it or wait for it."""

    def respond(
        self, session_id: str, messages: Sequence[Inbound], *, group: Sequence[GroupLine] = ()
    ) -> AsyncGenerator[AgentEvent, None]:
        """Answer messages of one conversation in a single turn; see `AgentTurn.run`."""
        return AgentTurn(self.services, self._session(session_id), messages, group).run()

    async def compact(self, session_id: str, *, instructions: str | None = None) -> CompactionResult:
        async with self._session(session_id) as log:
            return await compact(self.services, log, CompactionRequest("asked for", instructions=instructions))

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


@frozen
class TurnMaterial:
    files: tuple[WorkspaceFile, ...] = ()
    recalled: tuple[RecalledPassage, ...] = ()
    problems: tuple[str, ...] = ()
    """Notices for the person about what failed."""


@dataclass
class AgentTurn:
    """Answer to some messages of one session."""

    services: AgentServices
    session: AbstractAsyncContextManager[SessionLog]
    messages: Sequence[Inbound]
    group: Sequence[GroupLine]
    log: SessionLog = field(init=False)
    """Set when the turn begins."""
    _material: TurnMaterial = field(default=TurnMaterial(), init=False)
    _answer: ModelAnswer = field(default_factory=ModelAnswer, init=False)
    """Last answer of the model."""
    _ids: list[str] = field(default_factory=list, init=False)
    """Ids of the messages that this turn answers."""
    _texts: list[str] = field(default_factory=list, init=False)
    """Texts that the model wrote beside its tool calls."""
    _overflows: int = field(default=0, init=False)

    async def run(self) -> AsyncGenerator[AgentEvent, None]:
        """Yield the events of the turn. The last one is a `Reply`.

        A compaction that is due runs after the reply, when the next event is requested, of which there is none.
        """
        async with self.session as self.log:
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
        new = [message for message in self.messages if message.id in self._ids]
        await run_to_end(self.log.receive, new, self.group)
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

    async def _ask(self, remark: str | None) -> AsyncGenerator[AgentEvent, None]:
        """Call the model until an answer is complete. Do not retry once part of an answer has been shown."""
        attempt, backoff = 0, None
        while True:
            context = await asyncio.to_thread(self._build_context, remark)
            self._answer = answer = ModelAnswer()
            try:
                async with aclosing(self.services.model.stream(context.request)) as stream:
                    async for event in stream:
                        if text := answer.read(event):
                            yield ReplyDelta(text)
                self.services.limits.learn_scale(answer.end.usage.input, context.tokens)
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
                if not exc.retryable or answer.was_shown or attempt == ATTEMPTS:
                    raise
                backoff = backoff or self.services.new_backoff()
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

    async def _use_tools(self, *, refuse: bool) -> AsyncGenerator[AgentEvent, None]:
        """Run tools one after the other: a model may search for what it has just written."""
        uses, text = self._answer.uses, self._answer.text
        texts = [text] if text.strip() else []
        self._texts += texts
        calls = (ToolCall(use.id, use.name, dict(use.arguments)) for use in uses)
        await run_to_end(self._record, (*map(Text, texts), *calls), self._answer.end.usage, {})
        results: list[ToolResult] = []
        try:
            for use in () if refuse else uses:
                yield ToolStarted(use.name, use.arguments)
                outcome = await asyncio.to_thread(run_tool, self.services, use, self.log, self._ids)
                results.append(ToolResult(use.id, outcome.text, use.name, outcome.is_error))
                yield ToolEnded(use.name, not outcome.is_error)
        finally:  # even if the turn is cancelled, no call stays without a result
            reason = LAST_STEP if refuse else NO_RESULT
            missing = [ToolResult(use.id, reason, use.name, is_error=True) for use in uses[len(results) :]]
            await run_to_end(self.log.add, Message("tool", (*results, *missing)))

    # the reply

    async def _finish(self) -> list[AgentEvent]:
        """Record the reply, and return it after a notice about how the answer ended."""
        text, usage = self._answer.text, self._answer.end.usage
        notice = _END_NOTICES.get(self._answer.end.reason)
        if self._answer.uses:
            notice = f"The turn was ended after {self.services.config.agent.tools.max_steps} steps with tools."
            text, usage = GAVE_UP, ModelUsage()
        metadata: dict[str, Any] = {ANSWERS: list(self._ids)}
        if self._material.recalled:
            metadata[RECALLED] = [passage.citation for passage in self._material.recalled]
        if not text.strip() and self._texts:
            metadata[_REPLY] = self._texts[-1]
        reply = read_reply(await run_to_end(self._record, (Text(text),), usage, metadata))
        return [Notice(notice), reply] if notice else [reply]

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
            context = await asyncio.to_thread(self._build_context)
            if self._is_too_long(context.tokens):
                await compact(self.services, self.log, CompactionRequest("threshold", context.fixed_tokens))
            elif context.tokens >= self.services.budget.flush_at and self.services.flushes:
                view = await asyncio.to_thread(self.log.view)
                if is_early_flush_due(view):
                    await flush_and_record(self.services, self.log, view, view.messages)
        except KeptError as exc:
            log.warning("session %s: the conversation could not be compacted (%s)", self.log.session_id, exc.code)


def read_reply(answer: Entry) -> Reply:
    """Return the reply that an entry of the transcript records."""
    assert isinstance(answer.body, Message)
    reply = strip_no_reply(answer.body.metadata.get(_REPLY) or answer.body.text)
    is_silent = not reply.strip()
    return Reply("" if is_silent else reply, answer.id, is_silent)


def run_tool(services: AgentServices, use: ToolUse, log: SessionLog, ids: Collection[str]) -> ToolOutcome:
    """Run a tool. Every failure is an outcome, so that the model learns about it and can react."""
    names = [spec.name for spec in services.tool_specs()]
    if use.name not in names:
        return _failed_outcome(f"There is no tool '{use.name}'. There are: {', '.join(names)}.")
    lines = (logged.line for logged in log.view().inbound if logged.inbound_id in ids)
    seen = SeenTail(log.path, min(lines, default=1))
    try:
        return services.toolbox.run(use.name, use.arguments, seen=seen, session=log.session_id)
    except Exception as exc:  # noqa: BLE001 - a defect of a tool must not end the turn
        return _failed_outcome(f"{use.name} failed: {type(exc).__name__}: {exc}")


def _failed_outcome(message: str) -> ToolOutcome:
    data = {"error": {"code": "tool_failed", "message": message, "hint": ""}}
    return ToolOutcome(message, lambda: data, is_error=True)


# gathering material from outside the conversation: workspace files and relevant memories


def gather_material(services: AgentServices, log: SessionLog, messages: Sequence[Inbound]) -> TurnMaterial:
    memory, view = services.memory, log.view()
    problems: list[str] = []
    is_first = len(view.inbound) <= len(messages)
    if is_first and memory.settings.sync.on_session_start:  # index changes since the last session, before a search
        try:
            problems += memory.sync().failures
        except KeptError as exc:
            problems.append(f"The index could not be updated: {exc.message}")
    loaded = read_files(memory)
    question = "\n".join(message.text for message in messages)
    # The extractive model searches for the question itself and answers with the results.
    limit = services.config.gateway.auto_responder.memory_search_max_results if services.model.writes else 0
    seen = SeenTail(log.path, view.messages[0].line if view.messages else 0)
    memories = recall(memory, question, loaded.files, seen=seen, budget=services.budget, limit=limit)
    return TurnMaterial(loaded.files, memories.recalled, (*problems, *loaded.problems, *memories.problems))


def read_files(memory: Memory) -> TurnMaterial:
    """Read the workspace files that are part of every prompt. One that cannot be read is reported and left out."""
    files: list[WorkspaceFile] = []
    problems: list[str] = []
    with OpenWorkspace(memory.workspace) as opened:
        for name in (*INSTRUCTING, *INFORMING):
            if name == "memory.md" and any(file.name == "MEMORY.md" for file in files):
                continue
            try:
                absolute = memory.workspace.locate(name)
                if opened.find_state(absolute) is not None:
                    note = opened.read_found(absolute, max_bytes=memory.settings.max_file_bytes)
                    files.append(WorkspaceFile(name, note.text))
            except KeptError as exc:
                problems.append(f"{name} is left out: {exc.message}")
    if not memory.config.trusts_workspace and any(file.name in INSTRUCTING for file in files):
        problems.append(UNTRUSTED.format(workspace=memory.workspace.root))
    return TurnMaterial(tuple(files), problems=tuple(problems))


def recall(
    memory: Memory,
    question: str,
    files: Sequence[WorkspaceFile],
    *,
    seen: SeenTail,
    budget: Budget,
    limit: int,
) -> TurnMaterial:
    """Search for memories that are relevant to a question and not in the context already."""
    if limit == 0 or not memory.settings.enabled:
        return TurnMaterial()
    try:
        most = min(limit + _SPARE_HITS, MOST_RESULTS)
        result = memory.search(question[:QUERY_CHARS], max_results=most, seen=seen)
    except EmptyQuery:
        return TurnMaterial()
    except KeptError as exc:
        return TurnMaterial(problems=(f"Nothing was recalled: {exc.message}",))
    sizes = {file.name: estimate_tokens(file.text) for file in files}
    all_fit = sum(sizes.values()) <= budget.files
    shown = {name for name, size in sizes.items() if all_fit and size <= budget.file}  # those that are shown whole
    # A weak hit is probably about something else. A model that wants to see it can search.
    hits = [hit for hit in result.hits if hit.grade != "weak" and hit.path not in shown]
    passages = (RecalledPassage(hit.snippet, hit.citation, str(hit.timestamp)[:10], hit.source) for hit in hits[:limit])
    return TurnMaterial(recalled=tuple(passages), problems=result.degraded)
