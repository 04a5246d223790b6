"""Finds every place of what is to be forgotten. Reads only."""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

from kept.base.records import Hit, parse_citation
from kept.base.values import frozen
from kept.base.visibility import Viewer, private_folder_of
from kept.config import Config
from kept.errors import EmptyQuery, ForgetTooMuch, KeptError, NoteNotFound, PathRefused, SessionNotFound, UsageError
from kept.forgetting.history_places import find_in_history
from kept.forgetting.needles import Matcher, Needles, is_too_short
from kept.forgetting.note_places import (
    NoteHunt,
    find_made_of,
    note_place,
    split_passages,
    whole_note,
)
from kept.forgetting.own_files import find_in_inbox, find_in_proposals, find_in_records, find_in_schedules
from kept.forgetting.plan import ForgetPlan, ForgetRequest, Place, digest_of
from kept.forgetting.transcript_places import (
    Wants,
    find_in_transcript,
    find_lines,
    iter_transcript_files,
    spoken_texts,
)
from kept.index.chunking.properties import read_properties
from kept.notes.daily import get_daily_notes
from kept.notes.history.note_history import open_history
from kept.notes.opened import OpenWorkspace
from kept.notes.workspace import Workspace, is_persons_own
from kept.search.periods import to_ms
from kept.sessions.entries import AnyEntry, Entry, Message, SessionStart
from kept.sessions.forgotten_text import normalise_words
from kept.sessions.people import People, find_account
from kept.sessions.record import SessionRecord
from kept.sessions.spoken import locate_transcript, read_key
from kept.sessions.store import SessionStore
from kept.sessions.transcript_paths import cite_transcript, is_transcript_citation

MOST_PLACES = 100
"""More places than this need explicit consent (`--all`)."""
_LARGEST_NOTE = 1 << 28

Search = Callable[[str], Iterable[Hit]]


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
    """One of several people, who sees a part."""
    is_bound: bool = False
    """True if only a part is seen. Records are left out then: nothing tells whose a text there is."""
    folder: str = ""
    """Folder of the notes of those who see only a part."""
    search: Search | None = None
    """Finds passages for words that are nowhere."""

    @property
    def notes(self) -> NoteHunt:
        return NoteHunt(self.workspace, self.is_visible, self.by_tool)

    def sees_key(self, key: str) -> bool:
        if self.viewer is None:
            return not self.is_bound
        return self.viewer.sees_key(key) if key else self.viewer.is_owner

    def may_change(self, path: str) -> bool:
        """Return whether a note, or what is stored of it elsewhere, is visible and not left to the person."""
        return self.is_visible(path) and not (self.by_tool and is_persons_own(path))

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
    if len(plan.places) > MOST_PLACES and not allow_all:
        raise ForgetTooMuch(f"That is in {len(plan.places):,} places.")
    return replace(plan, by_tool=scope.by_tool)


# words and citations


def _plan_query(scope: ForgetScope, request: ForgetRequest, query: str, *, allow_all: bool) -> ForgetPlan:
    if not query.strip():
        raise EmptyQuery("There is nothing to forget.", hint="Name words or a citation, for example: kept forget 4711")
    if cited := _find_cited(scope, query.strip()):
        return _plan_whole(scope, request, cited, is_cited=True)
    _require_long_enough(query, allow_all=allow_all)
    needles = Needles((query,))
    places, others = _find_everywhere(scope, Matcher(needles))
    candidates = () if places or others else tuple(_find_like(scope, query))
    asked = tuple(_find_requests(scope, Matcher(needles)))
    return ForgetPlan(request, places, needles, unreachable=others, candidates=candidates, asked=asked)


def _find_like(scope: ForgetScope, query: str) -> Iterator[Place]:
    """Yield the best passage of each of the best hits of a search."""
    words = set(normalise_words(query))

    def count_common(place: Place) -> int:
        return len(words & set(normalise_words(place.said)))

    hits: list[Hit] = []
    with suppress(KeptError):
        hits += scope.search(query) if scope.search else ()
    for hit in hits:
        with suppress(KeptError):
            if hit.source == "sessions":
                transcript = locate_transcript(scope.config.paths.sessions, hit.path)
                places = find_lines(transcript.path, hit.start_line, hit.end_line)
            else:
                places = _passages_of(scope, hit)
            if places:
                yield max(places, key=count_common)


def _passages_of(scope: ForgetScope, hit: Hit) -> list[Place]:
    absolute = scope.workspace.locate(hit.path)
    if not scope.notes.is_writable(absolute, hit.path):
        return []
    with OpenWorkspace(scope.workspace) as opened:
        text = opened.read(absolute, max_bytes=_LARGEST_NOTE).text
    return [
        note_place(hit.path, passage.start_line, passage.text, text)
        for passage in split_passages(text)
        if hit.start_line <= passage.start_line <= hit.end_line and not passage.text.startswith("#")
    ]


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
    return [note_place(cited, first, body, text)] if body.strip() else []


def _find_everywhere(
    scope: ForgetScope, matcher: Matcher, wants: Wants | None = None, *, is_person: bool = False
) -> tuple[tuple[Place, ...], tuple[str, ...]]:
    """Return the places of something in all stores, and those that are not changed."""
    places, others = scope.notes.find(matcher, is_person=is_person)
    for path in scope.transcripts():
        places += find_in_transcript(path, matcher, wants)
    return tuple(places + _find_in_files(scope, matcher, places)), tuple(others)


