"""Conversations: a list with titles, and each to read, with what was recalled and sent for every answer."""

from __future__ import annotations

from itertools import islice

from starlette.responses import Response

from kept.base.values import frozen
from kept.server.web.page_templates import conversation_url
from kept.server.web.transcript_view import view_lines
from kept.server.web.visit import Page, Screen, Visit
from kept.sessions.record import SessionRecord
from kept.sessions.store import SessionStore
from kept.sessions.transcript import Transcript, TranscriptLine, parse_line

PER_PAGE = 50
LINES_PER_PAGE = 300
_ABOVE = 20
"""Lines shown above the line that a citation means."""


@frozen
class LineWindow:
    """Lines of a transcript that fit on a page, and how many there are in all."""

    lines: tuple[TranscriptLine, ...]
    first: int
    total: int

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1

    @property
    def earlier(self) -> int | None:
        return max(1, self.first - LINES_PER_PAGE) if self.first > 1 else None

    @property
    def later(self) -> int | None:
        return self.last + 1 if self.last < self.total else None


def list_conversations(visit: Visit) -> Response:
    page, channel = visit.number("page", 1, least=1, most=100_000), visit.query.get("channel", "").strip()
    sessions = visit.site.sessions
    records = sessions.recent(channel=channel or None, limit=page * PER_PAGE + 1)
    return visit.render(
        "conversations.html",
        records=records[(page - 1) * PER_PAGE : page * PER_PAGE],
        has_next=len(records) > page * PER_PAGE,
        page=page,
        channel=channel,
        channels=sessions.channels(),
        problems_found=[f"{problem.path}: {problem.reason}" for problem in sessions.take_problems()],
    )


def show_conversation(visit: Visit) -> Response:
    sessions = visit.site.sessions
    record = sessions.get(visit.path["id"])
    cited = visit.number("line", 0, most=1_000_000_000)
    start = visit.number("from", 0, most=1_000_000_000)
    window = read_window(record, start or max(1, cited - _ABOVE) if start or cited else None)
    return visit.render(
        "conversation.html",
        record=record,
        views=view_lines(window.lines),
        window=window,
        cited=cited,
        here_url=conversation_url(record.id),
        others=related(sessions, record),
    )


def read_window(record: SessionRecord, first: int | None) -> LineWindow:
    """Return a page of lines from ``first`` on, or the last page."""
    transcript = Transcript(record.transcript_path)
    total = sum(1 for _ in transcript.iter_raw())
    first = max(1, total - LINES_PER_PAGE + 1) if first is None else min(first, max(1, total))
    raw = islice(transcript.iter_raw(), first - 1, first - 1 + LINES_PER_PAGE)
    return LineWindow(tuple(map(parse_line, raw)), first, total)


def related(sessions: SessionStore, record: SessionRecord) -> dict[str, SessionRecord]:
    """Return the sessions that this one continues or that continue it, as far as they are there."""
    ids = {"before": record.predecessor, "after": record.successor}
    records = {name: sessions.find_by_id(session_id) for name, session_id in ids.items() if session_id}
    return {name: other for name, other in records.items() if other is not None}


SCREEN = Screen(
    name="conversations",
    label="Conversations",
    home="/conversations",
    pages=(
        Page("/conversations", list_conversations, "read"),
        Page("/conversations/{id}", show_conversation, "read"),
    ),
    key="c",
)
