"""Tool calls of one answer: each is allowed by the settings or a person, runs, and gets a result in the transcript."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import ExitStack

from kept.agent.approvals import UNDECIDED, asked_state, decided_state, denied_text
from kept.agent.events import AgentEvent, ApprovalAsked, ToolEnded, ToolStarted
from kept.agent.extra_tools import ToolAnswer
from kept.agent.services import AgentServices
from kept.agent.session_log import SessionLog, run_to_end
from kept.context.model_turns import NO_RESULT
from kept.file_lock import claimed
from kept.llm.base import ToolUse
from kept.records import SeenTail
from kept.sessions.entries import Message, ToolResult
from kept.timings import timed
from kept.tools.tool_definitions import TOOLS

log = logging.getLogger(__name__)

LAST_STEP = "(No more tools can be used in this turn. Answer now with what you have.)"
_MEMORY_TOOLS = frozenset(tool.name for tool in TOOLS)


class ToolStep:
    """Runs tools one after the other: a model may search for what it has just written."""

    def __init__(self, services: AgentServices, log: SessionLog, ids: Collection[str], uses: Sequence[ToolUse]) -> None:
        self._services = services
        self._log = log
        self._ids = ids
        self._uses = uses
        self._results: list[ToolResult] = []
        self._claims = ExitStack()
        self._asked: ApprovalAsked | None = None
        """Call that waits for a decision."""

    def claim(self) -> None:
        """Show other processes that these calls are being carried out. The claims end with this process."""
        for use in self._uses:
            self._claims.enter_context(claimed(self._log.call_claim(use.id)))

    def release(self) -> None:
        self._claims.close()

    async def run(self) -> AsyncGenerator[AgentEvent, None]:
        try:
            for use in self._uses:
                extra = self._services.extra
                tool = None if extra is None else extra.find(use.name)
                if tool is not None and tool.permission == "ask":
                    self._asked = self._services.approvals.open(self._log.session_id, use)
                    await run_to_end(self._log.add, asked_state(use))
                    yield self._asked
                    decided = await self._services.approvals.wait(self._asked)
                    self._asked = None
                    await run_to_end(self._log.add, decided_state(use, decided))
                    yield decided
                    if not decided.allowed:
                        self._add(use, denied_text(decided), is_error=True)
                        continue
                yield ToolStarted(use.name, use.arguments)
                is_known = tool is not None or use.name in _MEMORY_TOOLS  # a model may make up any name
                with timed("tool_call", tool=use.name if is_known else "unknown") as measured:
                    if extra is not None and tool is not None:
                        answer = await extra.call(tool, use.arguments)
                    else:
                        answer = await asyncio.to_thread(self._call_memory, use)
                    measured["ok"] = not answer.is_error
                self._add(use, answer.text, is_error=answer.is_error)
                yield ToolEnded(use.name, not answer.is_error)
        finally:  # even if the turn is cancelled, no call stays without a result
            await run_to_end(self._record_results)

    def refuse(self) -> None:
        """Record that the calls are not carried out, because the turn has used all its steps."""
        for use in self._uses:
            self._add(use, LAST_STEP, is_error=True)
        self._record_results()

    def _add(self, use: ToolUse, text: str, *, is_error: bool) -> None:
        self._results.append(ToolResult(use.id, text, use.name, is_error))

    def _record_results(self) -> None:
        if self._asked is not None:  # the turn was stopped while a person was asked
            self._services.approvals.drop(self._asked)
            self._add(self._uses[len(self._results)], UNDECIDED, is_error=True)
        for use in self._uses[len(self._results) :]:
            self._add(use, NO_RESULT, is_error=True)
        self._log.add(Message("tool", tuple(self._results)))

    def _call_memory(self, use: ToolUse) -> ToolAnswer:
        names = [spec.name for spec in self._services.tool_specs()]
        if use.name not in names:
            return ToolAnswer(f"There is no tool '{use.name}'. There are: {', '.join(names)}.", is_error=True)
        lines = (logged.line for logged in self._log.view().inbound if logged.inbound_id in self._ids)
        seen = SeenTail(self._log.path, min(lines, default=1))
        try:
            outcome = self._services.toolbox.run(use.name, use.arguments, seen=seen, session=self._log.session_id)
        except Exception as exc:  # a defect of a tool must not end the turn
            log.exception("tool %s failed", use.name)
            return ToolAnswer(f"{use.name} failed: {type(exc).__name__}: {exc}", is_error=True)
        return ToolAnswer(outcome.text, outcome.is_error)
