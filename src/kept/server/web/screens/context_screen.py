"""Context: what the agent's model would be sent for a message now, part by part, and what did not fit."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from kept.agent.material import ContextPreview
from kept.errors import KeptError
from kept.gateway.local_conversation import DEFAULT_CONVERSATION
from kept.models.base import TextPart, ToolOutput, ToolUse, Turn
from kept.server.web.screens.chat_screen import find_session
from kept.server.web.transcript_view import view_context
from kept.server.web.visit import Page, Screen, Visit

_RECENT = 20
_MOST_CHARS = 60_000
"""Characters of one turn that the page shows."""


async def show_context(visit: Visit) -> Response:
    text, name = visit.query.get("text", "").strip(), visit.query.get("with", "").strip() or DEFAULT_CONVERSATION
    preview: ContextPreview | None = None
    problem: KeptError | None = None
    try:
        agent = await visit.site.chat.agent()
        record = await asyncio.to_thread(find_session, visit.site.sessions, name)
        preview = await asyncio.to_thread(agent.preview, text or "(your next message)", record.id if record else None)
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
        preview=preview,
        view=view_context({"recalled": preview.context.recalled, **preview.context.record}) if preview else None,
        turn_text=turn_text,
        problems_found=preview.problems if preview else (),
        conversations=[(DEFAULT_CONVERSATION, "Your conversation at this machine"), *recent],
    )


def turn_text(turn: Turn) -> str:
    """Return the beginning of a turn as text: what is said, the tool calls and their results."""
    pieces = []
    for part in turn.parts:
        match part:
            case TextPart():
                pieces.append(part.text)
            case ToolUse():
                pieces.append(f"[calls {part.name} {dict(part.arguments)}]")
            case ToolOutput():
                pieces.append(f"[result] {part.text}")
    return "\n\n".join(pieces)[:_MOST_CHARS]


SCREEN = Screen(
    name="context",
    label="Context",
    home="/context",
    pages=(Page("/context", show_context, "read"),),
    key="x",
)
