"""Finds the places of something: one reader of texts for each kind of document and log. Reads only.

Records of Kept's own are data: only their fields with texts of people are looked at. Tokens, settings and usage are
never changed: the receipt names those that still have it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kept.base.limits import as_dict, strict_json
from kept.base.records import Hit, cite
from kept.base.values import frozen
from kept.base.visibility import PRIVATE_FOLDER
from kept.config import Config
from kept.errors import DocumentNotFound, KeptError, NoteNotFound, PathRefused, SessionNotFound
from kept.forgetting.needles import Matcher, words_of
from kept.forgetting.old_versions import find_in_history
from kept.forgetting.passages import find_in_note, name_words
from kept.forgetting.plan import Kind, Place, digest_of
from kept.notes.note_text import decode
from kept.notes.scan import scan_workspace
from kept.notes.workspace import Workspace, is_persons_own
from kept.search.memory_view import MemoryView
from kept.sessions.entries import AnyEntry, Entry, Message, SessionStart, StateEntry
from kept.sessions.forgotten_text import blank_line, blank_tree
from kept.sessions.spoken import find_utterance
from kept.sessions.store import SessionStore
from kept.sessions.transcript import RawLine, TranscriptLine, parse_line
from kept.sessions.transcript_paths import CITED_FOLDER, cite_transcript, is_transcript_citation
from kept.storage.contract import Storage, is_log
from kept.storage.open import INBOX, open_agent, open_extra
from kept.storage.record_store import DAMAGED_ENDING

LARGEST_NOTE = 1 << 28
FORGET_STATE = "forget"
"""State of a session with a proposal of /forget, which has the query. It goes with the places that it names."""
SCHEDULES, RECEIPTS = "schedules.json", "forget-receipts.jsonl"
PROPOSALS, DISPLACED = ".kept/proposals/", ".kept/displaced/"
_TEXTS = {
    INBOX: frozenset({"text", "sender", "metadata", "parts", "details", "error", "reason"}),
    RECEIPTS: frozenset({"citation", "path", "unreachable", "changed", "kept"}),
}
"""Fields of records that may have text of people. The others identify a record."""
_PROPOSAL_TEXTS = ("text", "why", "replaces")
_COMMAND = "/"
_DIGEST = re.compile(rb'"sha256":"([0-9a-f]{64})"')

Wants = Callable[[AnyEntry], bool]
"""Returns whether an entry is to go as a whole, whatever its words."""


@frozen
class ForgetScope:
    """The memory that is looked through."""

    config: Config
    workspace: Workspace
    notes: Storage
    agent: Storage
    sessions: SessionStore
    view: MemoryView
    """Notes and conversations that are visible. Those of another project, or of somebody else, are left out."""
    by_tool: bool = False
    search: Callable[[str], Iterable[Hit]] | None = None
    """Finds passages for words that are nowhere."""

    def sees_key(self, key: str) -> bool:
        viewer = self.view.viewer
        if viewer is None:
            return not self.view.is_bound
        return viewer.sees_key(key) if key else viewer.is_owner

    def may_change(self, path: str) -> bool:
        """Return whether a note, or what is stored of it elsewhere, is visible and not left to the person."""
        return self.view.sees(path) and not (self.by_tool and is_persons_own(path))


@dataclass
class Findings:
    places: list[Place] = field(default_factory=list)
    asked: list[Place] = field(default_factory=list)
    """Where Kept noted the request to forget it: commands in the inbox, and proposals of /forget."""
    unreachable: list[str] = field(default_factory=list)
    """Places that are not changed: extra paths, files of the person, and names of folders."""


def find_everywhere(
    scope: ForgetScope, matcher: Matcher, wants: Wants | None = None, *, is_person: bool = False
) -> Findings:
    """Return the places of something in all documents and logs."""
    findings = Findings()
    _find_in_notes(scope, matcher, findings, is_person=is_person)
    for log in transcript_logs(scope.config, scope.agent):
        if scope.view.sees(cite_transcript(log)):
            _find_in_transcript(scope, log, matcher, wants, findings)
    find_in_records(scope, matcher, findings)
    return findings


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
            try:
                note = read_note(scope, file.absolute)
            except KeptError:
                continue  # the search through all bytes reports what it has
            yield note


def read_note(scope: ForgetScope, absolute: str) -> NoteFile:
    path = scope.workspace.cite(absolute)
    storage, name = scope.notes, path
    if os.path.isabs(path):
        storage, name = open_extra(path), os.path.basename(path)
    try:
        text = decode(storage.documents.read(name, max_bytes=LARGEST_NOTE).data)[0]
    except DocumentNotFound:
        raise NoteNotFound(f"{path}: there is no such note.") from None
    try:
        scope.workspace.require_own(absolute, path)
    except PathRefused:
        return NoteFile(path, text, is_writable=False)
    return NoteFile(path, text, is_writable=not (scope.by_tool and is_persons_own(path)))


def _find_in_notes(scope: ForgetScope, matcher: Matcher, findings: Findings, *, is_person: bool) -> None:
    for note in iter_notes(scope):
        places = find_in_note(note.path, note.text, matcher, is_person=is_person)
        folder = os.path.dirname(note.path)
        reason = f"{folder}: the name of this folder"
        if matcher.has_words(words_of(folder)) and reason not in findings.unreachable:
            findings.unreachable.append(reason)
        if note.is_writable:
            findings.places += places
        else:
            findings.unreachable += (place.citation for place in places)


# conversations


def transcript_logs(config: Config, agent: Storage) -> list[str]:
    """Return the names of the logs of transcripts, also of deleted ones, and of torn ends."""
    prefix = sessions_prefix(config)
    names = (info.name for info in agent.logs.list(prefix))
    return [name for name in names if not name.removeprefix(prefix).startswith(".") and "/" not in name[len(prefix) :]]


def sessions_prefix(config: Config) -> str:
    """Return the beginning of the names of transcripts in the storage of the agent."""
    return config.paths.transcripts


def find_log(scope: ForgetScope, citation: str) -> str:
    """Return the log of a cited transcript. Raise SessionNotFound if there is none, or none that is visible."""
    log = sessions_prefix(scope.config) + citation.removeprefix(CITED_FOLDER)
    if not scope.view.sees(citation) or scope.agent.logs.find(log) is None:
        raise SessionNotFound(f"{citation}: there is no such transcript.")
    return log


def iter_raw(agent: Storage, log: str) -> Iterator[RawLine]:
    for number, line in enumerate(agent.logs.read(log), 1):
        yield RawLine(number, line.start.offset, line.end.offset, line.data)


def _find_in_transcript(
    scope: ForgetScope, log: str, matcher: Matcher, wants: Wants | None, findings: Findings
) -> None:
    """Find the lines of a transcript that match or are wanted, and the proposals of /forget that match."""
    kind: Kind = "conversation"
    for raw in iter_raw(scope.agent, log):
        if raw.number > 1 and wants is None and not matcher.may_match_raw(raw.raw):
            continue
        line = parse_line(raw)
        kind = "import" if _is_import(line) else kind
        body = line.content.body if isinstance(line.content, Entry) else None
        is_proposal = isinstance(body, StateEntry) and body.name == FORGET_STATE
        is_whole = not is_proposal and wants is not None and isinstance(line.content, Entry) and wants(line.content)
        if blank_line(raw.raw, matcher.matches, whole=is_whole) != raw.raw:
            places = findings.asked if is_proposal else findings.places
            places.append(_line_place(kind, log, raw, line, whole=is_whole))


def find_lines(scope: ForgetScope, citation: str, wants: Callable[[TranscriptLine], bool]) -> list[Place]:
    """Return the wanted lines of a transcript that say something."""
    places: list[Place] = []
    kind: Kind = "conversation"
    log = find_log(scope, citation)
    for raw in iter_raw(scope.agent, log):
        line = parse_line(raw)
        kind = "import" if _is_import(line) else kind
        if wants(line) and blank_line(raw.raw, lambda text: False, whole=True) != raw.raw:
            places.append(_line_place(kind, log, raw, line, whole=True))
    return places


def _is_import(line: TranscriptLine) -> bool:
    body = line.content.body if isinstance(line.content, Entry) else None
    return isinstance(body, SessionStart) and "imported" in body.metadata


def _line_place(kind: Kind, log: str, raw: RawLine, line: TranscriptLine, *, whole: bool) -> Place:
    utterance, cited = find_utterance(line), cite_transcript(log)
    text = utterance.shown if utterance is not None else "(details of the conversation or of a tool call)"
    return Place(kind, cited, cite(cited, raw.number, raw.number), text, digest_of(raw.raw), raw.number, whole=whole)


def spoken_texts(scope: ForgetScope, citation: str) -> list[str]:
    """Return what people and the agent say in a transcript, without tool results, which quote the notes."""
    entries = (parse_line(raw).content for raw in iter_raw(scope.agent, find_log(scope, citation)))
    bodies = (entry.body for entry in entries if isinstance(entry, Entry))
    return [body.text for body in bodies if isinstance(body, Message) and body.role != "tool"]


def find_keys(config: Config, agent: Storage, places: Iterable[Place]) -> frozenset[str]:
    """Return the keys of the conversations in which places are. Their messages in the inbox go with these."""
    keys = set()
    for path in {place.path for place in places if is_transcript_citation(place.path)}:
        log = sessions_prefix(config) + path.removeprefix(CITED_FOLDER)
        first = next(iter_raw(agent, log), None)
        content = parse_line(first).content if first else None
        if isinstance(content, Entry) and isinstance(content.body, SessionStart):
            keys.add(content.body.key)
    return frozenset(keys)


# everything else


def find_in_records(scope: ForgetScope, matcher: Matcher, findings: Findings) -> None:
    """Find the places in other files than notes and transcripts, except for what goes with those that were found."""
    history = find_in_history(scope.notes, matcher, findings.places)
    keys = find_keys(scope.config, scope.agent, findings.places)
    findings.places += [place for place in history if scope.may_change(place.path)]
    findings.places += _find_in_proposals(scope, matcher)
    findings.places += _find_in_schedules(scope, matcher)
    messages, commands = _find_in_inbox(scope.agent, matcher)
    findings.places += [place for place in messages if place.path not in keys and scope.sees_key(place.path)]
    findings.asked += [place for place in commands if scope.sees_key(place.path)]
    if not scope.view.is_bound:  # nothing tells whose a text in such a record is
        findings.places += _find_in_set_aside(scope.agent, matcher)
        findings.places += _find_in_displaced(scope.agent, matcher)
        findings.places += _find_in_displaced(scope.notes, matcher)


def _find_in_proposals(scope: ForgetScope, matcher: Matcher) -> list[Place]:
    """Return the proposals of agents, and changes that wait for review, for notes that may be changed."""
    places: list[Place] = []
    folder = f"{scope.view.folder}/" if scope.view.is_bound else ""
    for info in scope.notes.documents.list(PROPOSALS):
        with suppress(KeptError):
            data = scope.notes.documents.read(info.path).data
            fields = read_tree(data) or {"text": data.decode("utf-8", "replace")}
            fields |= as_dict(fields.get("addition"))
            private = fields.get("private")
            notes = [str(fields.get("path", "")), *([f"{PRIVATE_FOLDER}/{private}/x.md"] if private else [])]
            text = "\n\n".join(str(fields[name]) for name in _PROPOSAL_TEXTS if fields.get(name))
            is_match = matcher.matches(text) or matcher.has_words(name_words(notes[0]))
            if is_match and all(map(scope.may_change, notes)) and any(note.startswith(folder) for note in notes):
                places.append(Place("proposal", info.path, info.path, text, digest_of(data)))
    return places


def read_tree(data: bytes) -> dict[str, Any]:
    """Return the object of a JSON text, empty if it is none."""
    try:
        return as_dict(strict_json.decode(data.decode("utf-8")))
    except (ValueError, RecursionError):
        return {}


def _find_in_schedules(scope: ForgetScope, matcher: Matcher) -> list[Place]:
    places = []
    for item in schedules_in(read_document(scope.agent, SCHEDULES)):
        name, when, text = (str(item.get(field, "")) for field in ("id", "when", "text"))
        if name and matcher.matches(text) and scope.sees_key(str(item.get("to", ""))):
            places.append(Place("schedule", name, f"schedule {name} ({when})", text, digest_of(text)))
    return places


def read_document(storage: Storage, path: str) -> bytes:
    """Return the bytes of a document, none if there is no such document."""
    try:
        return storage.documents.read(path).data
    except DocumentNotFound:
        return b""


def schedules_in(data: bytes) -> list[dict[str, Any]]:
    listed = read_tree(data).get("schedules")
    return [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []


def _find_in_inbox(agent: Storage, matcher: Matcher) -> tuple[list[Place], list[Place]]:
    """Return a place for each conversation with a message that matches, and for each that only has it in a command."""
    find_key = inbox_keys(agent)
    is_said: dict[str, bool] = {}
    for line in agent.logs.read(INBOX):
        if scrub_record(line.data, matcher, INBOX) != line.data:
            tree = read_tree(line.data)
            is_command = str(tree.get("text", _COMMAND)).startswith(_COMMAND)
            is_said[find_key(tree)] = is_said.get(find_key(tree), False) or not is_command
    places = [
        Place("inbox", key, f"{INBOX} ({key})", "messages that the gateway received", digest_of(key)) for key in is_said
    ]
    return [place for place in places if is_said[place.path]], [place for place in places if not is_said[place.path]]


def inbox_keys(agent: Storage) -> Callable[[dict[str, Any]], str]:
    """Return a function that returns the key of a record's conversation, empty for a record that cannot be read."""
    trees = (read_tree(line.data) for line in agent.logs.read(INBOX))
    keys = {tree.get("id"): str(tree["key"]) for tree in trees if tree.get("type") == "run" and "key" in tree}
    return lambda tree: str(tree.get("key") or keys.get(tree.get("id"), ""))


