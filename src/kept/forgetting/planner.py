"""Plans a forget: words, a citation, a session, a person, or all before a time. Reads only."""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

from kept.base.records import Hit, parse_citation
from kept.base.visibility import private_folder_of
from kept.errors import EmptyQuery, ForgetTooMuch, KeptError, NoteNotFound, PathRefused, SessionNotFound, UsageError
from kept.forgetting.needles import Matcher, Needles, is_too_short
from kept.forgetting.passages import find_made_of, note_place, split_passages, whole_note
from kept.forgetting.places import (
    Findings,
    ForgetScope,
    NoteFile,
    find_everywhere,
    find_in_records,
    find_lines,
    iter_notes,
    read_note,
    spoken_texts,
)
from kept.forgetting.plan import ForgetPlan, ForgetRequest, Place, digest_of
from kept.index.chunking.properties import read_properties
from kept.notes.daily import get_daily_notes
from kept.search.date_words import to_ms
from kept.sessions.entries import Entry, Message, SessionStart
from kept.sessions.forgotten_text import normalise_words
from kept.sessions.people import People, find_account
from kept.sessions.record import SessionRecord
from kept.sessions.transcript import TranscriptLine
from kept.sessions.transcript_paths import cite_transcript, is_transcript_citation

MOST_PLACES = 100
"""More places than this need explicit consent (`--all`)."""
_LAST_LINE = 1_000_000_000


def plan_forget(scope: ForgetScope, request: ForgetRequest, *, allow_all: bool = False) -> ForgetPlan:
    """Return every place of what is to be forgotten.

    Raise ForgetTooMuch for words that are too short and for too many places, unless ``allow_all`` is set.
    """
    match request:
        case ForgetRequest(None, str(session), None, None):
            plan = _plan_whole(scope, request, [_find_session(scope, session)])
        case ForgetRequest(None, None, None, int(before_ms)):
            plan = _plan_before(scope, request, before_ms)
        case ForgetRequest(None, None, str(words), None) | ForgetRequest(str(words), None, None, None):
            if not words.strip():
                raise EmptyQuery("There is nothing to forget.", hint="Name words, a citation or a person.")
            if is_too_short(words) and not allow_all:
                raise ForgetTooMuch(f"{words.strip()!r} is too short: it may be part of anything.")
            plan = (_plan_query if request.person is None else _plan_person)(scope, request, words)
        case _:
            raise UsageError("Forget one thing at a time: words or a citation, a session, a person, or a time.")
    if len(plan.places) > MOST_PLACES and not allow_all:
        raise ForgetTooMuch(f"That is in {len(plan.places):,} places.")
    return replace(plan, by_tool=scope.by_tool)


# words and citations


def _plan_query(scope: ForgetScope, request: ForgetRequest, query: str) -> ForgetPlan:
    if cited := _find_cited(scope, query.strip()):
        return _plan_whole(scope, request, cited, is_cited=True)
    needles = Needles((query,))
    findings = find_everywhere(scope, Matcher(needles))
    candidates = () if findings.places or findings.unreachable else tuple(_find_like(scope, query))
    return ForgetPlan(
        request,
        tuple(findings.places),
        needles,
        unreachable=tuple(findings.unreachable),
        candidates=candidates,
        asked=tuple(findings.asked),
    )


def _find_like(scope: ForgetScope, query: str) -> Iterator[Place]:
    """Yield the best passage of each of the best hits of a search."""
    words = set(normalise_words(query))

    def count_common(place: Place) -> int:
        return len(words & set(normalise_words(place.said)))

    hits: Iterable[Hit] = ()
    with suppress(KeptError):
        hits = list(scope.search(query))
    for hit in hits:
        with suppress(KeptError):
            is_said = hit.source == "sessions"
            places = _lines_of(scope, hit.path, hit.start_line, hit.end_line) if is_said else _passages_of(scope, hit)
            if places:
                yield max(places, key=count_common)


def _lines_of(scope: ForgetScope, citation: str, first: int, last: int) -> list[Place]:
    return find_lines(scope, citation, lambda line: first <= line.number <= last)


def _passages_of(scope: ForgetScope, hit: Hit) -> list[Place]:
    note = read_note(scope, scope.workspace.locate(hit.path))
    return [
        note_place(note.path, passage.start_line, passage.text, note.text)
        for passage in (split_passages(note.text) if note.is_writable else ())
        if hit.start_line <= passage.start_line <= hit.end_line and not passage.text.startswith("#")
    ]


