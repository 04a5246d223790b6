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
from kept.errors import EmptyQuery, ForgetTooMuch, KeptError, NoteNotFound, PathRefused, SessionNotFound
from kept.forgetting.needles import Matcher, Needles, is_too_short
from kept.forgetting.passages import cited_lines, note_place, split_passages, whole_note
from kept.forgetting.places import (
    ForgetScope,
    NoteFile,
    PlaceScan,
    find_everywhere,
    find_lines,
    iter_notes,
    read_note,
    spoken_texts,
)
from kept.forgetting.plan import ForgetPlan, Place, digest_of
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


def plan_forget(scope: ForgetScope, request: str, what: str | int, *, allow_all: bool = False) -> ForgetPlan:
    """Return every place of what is to be forgotten: a query, a session, a person, or all before a time.

    Raise ForgetTooMuch for words that are too short and for too many places, unless ``allow_all`` is set.
    """
    text = str(what).strip()
    if request in ("query", "person"):
        if not text:
            raise EmptyQuery("There is nothing to forget.", hint="Name words, a citation or a person.")
        if is_too_short(text) and not allow_all:
            raise ForgetTooMuch(f"{text!r} is too short: it may be part of anything.")
    if request == "session":
        plan = _plan_places(scope, request, [_find_session(scope, text)])
    elif request == "before":
        plan = _plan_places(scope, request, [*_find_before(scope, int(what))])
    elif request == "person":
        plan = _plan_person(scope, text)
    elif cited := _find_cited(scope, text):
        plan = _plan_places(scope, "citation", cited)
    else:
        needles = Needles((text,))
        scan = find_everywhere(scope, Matcher(needles))
        like = () if scan.places or scan.unreachable else _find_like(scope, text)
        plan = scan.make_plan(request, scan.places, needles, like)
    if len(plan.places) > MOST_PLACES and not allow_all:
        raise ForgetTooMuch(f"That is in {len(plan.places):,} places.")
    return replace(plan, by_tool=scope.by_tool)


def _find_like(scope: ForgetScope, query: str) -> Iterator[Place]:
    """Yield the best passage of each of the best hits of a search."""
    words = set(normalise_words(query))
    hits: Iterable[Hit] = ()
    with suppress(KeptError):
        hits = list(scope.search(query))
    for hit in hits:
        with suppress(KeptError):
            if hit.source == "sessions":
                places = _find_said(scope, hit.path, hit.start_line, hit.end_line)
            else:
                note = _cited_note(scope, hit.path)
                places = [
                    note_place(note.path, passage.start_line, passage.text, note.text)
                    for passage in split_passages(note.text)
                    if hit.start_line <= passage.start_line <= hit.end_line and not passage.text.startswith("#")
                ]
            if places:
                yield max(places, key=lambda place: len(words & set(normalise_words(place.said))))


# places that are named: citations, notes, sessions, a time


def _find_cited(scope: ForgetScope, text: str) -> list[Place]:
    """Return the places of a citation, or of a note that is named by its path. Return none for other texts."""
    cited = parse_citation(text)
    path, first, last = cited or (text, 1, _LAST_LINE)
    if is_transcript_citation(path):
        places = _find_said(scope, path, first, last)
    elif cited:
        note = _cited_note(scope, path)
        lines = note.text.split("\n")
        body = "\n".join(lines[first - 1 : last])
        body = body.rstrip("\n") if len(lines) < last else body  # a text ends with a line break, not with an empty line
        places = [note_place(note.path, first, body, note.text)] if body.strip() else []
    elif path.endswith(".md") and not any(map(str.isspace, path)):
        try:
            note = _cited_note(scope, path)
        except NoteNotFound:
            return []  # words, after all
        places = [whole_note(note.path, note.text)]
    else:
        return []
    if not places:
        raise NoteNotFound(f"{text}: there is nothing to forget.", hint="Cite lines that say something.")
    return places


def _find_said(scope: ForgetScope, citation: str, first: int, last: int) -> list[Place]:
    return find_lines(scope, citation, lambda line: first <= line.number <= last)


def _cited_note(scope: ForgetScope, path: str) -> NoteFile:
    name = scope.workspace.locate(path)
    if not scope.view.sees(name):
        raise NoteNotFound(f"{name}: there is no such note.")
    note = read_note(scope, name)
    if not note.is_writable:
        raise PathRefused(f"{name}: is not changed here.", hint="Change it with an editor.")
    return note


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
    title = f": {record.title}" if record.title else ""
    text = f"{record.id}, {record.messages} messages, {record.created:%Y-%m-%d}{title}"
    path, digest = record.citation, digest_of(record.id)
    return Place("session", path, path, text, digest, lines=record.messages, whole=True, key=record.key)


def _find_before(scope: ForgetScope, before_ms: int) -> Iterator[Place]:
    """Yield the conversations, the lines of conversations, and the daily notes that are from before a time."""

    def is_before(line: TranscriptLine) -> bool:
        match line.content:
            case Entry(body=body, timestamp=timestamp):
                return not isinstance(body, SessionStart) and to_ms(timestamp) < before_ms
        return False

    for record in scope.sessions.recent() if scope.sessions.has_any else ():
        if not scope.view.sees(record.citation):
            continue
        if to_ms(record.updated) < before_ms:
            yield _session_place(record)
        elif to_ms(record.created) < before_ms:
            yield from find_lines(scope, record.citation, is_before)
    daily = get_daily_notes(scope.workspace)
    for note in iter_notes(scope):
        day = daily.find_day(note.path)
        is_past = day is not None and to_ms(dt.datetime.combine(day, dt.time()) + dt.timedelta(days=1)) <= before_ms
        if is_past and note.is_writable:
            yield whole_note(note.path, note.text)


