"""The scan: walks all documents and logs of the workspace and of the agent, and finds the places of something.

Records of Kept's own are data: only their fields with texts of people are looked at. Tokens, settings and usage are
never changed: the receipt names those that still have it. Reads only.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from kept.base.limits import read_object
from kept.base.records import Hit, cite
from kept.base.values import frozen
from kept.base.visibility import PRIVATE_FOLDER
from kept.config import Config
from kept.errors import DocumentNotFound, KeptError, PathRefused, SessionNotFound
from kept.forgetting.needles import Matcher, Needles, words_of
from kept.forgetting.old_versions import find_in_history
from kept.forgetting.passages import find_in_note, name_words
from kept.forgetting.plan import ForgetPlan, Place, digest_of
from kept.notes.review_queue import ReviewQueue, item_path
from kept.notes.scan import scan_workspace
from kept.notes.workspace import Workspace, is_persons_own
from kept.search.memory_view import MemoryView
from kept.sessions.entries import Message, SessionStart, StateEntry
from kept.sessions.forgotten_text import Matches, blank_line, blank_tree
from kept.sessions.schedules.schedule_book import open_schedules
from kept.sessions.spoken import find_utterance
from kept.sessions.store import SessionStore
from kept.sessions.transcript import Transcript, TranscriptLine
from kept.sessions.transcript_paths import CITED_FOLDER
from kept.storage.contract import LogLine, Storage, is_log
from kept.storage.open import INBOX, open_agent
from kept.storage.record_store import DAMAGED_ENDING

LARGEST_NOTE = 1 << 28
FORGET_STATE = "forget"
"""State of a session with a proposal of /forget, which has the query. It goes with the places that it names."""
RECEIPTS, DISPLACED = "forget-receipts.jsonl", ".kept/displaced/"
_TEXTS = {
    INBOX: frozenset({"text", "sender", "metadata", "parts", "details", "error", "reason"}),
    RECEIPTS: frozenset({"citation", "path", "unreachable", "changed", "kept"}),
}
"""Fields of records that may have text of people; the others identify a record. Of other logs, whole lines go."""
_DIGEST = re.compile(rb'"sha256":"([0-9a-f]{64})"')

Wants = Callable[[TranscriptLine], bool]
"""Returns whether a line is to go as a whole, whatever its words."""


@frozen
class ForgetScope:
    """The memory that is looked through."""

    config: Config
    workspace: Workspace
    sessions: SessionStore
    view: MemoryView
    """Notes and conversations that are visible. Those of another project, or of somebody else, are left out."""
    by_tool: bool
    search: Callable[[str], Iterable[Hit]]
    """Finds passages for words that are nowhere."""

    def sees_key(self, key: str) -> bool:
        viewer = self.view.viewer
        if viewer is None:
            return not self.view.is_bound
        return viewer.sees_key(key) if key else viewer.is_owner

    def may_change(self, path: str) -> bool:
        """Return whether a note, or what is stored of it elsewhere, is visible and not left to the person."""
        return self.view.sees(path) and not (self.by_tool and is_persons_own(path))


class PlaceScan:
    """Places of something in all documents and logs."""

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.asked: list[Place] = []
        """Where Kept noted the request itself. They go if all places do."""
        self.unreachable: dict[str, None] = {}
        """Places that are not changed."""

    def make_plan(
        self, request: str, places: Iterable[Place], needles: Needles, candidates: Iterable[Place]
    ) -> ForgetPlan:
        unreachable, asked = tuple(self.unreachable), tuple(self.asked)
        return ForgetPlan(request, tuple(places), needles, unreachable, candidates=tuple(candidates), asked=asked)


def find_everywhere(
    scope: ForgetScope,
    matcher: Matcher,
    wants: Wants | None = None,
    *,
    known: Iterable[Place] = (),
    is_person: bool = False,
) -> PlaceScan:
    """Return the places of something in all documents and logs, without what goes along with places known before."""
    scan, agent, notes = PlaceScan(), open_agent(scope.config), scope.workspace.storage
    for note in iter_notes(scope):
        if matcher.has_words(words_of(folder := os.path.dirname(note.path))):
            scan.unreachable[f"{folder}: the name of this folder"] = None
        places = find_in_note(note.path, note.text, matcher, is_person=is_person)
        if note.is_writable:
            scan.places += places
        else:
            scan.unreachable |= {place.citation: None for place in places}
    for transcript in all_transcripts(scope.config, agent):
        if scope.view.sees(transcript.citation):
            _find_in_transcript(scan, transcript, matcher, wants)
    known = [*known, *scan.places]
    scan.places += (place for place in find_in_history(notes, matcher, known) if scope.may_change(place.path))
    scan.places += _find_in_proposals(scope, matcher)
    scan.places += (
        Place("schedule", item.id, f"schedule {item.id} ({item.when})", item.text, digest_of(item.text))
        for item in open_schedules(scope.config).read().schedules
        if matcher.matches(item.text) and scope.sees_key(item.to)
    )
    _find_in_inbox(scan, scope, agent, matcher, {place.key for place in known})
    if not scope.view.is_bound:  # nothing tells whose a text in such a record is
        scan.places += _find_in_records(agent, notes, matcher)
    return scan


# notes


@frozen
class NoteFile:
    path: str
    text: str
    is_writable: bool


def iter_notes(scope: ForgetScope) -> Iterator[NoteFile]:
    """Yield each visible note, also those in extra paths and large ones."""
    for file in scan_workspace(scope.workspace, max_bytes=LARGEST_NOTE).files:
        if scope.view.sees(file.path):
            with suppress(KeptError):  # the search through all bytes reports what it has
                yield read_note(scope, file.path)


def read_note(scope: ForgetScope, path: str) -> NoteFile:
    text = scope.workspace.read(path, max_bytes=LARGEST_NOTE).text
    is_writable = scope.may_change(path)
    try:
        scope.workspace.require_own(path, path)
    except PathRefused:
        is_writable = False
    return NoteFile(path, text, is_writable)


# conversations


def all_transcripts(config: Config, agent: Storage) -> list[Transcript]:
    """Return the transcripts, also those of deleted sessions, and their torn ends."""
    prefix = config.paths.transcripts
    names = (info.name.removeprefix(prefix) for info in agent.logs.list(prefix))
    return [Transcript(agent, prefix + name) for name in names if not name.startswith(".") and "/" not in name]


def cited_transcript(config: Config, citation: str) -> Transcript:
    """Return a transcript that a place cites, also that of a deleted session."""
    return Transcript(open_agent(config), config.paths.transcripts + citation.removeprefix(CITED_FOLDER))


def find_transcript(scope: ForgetScope, citation: str) -> Transcript:
    """Return a cited transcript. Raise SessionNotFound if there is none, or none that is visible."""
    transcript = cited_transcript(scope.config, citation)
    transcript.find()
    if not scope.view.sees(citation):
        raise SessionNotFound(f"{citation}: there is no such transcript.")
    return transcript


def _find_in_transcript(scan: PlaceScan, transcript: Transcript, matcher: Matcher, wants: Wants | None) -> None:
    """Find the lines that match or are wanted and say something, and the proposals of /forget that match."""
    path, key = transcript.citation, ""
    for line in transcript.iter_lines():
        if line.number > 1 and wants is None and not matcher.may_match_raw(line.raw):
            continue
        body = getattr(line.content, "body", None)
        if isinstance(body, SessionStart):
            key = body.key
        is_proposal = isinstance(body, StateEntry) and body.name == FORGET_STATE
        is_whole = not is_proposal and wants is not None and wants(line)
        if blank_line(line.raw, matcher.matches, whole=is_whole) != line.raw:
            utterance = find_utterance(line.number, line.content)
            text = utterance.shown if utterance else "(details of the conversation or of a tool call)"
            citation, digest = cite(path, line.number, line.number), digest_of(line.raw)
            place = Place("conversation", path, citation, text, digest, line.number, whole=is_whole, key=key)
            (scan.asked if is_proposal else scan.places).append(place)


def find_lines(scope: ForgetScope, citation: str, wants: Wants) -> list[Place]:
    """Return the wanted lines of a transcript that say something."""
    scan = PlaceScan()
    _find_in_transcript(scan, find_transcript(scope, citation), Matcher(Needles()), wants)
    return scan.places


def spoken_texts(scope: ForgetScope, citation: str) -> list[str]:
    """Return what people and the agent say in a transcript, without tool results, which quote the notes."""
    bodies = (getattr(line.content, "body", None) for line in find_transcript(scope, citation).iter_lines())
    return [body.text for body in bodies if isinstance(body, Message) and body.role != "tool"]


# records


def _find_in_proposals(scope: ForgetScope, matcher: Matcher) -> Iterator[Place]:
    """Yield the proposals of agents for notes that may be changed."""
    folder = f"{scope.view.folder}/" if scope.view.is_bound else ""
    for item in ReviewQueue(scope.config, scope.workspace, scope.sessions.clock).list().items:
        private = item.addition.private
        notes = [item.path, *([f"{PRIVATE_FOLDER}/{private}/x.md"] if private else [])]
        text = "\n\n".join(filter(None, (item.addition.text, item.why, item.addition.replaces)))
        is_match = matcher.matches(text) or matcher.has_words(name_words(item.path))
        if is_match and all(map(scope.may_change, notes)) and any(note.startswith(folder) for note in notes):
            path = item_path(item.id)
            yield Place("proposal", path, path, text, digest_of(text))


def _find_in_inbox(scan: PlaceScan, scope: ForgetScope, agent: Storage, matcher: Matcher, keys: set[str]) -> None:
    """Find the conversations with a message that matches. One that only has it in a command asked for it. The messages
    of conversations with some keys go with these."""
    has_message: dict[str, bool] = {}
    for line, key in read_inbox(agent):
        if scrub_record(line.data, matcher, INBOX) != line.data:
            is_command = str(read_object(line.data).get("text", "/")).startswith("/")
            has_message[key] = has_message.get(key, False) or not is_command
    for key, is_said in has_message.items():
        if scope.sees_key(key) and (key not in keys or not is_said):
            text = "messages that the gateway received"
            place = Place("inbox", key, f"{INBOX} ({key})", text, digest_of(key), key=key)
            (scan.places if is_said else scan.asked).append(place)


def read_inbox(agent: Storage) -> Iterator[tuple[LogLine, str]]:
    """Yield the records of the inbox with the key of their conversation, empty for one that cannot be read."""
    keys: dict[Any, str] = {}
    for line in agent.logs.read(INBOX):
        tree = read_object(line.data)
        run = tree.get("type"), str(tree.get("id"))
        keys[run] = str(tree.get("key") or keys.get(run, ""))
        yield line, keys[run]


def _find_in_records(agent: Storage, notes: Storage, matcher: Matcher) -> Iterator[Place]:
    """Yield the receipts, the records that were set aside, and bytes that a crash tore or that lost against another
    program's, outside of conversations."""
    files = [*(info.name for info in agent.logs.list()), *(info.path for info in agent.documents.list())]
    aside = sorted(name for name in files if "/" not in name and name.endswith((RECEIPTS, DAMAGED_ENDING, ".torn")))
    names = [(agent, name) for name in aside]
    names += ((storage, info.path) for storage in (agent, notes) for info in storage.documents.list(DISPLACED))
    for storage, name in names:
        lines = read_lines(storage, name)
        if any(scrub_record(line, matcher, name) != line for line in lines):
            yield Place("record", name, name, "some of its lines", digest_of(b"\n".join(lines)))