def _find_in_set_aside(agent: Storage, matcher: Matcher) -> list[Place]:
    """Return a place for the receipts, and for each file of records that were set aside, if it has something."""
    places: list[Place] = []
    for name in set_aside_names(agent):
        lines = read_lines(agent, name)
        if any(scrub_record(line, matcher, name) != line for line in lines):
            places.append(Place("record", name, name, "some of its lines", digest_of(b"\n".join(lines))))
    return places


def _find_in_displaced(storage: Storage, matcher: Matcher) -> list[Place]:
    """Return bytes that a crash tore, or that lost against another program's. They go as a whole."""
    places: list[Place] = []
    for info in storage.documents.list(DISPLACED):
        data = read_document(storage, info.path)
        if any(scrub_record(line, matcher, info.path) != line for line in data.splitlines()):
            places.append(Place("record", info.path, info.path, "bytes that were put aside", digest_of(data)))
    return places


def set_aside_names(agent: Storage) -> list[str]:
    """Return the receipts, and the documents and logs with records that were set aside, outside of conversations."""
    names = [*(info.name for info in agent.logs.list()), *(info.path for info in agent.documents.list())]
    aside = (name for name in names if "/" not in name and name.endswith((DAMAGED_ENDING, ".torn")))
    return [RECEIPTS, *sorted(aside)]


