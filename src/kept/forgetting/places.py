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
from dataclasses import dataclass, field, replace
from typing import Any

from kept.base.limits import as_dict, as_list, strict_json
from kept.base.records import Hit, cite
from kept.base.values import frozen
from kept.base.visibility import PRIVATE_FOLDER
from kept.config import Config
from kept.errors import DocumentNotFound, KeptError, PathRefused, SessionNotFound
from kept.forgetting.needles import Matcher, Needles, words_of
from kept.forgetting.old_versions import find_in_history
from kept.forgetting.passages import find_in_note, name_words
from kept.forgetting.plan import Place, digest_of
from kept.notes.scan import scan_workspace
from kept.notes.workspace import Workspace, is_persons_own
from kept.search.memory_view import MemoryView
from kept.sessions.entries import Entry, Message, SessionStart, StateEntry
from kept.sessions.forgotten_text import Matches, blank_line, blank_tree
from kept.sessions.spoken import find_utterance
from kept.sessions.store import SessionStore
from kept.sessions.transcript import Position, Transcript, TranscriptLine, parse_line
from kept.sessions.transcript_paths import CITED_FOLDER, is_transcript_citation
from kept.storage.contract import Storage, is_log
from kept.storage.open import INBOX, open_agent
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

Wants = Callable[[TranscriptLine], bool]
"""Returns whether a line is to go as a whole, whatever its words."""


def no_line(line: TranscriptLine) -> bool:
    return False


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

    @property
    def notes(self) -> Storage:
        return self.workspace.storage

    @property
    def agent(self) -> Storage:
        return self.sessions.transcripts.storage

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
    scope: ForgetScope, matcher: Matcher, wants: Wants = no_line, *, is_person: bool = False
) -> Findings:
    """Return the places of something in all documents and logs."""
    findings = Findings()
    _find_in_notes(scope, matcher, findings, is_person=is_person)
    for transcript in all_transcripts(scope.config, scope.agent):
        if scope.view.sees(transcript.citation):
            find_in_transcript(transcript, findings, matcher, wants)
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
            with suppress(KeptError):  # the search through all bytes reports what it has
                yield read_note(scope, file.absolute)


def read_note(scope: ForgetScope, absolute: str) -> NoteFile:
    path = scope.workspace.cite(absolute)
    text = scope.workspace.read(path, max_bytes=LARGEST_NOTE).text
    is_writable = not (scope.by_tool and is_persons_own(path))
    try:
        scope.workspace.require_own(absolute, path)
    except PathRefused:
        is_writable = False
    return NoteFile(path, text, is_writable)


def _find_in_notes(scope: ForgetScope, matcher: Matcher, findings: Findings, *, is_person: bool) -> None:
    for note in iter_notes(scope):
        folder = os.path.dirname(note.path)
        reason = f"{folder}: the name of this folder"
        if matcher.has_words(words_of(folder)) and reason not in findings.unreachable:
            findings.unreachable.append(reason)
        places = find_in_note(note.path, note.text, matcher, is_person=is_person)
        if note.is_writable:
            findings.places += places
        else:
            findings.unreachable += (place.citation for place in places)


# conversations


def all_transcripts(config: Config, agent: Storage) -> list[Transcript]:
    """Return the transcripts, also those of deleted sessions, and their torn ends."""
    prefix = config.paths.transcripts
    names = (info.name.removeprefix(prefix) for info in agent.logs.list(prefix))
    return [Transcript(agent, prefix + name) for name in names if not name.startswith(".") and "/" not in name]


def cited_transcript(config: Config, agent: Storage, citation: str) -> Transcript:
    """Return a transcript that a place cites, also that of a deleted session."""
    return Transcript(agent, config.paths.transcripts + citation.removeprefix(CITED_FOLDER))


def find_transcript(scope: ForgetScope, citation: str) -> Transcript:
    """Return a cited transcript. Raise SessionNotFound if there is none, or none that is visible."""
    transcript = cited_transcript(scope.config, scope.agent, citation)
    transcript.find()
    if not scope.view.sees(citation):
        raise SessionNotFound(f"{citation}: there is no such transcript.")
    return transcript