def read_lines(storage: Storage, name: str) -> list[bytes]:
    """Return the lines of a log, or of a document; none if it is gone."""
    if is_log(name):
        return [line.data for line in storage.logs.read(name)]
    try:
        return storage.documents.read(name).data.splitlines()
    except DocumentNotFound:
        return []


def scrub_record(line: bytes, matcher: Matcher, name: str) -> bytes:
    """Return the line of a record without the texts that match, not longer than before; nothing if it goes whole."""
    if not matcher.may_match_raw(line):
        return line
    tree, texts = read_object(line), _TEXTS.get(name)
    if not tree or texts is None:
        text = json.dumps(tree, ensure_ascii=False) if tree else line.decode("utf-8", "replace")
        return b"" if matcher.matches(text) else line
    blanked = _blank_fields(tree, texts, matcher.matches)
    if blanked == tree:
        return line
    new = json.dumps(blanked, separators=(",", ":"), ensure_ascii=line.isascii()).encode("utf-8", "replace")
    return new if len(new) <= len(line) else b""


def _blank_fields(tree: Any, names: frozenset[str], matches: Matches) -> Any:
    """Return a tree without texts that match in fields with some names."""
    if isinstance(tree, list):
        return [_blank_fields(item, names, matches) for item in tree]
    if not isinstance(tree, dict):
        return tree
    return {
        name: blank_tree(value, matches) if name in names else _blank_fields(value, names, matches)
        for name, value in tree.items()
    }


# files that came with messages


def find_mentioned(config: Config) -> frozenset[bytes]:
    """Return the hashes of files that transcripts mention, and messages in the inbox that still have their text."""
    agent = open_agent(config)
    raw_lines = (line.raw for transcript in all_transcripts(config, agent) for line in transcript.iter_lines())
    lines = [line for line in raw_lines if b'"attachment"' in line]
    # A line that cannot be read may be needed, once it is repaired.
    received = (line.data for line in agent.logs.read(INBOX) if b'"attachments"' in line.data)
    lines += (line for line in received if read_object(line).get("text", True))
    return frozenset(digest for line in lines for digest in _DIGEST.findall(line))
