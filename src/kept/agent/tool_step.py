"""Tool calls of one answer: each is allowed by the settings or a person, runs, and gets a result in the transcript."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import ExitStack

from kept.agent.approvals import UNDECIDED, asked_state, decided_state, denied_text
from kept.agent.events import AgentEvent, ApprovalAsked, ToolEnded, ToolStarted
from kept.agent.services import AgentServices
from kept.agent.session_log import SessionLog, run_to_end
from kept.context.model_turns import NO_RESULT
from kept.durable import claimed
from kept.llm.base import ToolUse
from kept.records import SeenTail
from kept.sessions.entries import Message, ToolResult

LAST_STEP = "(No more tools can be used in this turn. Answer now with what you have.)"


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
                if self._services.extra.needs_permission(use.name):
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
                text, is_error = await self._call(use)
                self._add(use, text, is_error=is_error)
                yield ToolEnded(use.name, not is_error)
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

    async def _call(self, use: ToolUse) -> tuple[str, bool]:
        """Return the result of a call, and whether it failed."""
        tool = self._services.extra.find(use.name)
        if tool is not None:
            answer = await self._services.extra.call(tool, use.arguments)
            return answer.text, answer.is_error
        return await asyncio.to_thread(self._call_memory, use)

    def _call_memory(self, use: ToolUse) -> tuple[str, bool]:
        names = [spec.name for spec in self._services.tool_specs()]
        if use.name not in names:
            return f"There is no tool '{use.name}'. There are: {', '.join(names)}.", True
        lines = (logged.line for logged in self._log.view().inbound if logged.inbound_id in self._ids)
        seen = SeenTail(self._log.path, min(lines, default=1))
        try:
            outcome = self._services.toolbox.run(use.name, use.arguments, seen=seen, session=self._log.session_id)
        except Exception as exc:  # noqa: BLE001 - a defect of a tool must not end the turn
            return f"{use.name} failed: {type(exc).__name__}: {exc}", True
        return outcome.text, outcome.is_error
