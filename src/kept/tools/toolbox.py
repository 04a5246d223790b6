"""Toolbox: the tools, over one agent's memory and conversations."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kept.errors import KeptError, NoteNotFound, UsageError
from kept.indexing.sources import CITED_FOLDER
from kept.limits import storable, storable_tree
from kept.memory import Memory
from kept.records import Hit, Progress
from kept.redact import redact
from kept.search.date_filter import check_order, parse_when
from kept.tools.arguments import check_arguments
from kept.tools.catalogue import get_tool
from kept.tools.citation import from_citation, from_uri
from kept.tools.readable import error_text, passage_text, search_text, sessions_text, status_text, written_text
from kept.tools.shapes import hit_json, passage_json, result_json, status_json, written_json
from kept.values import frozen
from kept.workspace.daily import daily_name, find_next_part

if TYPE_CHECKING:
    from kept.sessions.record import SessionRecord
    from kept.sessions.store import SessionStore

_DEFAULT_SESSIONS = 6
_HITS_A_SESSION = 3
_TITLE = "title"
_SPARE = 3
"""Asked for on top, where some of what is found is left out."""

LeaveOut = Callable[[Hit], bool]


@frozen
class ToolOutcome:
    """What a tool answered: ``text`` for a model, ``data`` for a program. Of an error, data is its code and hint."""

    text: str
    data: dict[str, Any]
    is_error: bool = False


class Toolbox:
    """Safe to share between threads, as the memory and the sessions are."""

    def __init__(self, memory: Memory, sessions: SessionStore) -> None:
        self.memory = memory
        self.sessions = sessions

    def close(self) -> None:
        self.memory.close()
        self.sessions.close()

    def run(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        progress: Progress | None = None,
        leave_out: LeaveOut | None = None,
    ) -> ToolOutcome:
        """Does what a model asked for. What it asked wrongly, and what did not work, is an outcome too. ``leave_out``
        says of what a search finds that it is the very question that is being answered."""
        try:
            outcome = self._run(name, check_arguments(get_tool(name), arguments), progress, leave_out)
        except KeptError as exc:
            outcome = error_outcome(exc)
        # Names and what was asked may hold half surrogate pairs, which no transport can send.
        return ToolOutcome(storable(outcome.text), storable_tree(outcome.data), outcome.is_error)

    def _run(
        self, name: str, given: dict[str, Any], progress: Progress | None, leave_out: LeaveOut | None
    ) -> ToolOutcome:
        match name:
            case "memory_search":
                return self._search(given, progress, leave_out)
            case "memory_get":
                return self._get(given)
            case "memory_write":
                return self._write(given)
            case "memory_status":
                return self._status()
            case _:
                return self._sessions(given, progress)

    def _search(self, given: dict[str, Any], progress: Progress | None, leave_out: LeaveOut | None) -> ToolOutcome:
        wanted = given.get("maxResults")
        spare = (wanted or self.memory.settings.query.max_results) + _SPARE
        result = self.memory.search(
            given["query"],
            max_results=spare if leave_out else wanted,
            min_score=given.get("minScore"),
            source=given.get("source"),
            channel=given.get("channel"),
            since=given.get("since"),
            until=given.get("until"),
            progress=progress,
        )
        if leave_out:
            hits = tuple(hit for hit in result if not leave_out(hit))
            result = replace(result, hits=hits[: spare - _SPARE])
        return ToolOutcome(search_text(result), result_json(result))

    def _get(self, given: dict[str, Any]) -> ToolOutcome:
        if ("path" in given) == ("date" in given):
            raise UsageError(
                "memory_get: give either a path or a date.",
                hint="For example path: memory/ideas.md, or date: yesterday.",
            )
        path = given["path"] if "path" in given else daily_path(given["date"], self.memory.clock.now())
        path, start, lines = from_citation(path, given.get("from"), given.get("lines"))
        try:
            passage = self.memory.read(path, start=start or 1, lines=lines)
        except NoteNotFound as exc:
            if "date" in given:
                raise NoteNotFound(f"Nothing was written down on {given['date']}.", hint="Try another day.") from exc
            raise NoteNotFound(exc.message, hint="memory_search shows paths that exist.") from exc
        after = find_next_part(self.memory.workspace, passage.path)
        more = f"\n\nThe log of this day goes on in {after}." if after else ""
        return ToolOutcome(passage_text(passage) + more, passage_json(passage))

    def _write(self, given: dict[str, Any]) -> ToolOutcome:
        written = self.memory.add(given["text"], to=from_uri(given.get("to", "daily")), by_tool=True)
        return ToolOutcome(written_text(written), written_json(written))

    def _status(self) -> ToolOutcome:
        status = self.memory.status()
        count = len(self.sessions.list()) if os.path.isdir(self.sessions.folder) else 0
        return ToolOutcome(status_text(status, count), {**status_json(status), "sessionCount": count})

    # conversations

    def _sessions(self, given: dict[str, Any], progress: Progress | None) -> ToolOutcome:
        wanted = given.get("maxResults", _DEFAULT_SESSIONS)
        if "query" not in given:
            records = self._recent(given, wanted)
            found: list[tuple[dict[str, Any], list[Hit]]] = [(_session_json(record), []) for record in records]
            engine: dict[str, Any] = {"degraded": [], "provider": "none", "model": None, "tookMs": 0.0}
        else:
            result = self.memory.search(
                given["query"],
                max_results=wanted * _HITS_A_SESSION,
                source="sessions",
                channel=given.get("channel"),
                since=given.get("since"),
                until=given.get("until"),
                progress=progress,
            )
            found = self._by_session(result.hits)[:wanted]
            engine = result_json(result)
            del engine["results"]
        sessions = [{**shape, "results": [hit_json(hit) for hit in hits]} for shape, hits in found]
        return ToolOutcome(sessions_text(found, engine["degraded"]), {"sessions": sessions, **engine})

    def _recent(self, given: dict[str, Any], wanted: int) -> list[SessionRecord]:
        if not os.path.isdir(self.sessions.folder):
            return []
        now = self.memory.clock.now()
        since = parse_when(given["since"], now=now) if "since" in given else 0
        until = parse_when(given["until"], now=now, end=True) if "until" in given else None
        check_order(given.get("since"), given.get("until"), since or None, until)
        records = self.sessions.list(channel=given.get("channel"))
        fitting = (
            record
            for record in records
            if record.active.timestamp() * 1000 >= since
            and (until is None or record.created.timestamp() * 1000 < until)
        )
        return [record for _, record in zip(range(wanted), fitting, strict=False)]

    def _by_session(self, hits: tuple[Hit, ...]) -> list[tuple[dict[str, Any], list[Hit]]]:
        """Conversations in the order of their best passage."""
        passages: dict[str, list[Hit]] = {}
        for hit in hits:
            passages.setdefault(hit.path, []).append(hit)
        records = {CITED_FOLDER + os.path.basename(one.transcript_path): one for one in self.sessions.list()}
        # One that was deleted since the search is left out.
        return [(_session_json(records[path]), found) for path, found in passages.items() if path in records]


def daily_path(date: str, now: dt.datetime) -> str:
    """The daily log of a day as people write it: 2026-03-01, today, yesterday."""
    return daily_name(find_day(date, now))


def find_day(date: str, now: dt.datetime) -> dt.date:
    return dt.datetime.fromtimestamp(parse_when(date, now=now) / 1000).astimezone()


def error_outcome(error: KeptError) -> ToolOutcome:
    shape = {"code": error.code, "message": error.message, "hint": error.hint}
    return ToolOutcome(error_text(error.message, error.hint), {"error": shape}, is_error=True)


def _session_json(record: SessionRecord) -> dict[str, Any]:
    from kept.sessions.entries import format_time

    title = record.state.get(_TITLE)
    return {
        "sessionId": record.id,
        "sessionKey": redact(record.key) or None,
        "channel": record.channel,
        "title": redact(title) if isinstance(title, str) and title.strip() else None,
        "createdAt": format_time(record.created),
        "updatedAt": format_time(record.updated),
        "messageCount": record.messages,
        "path": CITED_FOLDER + os.path.basename(record.transcript_path),
    }
