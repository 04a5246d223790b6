"""Context: what the agent's model would be sent for a message now, part by part, and what did not fit."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from kept.agent.agent import Agent
from kept.agent.material import ContextPreview
from kept.errors import KeptError
from kept.llm.base import TextPart, ToolOutput, ToolUse, Turn
from kept.responder.local_conversation import DEFAULT_CONVERSATION, find_conversation
from kept.values import frozen
from kept.web.transcript_view import ContextView, view_context
from kept.web.visit import Page, Screen, Visit

_RECENT = 20
_MOST_CHARS = 60_000
"""Characters of one part of the request that the page shows."""


@frozen
class SentTurn:
    """A turn of the request, as text."""

    role: str
    text: str


@frozen
class ContextPage:
    """A preview as the page shows it."""

    view: ContextView
    files: tuple[tuple[str, int], ...]
    tools: tuple[str, ...]
    system: str
    turns: tuple[SentTurn, ...]
    share: int
    """Percent of the size from which the conversation is compacted."""


async def show_context(visit: Visit) -> Response:
    text, name = visit.query.get("text", "").strip(), visit.query.get("with", "").strip() or DEFAULT_CONVERSATION
    preview: ContextPreview | None = None
    problem: KeptError | None = None
    try:
        agent = await visit.site.chat.agent()
        assert isinstance(agent, Agent)
        message = text or "(your next message)"
        preview = await asyncio.to_thread(lambda: agent.preview(message, find_session_id(visit, name)))
    except KeptError as exc:  # such as a model that is not set up
        problem = exc
    return await asyncio.to_thread(_render, visit, text, name, preview, problem)


def _render(visit: Visit, text: str, name: str, preview: ContextPreview | None, problem: KeptError | None) -> Response:
    recent = [
        (record.id, record.title or record.key or record.id) for record in visit.site.sessions.recent(limit=_RECENT)
    ]
    return visit.render(
        "context.html",
        text=text,
        name=name,
        problem=problem,
        page=view_preview(preview) if preview else None,
        problems_found=preview.problems if preview else (),
        conversations=[(DEFAULT_CONVERSATION, "Your conversation at this machine"), *recent],
    )


def find_session_id(visit: Visit, name: str) -> str | None:
    """Return the session that a conversation is in now, or None if it has not begun."""
    sessions = visit.site.sessions
    if (record := sessions.find_by_id(name)) is not None:
        return record.id
    key, _ = find_conversation(sessions, name)
    record = sessions.find(key.channel, key.user_id, account_id=key.account_id, chat_type=key.chat_type)
    return record.id if record else None


def view_preview(preview: ContextPreview) -> ContextPage:
    context = preview.context
    record = {"recalled": list(context.recalled), **context.parts.to_json()}
    return ContextPage(
        view_context(record),
        tuple(sorted(context.parts.files.items(), key=lambda item: -item[1])),
        tuple(tool.name for tool in context.request.tools),
        context.request.system[:_MOST_CHARS],
        tuple(SentTurn(turn.role, turn_text(turn)[:_MOST_CHARS]) for turn in context.request.turns),
        round(100 * context.tokens / max(1, preview.budget_tokens)),
    )


def turn_text(turn: Turn) -> str:
    """Return a turn as text: what is said, the tool calls and their results."""
    pieces = []
    for part in turn.parts:
        match part:
            case TextPart():
                pieces.append(part.text)
            case ToolUse():
                pieces.append(f"[calls {part.name} {dict(part.arguments)}]")
            case ToolOutput():
                pieces.append(f"[result] {part.text}")
    return "\n\n".join(pieces)


SCREEN = Screen(
    name="context",
    label="Context",
    home="/context",
    pages=(Page("/context", show_context, "read"),),
    key="x",
)