def read_lines(storage: Storage, name: str) -> list[bytes]:
    """Return the lines of a log, or of a document."""
    if is_log(name):
        return [line.data for line in storage.logs.read(name)]
    return read_document(storage, name).splitlines()


def scrub_record(line: bytes, matcher: Matcher, name: str) -> bytes:
    """Return the line of a record without the texts that match, not longer than before; nothing if it is no JSON."""
    if not matcher.may_match_raw(line):
        return line
    try:
        tree = strict_json.decode(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return b"" if matcher.matches(line.decode("utf-8", "replace")) else line
    is_text = _TEXTS.get(name)
    blanked = blank_tree(tree, matcher.matches) if is_text is None else _blank_fields(tree, is_text, matcher.matches)
    if blanked == tree:
        return line
    forms = (json.dumps(blanked, separators=(",", ":"), ensure_ascii=is_ascii) for is_ascii in (True, False))
    encoded = (form.encode("utf-8", "replace") for form in forms)
    return next((form for form in encoded if len(form) <= len(line)), b"")


def _blank_fields(tree: Any, names: frozenset[str], matches: Callable[[str], bool]) -> Any:
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
    digests: set[bytes] = set()
    for log in transcript_logs(config, agent):
        for line in agent.logs.read(log):
            if b'"attachment"' in line.data:
                digests.update(_DIGEST.findall(line.data))
    for line in agent.logs.read(INBOX):
        # A line that cannot be read may be needed, once it is repaired.
        if b'"attachments"' in line.data and read_tree(line.data).get("text", True):
            digests.update(_DIGEST.findall(line.data))
    return frozenset(digests)