def find_in_transcript(transcript: Transcript, findings: Findings, matcher: Matcher, wants: Wants = no_line) -> None:
    """Find the lines that match or are wanted and say something, and the proposals of /forget that match."""
    for raw in transcript.iter_raw():
        if raw.number > 1 and wants is no_line and not matcher.may_match_raw(raw.raw):
            continue
        line = parse_line(raw)
        body = line.content.body if isinstance(line.content, Entry) else None
        is_proposal = isinstance(body, StateEntry) and body.name == FORGET_STATE
        is_whole = not is_proposal and wants(line)
        if blank_line(raw.raw, matcher.matches, whole=is_whole) == raw.raw:
            continue
        utterance, cited = find_utterance(line), transcript.citation
        text = utterance.shown if utterance is not None else "(details of the conversation or of a tool call)"
        place = Place("conversation", cited, cite(cited, raw.number, raw.number), text, digest_of(raw.raw), raw.number)
        place = replace(place, whole=is_whole)
        (findings.asked if is_proposal else findings.places).append(place)


def find_lines(scope: ForgetScope, citation: str, wants: Wants) -> list[Place]:
    """Return the wanted lines of a transcript that say something."""
    findings = Findings()
    find_in_transcript(find_transcript(scope, citation), findings, Matcher(Needles()), wants)
    return findings.places


def spoken_texts(scope: ForgetScope, citation: str) -> list[str]:
    """Return what people and the agent say in a transcript, without tool results, which quote the notes."""
    entries = (line.content for line in find_transcript(scope, citation).iter_lines())
    bodies = (entry.body for entry in entries if isinstance(entry, Entry))
    return [body.text for body in bodies if isinstance(body, Message) and body.role != "tool"]


def find_keys(config: Config, agent: Storage, places: Iterable[Place]) -> frozenset[str]:
    """Return the keys of the conversations in which places are. Their messages in the inbox go with these."""
    paths = {place.path for place in places if is_transcript_citation(place.path)}
    starts = (next(cited_transcript(config, agent, path).iter_known(Position()), None) for path in paths)
    entries = (parse_line(start).content for start in starts if start)
    bodies = (entry.body for entry in entries if isinstance(entry, Entry))
    return frozenset(body.key for body in bodies if isinstance(body, SessionStart))


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
        findings.places += _find_in_files(scope.agent, set_aside_names(scope.agent), matcher)
        findings.places += _find_in_files(scope.notes, displaced_names(scope.notes), matcher)


def _find_in_proposals(scope: ForgetScope, matcher: Matcher) -> Iterator[Place]:
    """Yield the proposals of agents, and changes that wait for review, for notes that may be changed."""
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
                yield Place("proposal", info.path, info.path, text, digest_of(data))


def read_tree(data: bytes) -> dict[str, Any]:
    """Return the object of a JSON text, empty if it is none."""
    try:
        return as_dict(strict_json.decode(data.decode("utf-8")))
    except (ValueError, RecursionError):
        return {}


def _find_in_schedules(scope: ForgetScope, matcher: Matcher) -> Iterator[Place]:
    for item in schedules_in(read_document(scope.agent, SCHEDULES)):
        name, when, text = (str(item.get(field, "")) for field in ("id", "when", "text"))
        if name and matcher.matches(text) and scope.sees_key(str(item.get("to", ""))):
            yield Place("schedule", name, f"schedule {name} ({when})", text, digest_of(text))


def read_document(storage: Storage, path: str) -> bytes:
    """Return the bytes of a document, none if there is no such document."""
    try:
        return storage.documents.read(path).data
    except DocumentNotFound:
        return b""


def schedules_in(data: bytes) -> list[dict[str, Any]]:
    return [item for item in as_list(read_tree(data).get("schedules")) if isinstance(item, dict)]