def _find_cited(scope: ForgetScope, text: str) -> list[Place]:
    """Return the places of a citation, or of a note that is named by its path. Return none for other texts."""
    cited = parse_citation(text)
    path, first, last = cited or (text, 1, _LAST_LINE)
    if is_transcript_citation(path):
        places = _lines_of(scope, path, first, last)
    elif cited:
        places = _cited_lines(scope, path, first, last)
    elif path.endswith(".md") and not any(map(str.isspace, path)):
        try:
            note = _cited_note(scope, path)
        except (NoteNotFound, PathRefused):
            return []  # words, after all
        places = [whole_note(_require_writable(note).path, note.text)]
    else:
        return []
    if not places:
        raise NoteNotFound(f"{text}: there is nothing to forget.", hint="Cite lines that say something.")
    return places


def _cited_lines(scope: ForgetScope, path: str, first: int, last: int) -> list[Place]:
    note = _require_writable(_cited_note(scope, path))
    lines = note.text.split("\n")
    body = "\n".join(lines[first - 1 : last])
    body = body.rstrip("\n") if len(lines) < last else body  # a text ends with a line break, not with an empty line
    return [note_place(note.path, first, body, note.text)] if body.strip() else []


def _cited_note(scope: ForgetScope, path: str) -> NoteFile:
    absolute = scope.workspace.locate(path)
    if not scope.view.sees(cited := scope.workspace.cite(absolute)):
        raise NoteNotFound(f"{cited}: there is no such note.")
    return read_note(scope, absolute)


def _require_writable(note: NoteFile) -> NoteFile:
    if not note.is_writable:
        raise PathRefused(f"{note.path}: is not changed here.", hint="Change it with an editor.")
    return note


def _plan_whole(
    scope: ForgetScope,
    request: ForgetRequest,
    places: list[Place],
    *,
    is_cited: bool = False,
) -> ForgetPlan:
    """Return a plan for places, for whole transcripts, and for facts that were made of them.

    Copies of their lines in other files are candidates; of lines that are cited, in notes and conversations too.
    """
    texts = [text for place in places if place.kind == "session" for text in _texts_of(scope, place)]
    needles = Needles.of_texts([*texts, *(place.said for place in places)])
    cited = {place.citation for place in places}
    derived = (place for place in _derived_from(scope, places) if place.citation not in cited)
    known = (*places, *(place for place in derived if not _overlaps(place, places)))
    copies = Findings(list(known))
    if needles and is_cited:
        copies = find_everywhere(scope, Matcher(needles))
    elif needles:
        find_in_records(scope, Matcher(needles), copies)
    cited, changed = {place.citation for place in known}, {place.path for place in known}
    candidates = tuple(
        place
        for place in copies.places
        if place.citation not in cited
        and not _overlaps(place, known)
        and (place.kind != "history" or place.path not in changed)
    )
    return ForgetPlan(request, known, needles, unreachable=tuple(copies.unreachable), candidates=candidates)


def _texts_of(scope: ForgetScope, session: Place) -> list[str]:
    try:
        return spoken_texts(scope, session.path)
    except SessionNotFound:
        return []  # it was deleted before


def _overlaps(place: Place, others: Iterable[Place]) -> bool:
    last = place.start_line + place.lines
    return place.kind == "note" and any(
        other.path == place.path
        and (other.whole or (other.start_line < last and place.start_line < other.start_line + other.lines))
        for other in others
    )


def _derived_from(scope: ForgetScope, places: Iterable[Place]) -> list[Place]:
    """Return notes that cite only lines of transcripts which are to be forgotten."""
    sessions = {place.path for place in places if place.kind == "session"}
    said = {(place.path, place.start_line) for place in places if place.path.startswith("sessions/")}
    if not said:
        return []

    def is_forgotten(path: str, first: int, last: int) -> bool:
        return path in sessions or all((path, number) in said for number in range(first, last + 1))

    notes = (note for note in iter_notes(scope) if note.is_writable)
    return [fact for note in notes for fact in find_made_of(note.text, note.path, is_forgotten)]


# sessions, people, times


def _find_session(scope: ForgetScope, reference: str) -> Place:
    try:
        record = scope.sessions.get(reference, scope.view.viewer)
    except SessionNotFound:
        deleted = scope.sessions.find_deleted(reference) if scope.view.viewer is None else None
        if deleted is None or deleted.is_purged:
            raise
        path = cite_transcript(deleted.original)
        return Place("session", path, path, f"deleted session {deleted.id}", digest_of(deleted.id), whole=True)
    if not scope.view.sees(record.citation):
        raise SessionNotFound(f"There is no session '{reference}'.")
    return _session_place(record)


