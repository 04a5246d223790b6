"""Finds every place of what is to be forgotten. Reads only."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterable
from dataclasses import replace

from kept.config import Config
from kept.errors import EmptyQuery, ForgetTooMuch, NoteNotFound, PathRefused, SessionNotFound, UsageError
from kept.forgetting.history_places import find_in_history
from kept.forgetting.needles import Matcher, Needles, is_too_short
from kept.forgetting.note_places import (
    NoteHunt,
    find_made_of,
    note_place,
    whole_note,
)
from kept.forgetting.own_files import find_in_proposals, find_in_records
from kept.forgetting.plan import ForgetPlan, ForgetRequest, Place, digest_of
from kept.forgetting.transcript_places import (
    Wants,
    find_in_transcript,
    find_lines,
    iter_transcript_files,
    spoken_texts,
)
from kept.history.note_history import open_history
from kept.records import parse_citation
from kept.search.periods import to_ms
from kept.sessions.entries import AnyEntry, Entry, Message, SessionStart
from kept.sessions.people import People, find_account
from kept.sessions.record import SessionRecord
from kept.sessions.spoken import locate_transcript
from kept.sessions.store import SessionStore
from kept.sessions.transcript_paths import cite_transcript, is_transcript_citation
from kept.values import frozen
from kept.visibility import Viewer, private_folder_of
from kept.workspace.daily import get_daily_notes
from kept.workspace.opened import OpenWorkspace
from kept.workspace.workspace import Workspace

MOST_PLACES = 100
"""More places than this need explicit consent (`--all`)."""
_LARGEST_NOTE = 1 << 28


@frozen
class ForgetScope:
    """The memory that is looked through."""

    config: Config
    workspace: Workspace
    sessions: SessionStore
    is_visible: Callable[[str], bool]
    """False for notes and conversations of another project, or of somebody else."""
    by_tool: bool = False
    viewer: Viewer | None = None
    """One of several people, who sees a part. Records are left out: nothing tells whose a text there is."""

    @property
    def notes(self) -> NoteHunt:
        return NoteHunt(self.workspace, self.is_visible, self.by_tool)

    def transcripts(self) -> list[str]:
        return [
            path for path in iter_transcript_files(self.config.paths.sessions) if self.is_visible(cite_transcript(path))
        ]


def plan_forget(scope: ForgetScope, request: ForgetRequest, *, allow_all: bool = False) -> ForgetPlan:
    """Return every place of what is to be forgotten.

    Raise ForgetTooMuch for words that are too short and for too many places, unless ``allow_all`` is set.
    """
    chosen = [
        value for value in (request.query, request.session, request.person, request.before_ms) if value is not None
    ]
    if len(chosen) != 1:
        raise UsageError("Forget one thing at a time: words or a citation, a session, a person, or a time.")
    if request.session is not None:
        plan = _plan_session(scope, request, request.session)
    elif request.before_ms is not None:
        plan = _plan_before(scope, request, request.before_ms)
    elif request.person is not None:
        plan = _plan_person(scope, request, request.person, allow_all=allow_all)
    else:
        plan = _plan_query(scope, request, request.query or "", allow_all=allow_all)
    if len(plan.choices) > MOST_PLACES and not allow_all:
        raise ForgetTooMuch(f"That is in {len(plan.choices):,} places.")
    return replace(plan, by_tool=scope.by_tool)


# words and citations


def _plan_query(scope: ForgetScope, request: ForgetRequest, query: str, *, allow_all: bool) -> ForgetPlan:
    if not query.strip():
        raise EmptyQuery("There is nothing to forget.", hint="Name words or a citation, for example: kept forget 4711")
    if cited := _find_cited(scope, query.strip()):
        return _with_copies(scope, request, cited)
    _require_long_enough(query, allow_all=allow_all)
    needles = Needles((query,))
    places, others = _find_everywhere(scope, needles)
    return ForgetPlan(request, places, needles, unreachable=others)


def _require_long_enough(words: str, *, allow_all: bool) -> None:
    if is_too_short(words) and not allow_all:
        raise ForgetTooMuch(f"{words.strip()!r} is too short: it may be part of anything.")


def _find_cited(scope: ForgetScope, text: str) -> list[Place]:
    """Return the places of a citation, or of a note that is named by its path. Return none for other texts."""
    cited = parse_citation(text)
    path, first, last = cited or (text, 1, 1_000_000_000)
    if is_transcript_citation(path):
        if not scope.is_visible(path):
            raise SessionNotFound(f"{path}: there is no such transcript.")
        transcript = locate_transcript(scope.config.paths.sessions, path)
        places = find_lines(transcript.path, first, last)
    elif cited or (path.endswith(".md") and not any(map(str.isspace, path))):
        lines = _cited_note(scope, path, first, last, is_whole=cited is None)
        if lines is None:
            return []
        places = lines
    else:
        return []
    if not places:
        raise NoteNotFound(f"{text}: there is nothing to forget.", hint="Cite lines that say something.")
    return places


def _cited_note(scope: ForgetScope, path: str, first: int, last: int, *, is_whole: bool) -> list[Place] | None:
    """Return the lines of a cited note. Return None for a name that is not that of a note."""
    try:
        absolute = scope.workspace.locate(path)
        if not scope.is_visible(cited := scope.workspace.cite(absolute)):
            raise NoteNotFound(f"{cited}: there is no such note.")
        with OpenWorkspace(scope.workspace) as opened:
            text = opened.read(absolute, max_bytes=_LARGEST_NOTE).text
    except (NoteNotFound, PathRefused):
        if is_whole:
            return None
        raise
    if not scope.notes.is_writable(absolute, cited):
        raise PathRefused(f"{cited}: is not changed here.", hint="Change it with an editor.")
    if is_whole:
        return [whole_note(cited, text)]
    lines = text.split("\n")[first - 1 : last]
    body = "\n".join(lines).rstrip("\n") if len(lines) < last - first + 1 else "\n".join(lines)
    return [note_place(cited, first, body)] if body.strip() else []


def _find_everywhere(
    scope: ForgetScope, needles: Needles, wants: Wants | None = None
) -> tuple[tuple[Place, ...], tuple[str, ...]]:
    """Return the places of needles in all stores, and those that are not changed."""
    matcher = Matcher(needles)
    places, others = scope.notes.find(matcher)
    for path in scope.transcripts():
        places += find_in_transcript(path, matcher, wants)
    if scope.viewer is None:
        places += _find_in_files(scope, matcher)
    return tuple(places), tuple(others)


def _find_in_files(scope: ForgetScope, matcher: Matcher) -> list[Place]:
    places = [*find_in_records(scope.config, matcher), *find_in_proposals(scope.workspace, matcher)]
    history = open_history(scope.config, scope.workspace, scope.sessions.clock)
    return places + [place for place in find_in_history(history, matcher) if scope.is_visible(place.path)]


def _with_copies(scope: ForgetScope, request: ForgetRequest, places: list[Place]) -> ForgetPlan:
    """Return a plan for places, for what was made of them, and for other places with the same lines."""
    needles = Needles.of_texts(map(_plain_text, places))
    known = {place.citation for place in places}
    derived = [place for place in _derived_from(scope, places) if place.citation not in known]
    copies, others = _find_everywhere(scope, needles) if needles else ((), ())
    copies = tuple(place for place in copies if place.citation not in known | {fact.citation for fact in derived})
    copies = tuple(place for place in copies if not _overlaps(place, [*places, *derived]))
    return ForgetPlan(request, (*places, *derived, *copies), needles, unreachable=others)


def _plain_text(place: Place) -> str:
    """Return the text of a place without the label of a transcript line: [time] speaker."""
    return place.text.partition(": ")[2] if place.path.startswith("sessions/") else place.text


def _overlaps(place: Place, others: Iterable[Place]) -> bool:
    last = place.start_line + place.lines
    return place.kind == "note" and any(
        other.path == place.path
        and (other.whole or (other.start_line < last and place.start_line < other.start_line + other.lines))
        for other in others
    )


def _derived_from(scope: ForgetScope, places: Iterable[Place]) -> list[Place]:
    """Return notes that cite only lines of transcripts which are to be forgotten."""
    lines: dict[str, set[int]] = {}
    sessions: set[str] = set()
    for place in places:
        if place.kind == "session":
            sessions.add(place.path)
        elif place.path.startswith("sessions/"):
            lines.setdefault(place.path, set()).add(place.start_line)
    if not lines and not sessions:
        return []

    def is_forgotten(path: str, first: int, last: int) -> bool:
        return path in sessions or (last - first < 1_000 and set(range(first, last + 1)) <= lines.get(path, set()))

    return [
        fact
        for absolute, path, note in scope.notes.iter_texts()
        if scope.notes.is_writable(absolute, path)
        for fact in find_made_of(note.text, path, is_forgotten)
    ]


# sessions, people, times


def _plan_session(scope: ForgetScope, request: ForgetRequest, reference: str) -> ForgetPlan:
    place, path = _find_session(scope, reference)
    return _plan_whole(scope, request, [place], [path] if path else [])


def _find_session(scope: ForgetScope, reference: str) -> tuple[Place, str | None]:
    try:
        record = scope.sessions.get(reference, scope.viewer)
    except SessionNotFound:
        deleted = scope.sessions.find_deleted(reference) if scope.viewer is None else None
        if deleted is None or deleted.transcript_path is None:
            raise
        name = os.path.basename(deleted.transcript_path).partition(".deleted-")[0]
        text = f"deleted session {deleted.id}"
        return Place("session", f"sessions/{name}", f"sessions/{name}", text, digest_of(deleted.id), whole=True), None
    if not scope.is_visible(record.citation):
        raise SessionNotFound(f"There is no session '{reference}'.")
    return session_place(record), record.transcript_path


def session_place(record: SessionRecord) -> Place:
    text = f"{record.id}, {record.messages} messages, {record.created:%Y-%m-%d}" + (
        f": {record.title}" if record.title else ""
    )
    return Place(
        "session", record.citation, record.citation, text, digest_of(record.id), lines=record.messages, whole=True
    )


def _plan_whole(scope: ForgetScope, request: ForgetRequest, places: list[Place], paths: Iterable[str]) -> ForgetPlan:
    """Return a plan for whole sessions and notes, for facts that were made of them, and for copies in other files."""
    texts = [text for path in paths for text in spoken_texts(path)]
    needles = Needles.of_texts([*texts, *(_plain_text(place) for place in places if place.kind != "session")])
    known = {place.citation for place in places}
    derived = [place for place in _derived_from(scope, places) if place.citation not in known]
    derived = [place for place in derived if not _overlaps(place, places)]
    copies = _find_in_files(scope, Matcher(needles)) if needles else []
    copies = [place for place in copies if place.citation not in known]
    return ForgetPlan(request, (*places, *derived, *copies), needles)


def _plan_person(scope: ForgetScope, request: ForgetRequest, name: str, *, allow_all: bool) -> ForgetPlan:
    if not name.strip():
        raise EmptyQuery("There is nobody to forget.", hint="Name a person: kept forget --person 'Ada Lovelace'")
    _require_long_enough(name, allow_all=allow_all)
    folded = name.strip().casefold()

    def is_from(entry: AnyEntry) -> bool:
        body = entry.body if isinstance(entry, Entry) else None
        names = (body.sender, body.forwarded_from) if isinstance(body, Message) else ()
        return any(other is not None and other.strip().casefold() == folded for other in names)

    needles = Needles((name.strip(),))
    places, others = _find_everywhere(scope, needles, is_from)
    records, folders = _find_person(scope, folded)
    notes = [
        whole_note(path, note.text) for _, path, note in scope.notes.iter_texts() if private_folder_of(path) in folders
    ]
    whole = {place.path for place in (*map(session_place, records), *notes)}
    rest = [place for place in places if place.path not in whole]
    plan = _plan_whole(scope, request, [*map(session_place, records), *notes, *rest], [])
    texts = [_plain_text(place) for place in rest if place.whole and place.path.startswith("sessions/")]
    return replace(plan, needles=Needles.of_texts(texts, needles.words), unreachable=others)


def _find_person(scope: ForgetScope, name: str) -> tuple[list[SessionRecord], frozenset[str]]:
    """Return the private sessions of a person, who is named by an account or by identity links, and the folders with
    the person's notes."""
    people = People(scope.config)
    linked = scope.config.agent.session.identity_links
    folders = {*people.find(name, may_own=False).folders} if name in linked else set()
    records = []
    for record in scope.sessions.recent():
        account = find_account(record.key)
        names = () if account is None or account.is_group else (account.name, people.name_of(account))
        if name in map(str.casefold, names) and account is not None and scope.is_visible(record.citation):
            records.append(record)
            folders |= people.viewer(account, may_own=False).folders
    return records, frozenset(folders)


def _plan_before(scope: ForgetScope, request: ForgetRequest, before_ms: int) -> ForgetPlan:
    places: list[Place] = []
    paths: list[str] = []
    for record in scope.sessions.recent() if os.path.isdir(scope.sessions.folder) else ():
        if not scope.is_visible(record.citation):
            continue
        if to_ms(record.updated) < before_ms:
            places.append(session_place(record))
            paths.append(record.transcript_path)
        elif to_ms(record.created) < before_ms:
            places += find_in_transcript(
                record.transcript_path, Matcher(Needles()), lambda entry: _is_before(entry, before_ms)
            )
    daily = get_daily_notes(scope.workspace)
    for absolute, path, note in scope.notes.iter_texts():
        day = daily.find_day(path)
        if (
            day is not None
            and to_ms(dt.datetime.combine(day, dt.time()) + dt.timedelta(days=1)) <= before_ms
            and scope.notes.is_writable(absolute, path)
        ):
            places.append(whole_note(path, note.text))
    return _plan_whole(scope, request, places, paths)


def _is_before(entry: AnyEntry, before_ms: int) -> bool:
    return isinstance(entry, Entry) and not isinstance(entry.body, SessionStart) and to_ms(entry.timestamp) < before_ms
