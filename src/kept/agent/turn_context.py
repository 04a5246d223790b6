"""The request of a turn, built from its conversation and material; and a preview of it that writes nothing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from kept.agent.day_notes import plan_day_notes
from kept.agent.events import Inbound
from kept.agent.material import TurnMaterial, gather_material
from kept.agent.services import AgentServices
from kept.agent.session_log import SessionLog
from kept.clock import new_id
from kept.context.context import Context, ContextMaterial, build_context
from kept.context.view import DAY_NOTES, INBOUND, ConversationView, build_view
from kept.llm.base import media_of
from kept.sessions.entries import SENT, Entry, Message, Text, format_time
from kept.sessions.session_key import DEFAULT_CHAT_TYPE
from kept.sessions.store import SessionStore
from kept.sessions.transcript import Transcript, TranscriptLine
from kept.values import frozen

_NEW = "sessions/new.jsonl"
"""Path of a conversation that has not begun, for a preview."""


def _cites(services: AgentServices, chat_type: str) -> bool | None:
    """Return whether replies of a conversation name their sources. A private one is left to the model."""
    mode = services.memory.settings.citations
    if mode == "auto":
        return None if chat_type == DEFAULT_CHAT_TYPE else False
    return mode == "on"


def build_turn_context(
    services: AgentServices,
    log: SessionLog,
    material: TurnMaterial,
    message_ids: Collection[str],
    remark: str | None = None,
) -> Context:
    """Return the request that answers messages of a conversation. ``remark`` goes at its end."""
    view = log.view()
    answered = [logged.entry.id for logged in view.messages if logged.inbound_id in message_ids]
    context = build_context(
        ContextMaterial(
            view=view,
            path=log.path,
            media=media_of(services.model),
            load_file=services.attachments.load,
            agent=services.config.agent_id,
            now=services.clock.now(),
            files=material.files,
            recalled=material.recalled,
            recalled_for=answered[0] if answered else None,
            answering=tuple(answered),
            days=material.days,
            tools=services.tool_specs(),
            remark=remark,
            trusts_files=services.config.trusts_workspace,
            fenced=services.model.writes,
            thinker=services.model.name,
            cites=_cites(services, log.chat_type),
        ),
        services.budget,
        secret=services.secret,
    )
    request = replace(context.request, thinking=services.thinking)
    if services.memory.viewer is not None:
        request = replace(request, conversation=log.key)
    return replace(context, request=request)


@frozen
class ContextPreview:
    context: Context
    budget_tokens: int
    """Size from which the conversation is compacted."""
    problems: tuple[str, ...]


class DraftLog(SessionLog):
    """A conversation with one more message, which is in no file."""

    def __init__(self, sessions: SessionStore, session_id: str | None, services: AgentServices, text: str) -> None:
        self._drafted: ConversationView | None = None
        lines: list[TranscriptLine] = []
        if session_id is None:
            self.path, self.key, self.chat_type = _NEW, "", DEFAULT_CHAT_TYPE
        else:
            super().__init__(sessions, session_id)
            lines = list(Transcript(self.absolute).iter_lines())
        self.message = Inbound(new_id(), text, timestamp=services.clock.now())
        metadata: dict[str, Any] = {INBOUND: self.message.id, SENT: format_time(services.clock.now())}
        if (day_notes := plan_day_notes(services, build_view(lines))) is not None:
            metadata[DAY_NOTES] = dict(day_notes)
        last = lines[-1] if lines else None
        parents = [line.content.id for line in lines if isinstance(line.content, Entry)]
        body = Message("user", (Text(text),), metadata=metadata)
        entry = Entry(new_id(), parents[-1] if parents else None, services.clock.now(), body)
        end = last.end if last else 0
        draft = TranscriptLine(last.number + 1 if last else 1, end, end, entry)
        self._drafted = build_view([*lines, draft])

    def view(self) -> ConversationView:
        assert self._drafted is not None
        return self._drafted


def preview_context(services: AgentServices, session_id: str | None, text: str) -> ContextPreview:
    """Return what the model would be sent for a message now, in a conversation or a new one. Nothing is written and
    the model is not called."""
    if session_id is not None:
        services = SessionLog(services.sessions, session_id).services_for(services)
    log = DraftLog(services.sessions, session_id, services, text)
    material = gather_material(services, log, [log.message])
    context = build_turn_context(services, log, material, [log.message.id])
    return ContextPreview(context, services.budget.compact_at, material.problems)