def _find_in_inbox(agent: Storage, matcher: Matcher) -> tuple[list[Place], list[Place]]:
    """Return a place for each conversation with a message that matches, and for each that only has it in a command."""
    find_key = inbox_keys(agent)
    said: dict[str, Place] = {}
    asked: dict[str, Place] = {}
    for line in agent.logs.read(INBOX):
        if scrub_record(line.data, matcher, INBOX) != line.data:
            tree = read_tree(line.data)
            key = find_key(tree)
            is_command = str(tree.get("text", _COMMAND)).startswith(_COMMAND)
            found = asked if is_command else said
            found[key] = Place("inbox", key, f"{INBOX} ({key})", "messages that the gateway received", digest_of(key))
    return [*said.values()], [place for key, place in asked.items() if key not in said]


def inbox_keys(agent: Storage) -> Callable[[dict[str, Any]], str]:
    """Return a function that returns the key of a record's conversation, empty for a record that cannot be read."""
    trees = (read_tree(line.data) for line in agent.logs.read(INBOX))
    keys = {tree.get("id"): str(tree["key"]) for tree in trees if tree.get("type") == "run" and "key" in tree}
    return lambda tree: str(tree.get("key") or keys.get(tree.get("id"), ""))


def set_aside_names(agent: Storage) -> list[str]:
    """Return the receipts, and the documents and logs with records that were set aside, outside of conversations."""
    names = [*(info.name for info in agent.logs.list()), *(info.path for info in agent.documents.list())]
    aside = (name for name in names if "/" not in name and name.endswith((DAMAGED_ENDING, ".torn")))
    return [RECEIPTS, *sorted(aside), *displaced_names(agent)]


def displaced_names(storage: Storage) -> list[str]:
    """Return the documents with bytes that a crash tore, or that lost against another program's."""
    return [info.path for info in storage.documents.list(DISPLACED)]


def _find_in_files(storage: Storage, names: Iterable[str], matcher: Matcher) -> Iterator[Place]:
    for name in names:
        lines = read_lines(storage, name)
        if any(scrub_record(line, matcher, name) != line for line in lines):
            yield Place("record", name, name, "some of its lines", digest_of(b"\n".join(lines)))


def read_lines(storage: Storage, name: str) -> list[bytes]:
    """Return the lines of a log, or of a document."""
    if is_log(name):
        return [line.data for line in storage.logs.read(name)]
    return read_document(storage, name).splitlines()


def scrub_record(line: bytes, matcher: Matcher, name: str) -> bytes:
    """Return the line of a record without the texts that match, not longer than before; nothing if it is no record."""
    if not matcher.may_match_raw(line):
        return line
    tree = read_tree(line)
    if not tree:
        return b"" if matcher.matches(line.decode("utf-8", "replace")) else line
    blanked = _blank_fields(tree, _TEXTS.get(name), matcher.matches)
    if blanked == tree:
        return line
    new = json.dumps(blanked, separators=(",", ":"), ensure_ascii=line.isascii()).encode("utf-8", "replace")
    return new if len(new) <= len(line) else b""


def _blank_fields(tree: Any, names: frozenset[str] | None, matches: Matches) -> Any:
    """Return a tree without texts that match in fields with some names, or in all."""
    if isinstance(tree, list):
        return [_blank_fields(item, names, matches) for item in tree]
    if names is None or not isinstance(tree, dict):
        return tree if names else blank_tree(tree, matches)
    return {
        name: blank_tree(value, matches) if name in names else _blank_fields(value, names, matches)
        for name, value in tree.items()
    }


# files that came with messages


def find_mentioned(config: Config) -> frozenset[bytes]:
    """Return the hashes of files that transcripts mention, and messages in the inbox that still have their text."""
    agent = open_agent(config)
    said = (line.raw for transcript in all_transcripts(config, agent) for line in transcript.iter_raw())
    lines = [line for line in said if b'"attachment"' in line]
    # A line that cannot be read may be needed, once it is repaired.
    received = (line.data for line in agent.logs.read(INBOX) if b'"attachments"' in line.data)
    lines += (line for line in received if read_tree(line).get("text", True))
    return frozenset(digest for line in lines for digest in _DIGEST.findall(line))