def _plan_places(scope: ForgetScope, request: str, places: list[Place]) -> ForgetPlan:
    """Return a plan for places and for facts that were made of them. Copies of their lines are candidates."""
    texts = [place.said for place in places]
    for place in places:
        if place.kind == "session":
            with suppress(SessionNotFound):  # it was deleted before
                texts += spoken_texts(scope, place.path)
    needles = Needles.of_texts(texts)
    known = [*places, *_find_made_of(scope, places)]
    copies = find_everywhere(scope, Matcher(needles), known=known) if needles else PlaceScan()
    copies.asked.clear()  # a command that has a copy of a line did not ask for it to be forgotten
    others = (place for place in copies.places if not _covers(known, place))
    return copies.make_plan(request, known, needles, others)


def _covers(known: Iterable[Place], place: Place) -> bool:
    """Return whether a place goes along with others: its lines, its whole conversation, or its history do."""
    end = place.start_line + place.lines
    return any(
        other.path == place.path
        and (
            place.kind == "history"
            or other.kind == "session"
            or (other.start_line < end and place.start_line < other.start_line + other.lines)
        )
        for other in known
    )


def _find_made_of(scope: ForgetScope, places: Iterable[Place]) -> list[Place]:
    """Return the facts of notes that cite only lines of transcripts which are to be forgotten."""
    sessions = {place.path for place in places if place.kind == "session"}
    lines_to_go = {(place.path, place.start_line) for place in places if place.path.startswith("sessions/")}
    if not lines_to_go:
        return []

    def is_fact(text: str) -> bool:
        cited = [(path, range(first, last + 1)) for path, first, last in cited_lines(text)]
        goes = (path in sessions or all((path, line) in lines_to_go for line in lines) for path, lines in cited)
        return bool(cited) and all(goes)

    facts = [
        note_place(note.path, passage.start_line, passage.text, note.text)
        for note in iter_notes(scope)
        if note.is_writable and "sessions/" in note.text
        for passage in split_passages(note.text)
        if is_fact(passage.text)
    ]
    return [fact for fact in facts if not _covers(places, fact)]


# a person


def _plan_person(scope: ForgetScope, name: str) -> ForgetPlan:
    folded = name.casefold()

    def is_from(line: TranscriptLine) -> bool:
        message = getattr(line.content, "body", None)
        named = (message.sender, message.forwarded_from) if isinstance(message, Message) else ()
        return folded in (name.strip().casefold() for name in named if name)

    names, doubtful = _names_of(scope, name)
    scan = find_everywhere(scope, Matcher(Needles(names)), is_from, is_person=True)
    own = _find_own(scope, folded)
    whole = {place.path for place in own}
    unsure = [place for place in scan.places if _is_unsure(place, names)]
    sure = [place for place in scan.places if place.path not in whole and place not in unsure]
    if doubtful:
        is_named = re.compile(rf"\b(?:{'|'.join(map(re.escape, doubtful))})\b")
        more = find_everywhere(scope, Matcher(Needles(doubtful)), known=own).places
        unsure += (place for place in more if is_named.search(place.text))
    known = [*own, *sure]
    known += _find_made_of(scope, known)
    cited = {place.citation for place in known}
    others = {place.citation: place for place in unsure if place.path not in whole and place.citation not in cited}
    spoken = [place.said for place in sure if place.whole and place.path.startswith("sessions/")]
    return scan.make_plan("person", known, Needles.of_texts(spoken, names), others.values())


def _names_of(scope: ForgetScope, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of a person: with title and aliases of a note that has this name, and names that may be somebody
    else's too: an alias that two notes have, and a first name."""
    by_note = []
    for note in iter_notes(scope):
        read = read_properties(note.text.split("\n"))
        by_note.append({text.casefold(): text for text in (_title_of(note.path), read.title, *read.aliases) if text})
    own = [names for names in by_note if name.casefold() in names]
    by_folded = {folded: text for names in own for folded, text in names.items() if not is_too_short(text)}
    shared = {folded for names in by_note if names not in own for folded in names} - {name.casefold()}
    doubtful = [text for folded, text in by_folded.items() if folded in shared]
    first = name.split()[0]
    if first != name and first.casefold() not in by_folded and not is_too_short(first):
        doubtful.append(first)
    sure = (name, *(text for text in by_folded.values() if text not in doubtful))
    return tuple(dict.fromkeys(sure)), tuple(doubtful)


def _title_of(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]


def _is_unsure(place: Place, names: Iterable[str]) -> bool:
    """Return whether a place may be about more than a person: a note or a property that only names them."""
    if place.kind == "note" and place.whole:
        return re.sub("[-_]", " ", _title_of(place.path)).casefold() not in map(str.casefold, names)
    return place.is_property and not place.new and not place.text.lstrip().startswith("- ")


def _find_own(scope: ForgetScope, name: str) -> list[Place]:
    """Return the private sessions and notes of a person, who is named by an account or by identity links."""
    people, folders = People(scope.config), set[str]()
    if name in scope.config.agent.session.identity_links:
        folders |= {*people.find(name, may_own=False).folders}
    places = []
    for record in scope.sessions.recent():
        account = find_account(record.key)
        if account is None or account.is_group or not scope.view.sees(record.citation):
            continue
        if name in map(str.casefold, (account.name, people.name_of(account))):
            places.append(_session_place(record))
            folders |= {*people.viewer(account, may_own=False).folders}
    notes = (note for note in iter_notes(scope) if private_folder_of(note.path) in folders)
    return [*places, *(whole_note(note.path, note.text) for note in notes)]