def _find_in_files(scope: ForgetScope, matcher: Matcher, known: Iterable[Place]) -> list[Place]:
    """Return the places in other files than notes and transcripts, except for what goes with known places."""
    history = open_history(scope.config, scope.workspace, scope.sessions.clock)
    places = [place for place in find_in_history(history, matcher, list(known)) if scope.may_change(place.path)]
    places += find_in_proposals(
        scope.workspace, matcher, scope.may_change, f"{scope.folder}/" if scope.is_bound else ""
    )
    places += find_in_schedules(scope.config, matcher, scope.sees_key)
    keys = find_keys(scope.config, known)
    inbox, _ = find_in_inbox(scope.config, matcher)
    places += [place for place in inbox if place.path not in keys and scope.sees_key(place.path)]
    return places if scope.is_bound else places + find_in_records(scope.config, matcher)


def find_keys(config: Config, places: Iterable[Place]) -> frozenset[str]:
    """Return the keys of the conversations in which places are. Their messages in the inbox go with these."""
    keys: set[str | None] = set()
    for path in {place.path for place in places if is_transcript_citation(place.path)}:
        with suppress(SessionNotFound):
            keys.add(read_key(config.paths.sessions, path))
    return frozenset(key for key in keys if key)


def _find_requests(scope: ForgetScope, matcher: Matcher) -> list[Place]:
    """Return where Kept noted the request to forget it: in commands in the inbox, and in proposals of /forget."""
    places = [place for place in find_in_inbox(scope.config, matcher)[1] if scope.sees_key(place.path)]
    for path in scope.transcripts():
        places += find_in_transcript(path, matcher, proposals=True)
    return places


def _plan_whole(
    scope: ForgetScope,
    request: ForgetRequest,
    places: list[Place],
    paths: Iterable[str] = (),
    *,
    is_cited: bool = False,
) -> ForgetPlan:
    """Return a plan for places, for whole transcripts, and for facts that were made of them.

    Copies of their lines in other files are candidates; of lines that are cited, in notes and conversations too.
    """
    texts = [text for path in paths for text in spoken_texts(path)]
    needles = Needles.of_texts([*texts, *(place.said for place in places)])
    citations = {place.citation for place in places}
    derived = [place for place in _derived_from(scope, places) if place.citation not in citations]
    known = (*places, *(place for place in derived if not _overlaps(place, places)))
    copies: Iterable[Place] = ()
    others: tuple[str, ...] = ()
    if needles and is_cited:
        copies, others = _find_everywhere(scope, Matcher(needles))
    elif needles:
        copies = _find_in_files(scope, Matcher(needles), known)
    citations, changed = {place.citation for place in known}, {place.path for place in known}
    copies = [place for place in copies if place.citation not in citations and not _overlaps(place, known)]
    copies = [place for place in copies if place.kind != "history" or place.path not in changed]
    return ForgetPlan(request, known, needles, unreachable=others, candidates=tuple(copies))


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
        if deleted is None or deleted.is_purged:
            raise
        name = os.path.basename(deleted.original_path)
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


def _plan_person(scope: ForgetScope, request: ForgetRequest, name: str, *, allow_all: bool) -> ForgetPlan:
    if not name.strip():
        raise EmptyQuery("There is nobody to forget.", hint="Name a person: kept forget --person 'Ada Lovelace'")
    _require_long_enough(name, allow_all=allow_all)
    folded = name.strip().casefold()

    def is_from(entry: AnyEntry) -> bool:
        body = entry.body if isinstance(entry, Entry) else None
        names = (body.sender, body.forwarded_from) if isinstance(body, Message) else ()
        return any(other is not None and other.strip().casefold() == folded for other in names)

    names, doubtful = _names_of(scope, name.strip())
    matcher = Matcher(Needles(names))
    everywhere, others = _find_everywhere(scope, matcher, is_from, is_person=True)
    records, folders = _find_person(scope, folded)
    notes = [
        whole_note(path, note.text) for _, path, note in scope.notes.iter_texts() if private_folder_of(path) in folders
    ]
    whole = {place.path for place in (*map(session_place, records), *notes)}
    unsure = [place for place in everywhere if _is_unsure(place, names)]
    rest = [place for place in everywhere if place.path not in whole and place not in unsure]
    plan = _plan_whole(scope, request, [*map(session_place, records), *notes, *rest])
    texts = [place.said for place in rest if place.whole and place.path.startswith("sessions/")]
    for word in doubtful:
        more, _ = _find_everywhere(scope, Matcher(Needles((word,))))
        unsure += [place for place in more if re.search(rf"\b{re.escape(word)}\b", place.text)]
    known = {place.citation for place in plan.options}
    undecided = {place.citation: place for place in unsure if place.citation not in known and place.path not in whole}
    needles = Needles.of_texts(texts, names)
    asked = tuple(_find_requests(scope, matcher))
    return replace(plan, needles=needles, unreachable=others, candidates=tuple(undecided.values()), asked=asked)


def _names_of(scope: ForgetScope, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of a person: with title and aliases of a note that has this name, and names that may be somebody
    else's too: an alias that two notes have, and a first name."""
    by_note = []
    for _, path, note in scope.notes.iter_texts():
        read = read_properties(note.text.split("\n"))
        title = os.path.splitext(os.path.basename(path))[0]
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