def _session_place(record: SessionRecord) -> Place:
    text = f"{record.id}, {record.messages} messages, {record.created:%Y-%m-%d}" + (
        f": {record.title}" if record.title else ""
    )
    return Place(
        "session", record.citation, record.citation, text, digest_of(record.id), lines=record.messages, whole=True
    )


def _plan_person(scope: ForgetScope, request: ForgetRequest, name: str) -> ForgetPlan:
    folded = name.strip().casefold()

    def is_from(line: TranscriptLine) -> bool:
        match line.content:
            case Entry(body=Message() as message):
                return folded in (name.strip().casefold() for name in (message.sender, message.forwarded_from) if name)
        return False

    names, doubtful = _names_of(scope, name.strip())
    findings = find_everywhere(scope, Matcher(Needles(names)), is_from, is_person=True)
    records, folders = _find_person(scope, folded)
    notes = (note for note in iter_notes(scope) if private_folder_of(note.path) in folders)
    own = [*map(_session_place, records), *(whole_note(note.path, note.text) for note in notes)]
    whole = {place.path for place in own}
    found = [place for place in findings.places if place.path not in whole]
    unsure = [place for place in found if _is_unsure(place, names)]
    rest = [place for place in found if place not in unsure]
    plan = _plan_whole(scope, request, [*own, *rest])
    if doubtful:
        is_named = re.compile(rf"\b(?:{'|'.join(map(re.escape, doubtful))})\b")
        more = find_everywhere(scope, Matcher(Needles(doubtful))).places
        unsure += (place for place in more if place.path not in whole and is_named.search(place.text))
    known = {place.citation for place in plan.places}
    spoken = [place.said for place in rest if place.whole and place.path.startswith("sessions/")]
    return replace(
        plan,
        needles=Needles.of_texts(spoken, names),
        unreachable=tuple(findings.unreachable),
        candidates=tuple({place.citation: place for place in unsure if place.citation not in known}.values()),
        asked=tuple(findings.asked),
    )


def _names_of(scope: ForgetScope, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of a person: with title and aliases of a note that has this name, and names that may be somebody
    else's too: an alias that two notes have, and a first name."""
    by_note = []
    for note in iter_notes(scope):
        read = read_properties(note.text.split("\n"))
        title = os.path.splitext(os.path.basename(note.path))[0]
        by_note.append({text.casefold(): text for text in (title, read.title, *read.aliases) if text})
    own = [names for names in by_note if name.casefold() in names]
    by_folded = {folded: text for names in own for folded, text in names.items() if not is_too_short(text)}
    shared = {folded for names in by_note if names not in own for folded in names}
    first = name.split()[0]
    doubtful = [text for folded, text in by_folded.items() if folded in shared and folded != name.casefold()]
    if first != name and first.casefold() not in by_folded and not is_too_short(first):
        doubtful.append(first)
    return tuple(dict.fromkeys((name, *(text for text in by_folded.values() if text not in doubtful)))), tuple(doubtful)


def _is_unsure(place: Place, names: Iterable[str]) -> bool:
    """Return whether a place may be about more than a person: a note or a property that only names them."""
    if place.kind == "note" and place.whole:
        title = os.path.splitext(os.path.basename(place.path))[0].replace("-", " ").replace("_", " ")
        return title.casefold() not in map(str.casefold, names)
    return place.is_property and not place.new and not place.text.lstrip().startswith("- ")


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
        if name in map(str.casefold, names) and account is not None and scope.view.sees(record.citation):
            records.append(record)
            folders |= people.viewer(account, may_own=False).folders
    return records, frozenset(folders)


def _plan_before(scope: ForgetScope, request: ForgetRequest, before_ms: int) -> ForgetPlan:
    def is_before(line: TranscriptLine) -> bool:
        match line.content:
            case Entry(body=body, timestamp=timestamp):
                return not isinstance(body, SessionStart) and to_ms(timestamp) < before_ms
        return False

    places: list[Place] = []
    for record in scope.sessions.recent() if scope.sessions.has_any else ():
        if not scope.view.sees(record.citation):
            continue
        if to_ms(record.updated) < before_ms:
            places.append(_session_place(record))
        elif to_ms(record.created) < before_ms:
            places += find_lines(scope, record.citation, is_before)
    daily = get_daily_notes(scope.workspace)
    for note in iter_notes(scope):
        day = daily.find_day(note.path)
        is_past = day is not None and to_ms(dt.datetime.combine(day, dt.time()) + dt.timedelta(days=1)) <= before_ms
        if is_past and note.is_writable:
            places.append(whole_note(note.path, note.text))
    return _plan_whole(scope, request, places)
