"""Files of Kept's own beside the notes and transcripts: the inbox, records that were set aside, proposals, schedules,
files that came with messages, and temporary files of killed processes.

They are data: only the fields that have texts of people are looked at, and only in places that were chosen. There a
text that matches becomes empty, a line that is no JSON is dropped, and a proposal or a schedule goes as a whole.
Tokens, settings and books of usage are never changed: the receipt names those that still have it.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar

from kept.base.damaged_records import DAMAGED_ENDING, TORN_ENDING
from kept.base.durable import is_abandoned, is_temporary, read_if_possible, replace_erasing
from kept.base.limits import as_dict, strict_json
from kept.base.values import frozen
from kept.base.visibility import PRIVATE_FOLDER
from kept.config import Config
from kept.errors import LockBusy
from kept.forgetting.needles import Matcher
from kept.forgetting.note_places import name_words
from kept.forgetting.plan import ForgetOrder, Place, ScrubResult, digest_of, erase_files
from kept.forgetting.receipt import iter_all_files
from kept.forgetting.transcript_places import iter_transcript_files
from kept.notes.note_writer import LOCK_WAIT_S
from kept.notes.review.review_item import ReviewFolder
from kept.notes.workspace import Workspace, writing_to
from kept.sessions.attachments import AttachmentFolder
from kept.sessions.forgotten_text import blank_tree
from kept.sessions.schedules.schedule_book import open_schedules
from kept.storage.open import INBOX_LEASE, open_agent

_INBOX = "inbox.jsonl"
_TEXTS = {
    _INBOX: frozenset({"text", "sender", "metadata", "parts", "details", "error", "reason"}),
    "forget-receipts.jsonl": frozenset({"citation", "path", "unreachable", "changed", "kept"}),
}
"""Fields of records that may have text of people. The others identify a record."""
_PROPOSAL_TEXTS = ("text", "why", "replaces")
_COMMAND = "/"
_DIGEST = re.compile(rb'"sha256":"([0-9a-f]{64})"')
_GRACE_S = 10.0
"""Age below which a file may belong to a message that is about to be accepted."""


# records


def _record_files(config: Config) -> list[str]:
    """Return the receipts, and the files in the agent's folder with records that were set aside."""
    folder = config.paths.folder
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    paths = [os.path.join(folder, name) for name in names if name.endswith((DAMAGED_ENDING, TORN_ENDING))]
    return [
        config.paths.forget_receipts,
        *(path for path in paths if os.path.isfile(path) and not os.path.islink(path)),
    ]


def _scrubbed(data: bytes, matcher: Matcher, name: str, is_chosen: Callable[[Any], bool] = lambda tree: True) -> bytes:
    """Return a file without what matches in its chosen records."""
    lines = (_scrubbed_line(line, matcher, name, is_chosen) for line in data.splitlines(keepends=True))
    return b"".join(line for line in lines if line is not None)


def _scrubbed_line(line: bytes, matcher: Matcher, name: str, is_chosen: Callable[[Any], bool]) -> bytes | None:
    if not matcher.may_match_raw(line):
        return line
    try:
        tree = strict_json.decode(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None if matcher.matches(line.decode("utf-8", "replace")) and is_chosen(None) else line
    blanked = (
        _blank_fields(tree, _TEXTS[name], matcher.matches) if name in _TEXTS else blank_tree(tree, matcher.matches)
    )
    if blanked == tree or not is_chosen(tree):
        return line
    return json.dumps(blanked, separators=(",", ":")).encode() + b"\n"


def _blank_fields(tree: Any, names: frozenset[str], matches: Callable[[str], bool]) -> Any:
    if isinstance(tree, list):
        return [_blank_fields(item, names, matches) for item in tree]
    if not isinstance(tree, dict):
        return tree
    return {
        name: blank_tree(value, matches) if name in names else _blank_fields(value, names, matches)
        for name, value in tree.items()
    }


def find_in_records(config: Config, matcher: Matcher) -> list[Place]:
    """Return a place for each file of records that has something to scrub."""
    places: list[Place] = []
    for path in _record_files(config):
        data, name = read_if_possible(path), os.path.basename(path)
        if _scrubbed(data, matcher, name) != data:
            places.append(Place("record", name, name, "some of its lines", digest_of(data)))
    return places


def _replace_file(path: str, scrubbed: bytes) -> ScrubResult:
    if scrubbed == read_if_possible(path):
        return ScrubResult()
    replace_erasing(path, scrubbed)
    return ScrubResult(removed=1)


@frozen
class RecordStore:
    """Scrubs receipts, which only a forget writes, and records that were set aside."""

    name: ClassVar[str] = "records"
    config: Config

    def scrub(self, order: ForgetOrder) -> ScrubResult:
        matcher, result = Matcher(order.needles), ScrubResult()
        for path in _record_files(self.config):
            if (name := os.path.basename(path)) in order.chosen("record"):
                result += _replace_file(path, _scrubbed(read_if_possible(path), matcher, name))
        return result


# the inbox: its messages are chosen by their conversation


def find_in_inbox(config: Config, matcher: Matcher) -> tuple[list[Place], list[Place]]:
    """Return a place for each conversation with a message that matches, and for each that only has it in a command."""
    data = read_if_possible(config.paths.inbox)
    find_key = _key_finder(data)
    by_key: dict[str, bool] = {}

    def note(tree: Any) -> bool:
        key = find_key(tree)
        is_said = isinstance(tree, dict) and not str(tree.get("text", _COMMAND)).startswith(_COMMAND)
        by_key[key] = by_key.get(key, False) or is_said
        return True

    _scrubbed(data, matcher, _INBOX, note)
    places = [
        Place("inbox", key, f"{_INBOX} ({key})", "messages that the gateway received", digest_of(key)) for key in by_key
    ]
    return [place for place in places if by_key[place.path]], [place for place in places if not by_key[place.path]]


def _trees(data: bytes) -> Iterator[dict[str, Any]]:
    for line in data.splitlines():
        with suppress(ValueError, RecursionError):
            if isinstance(tree := strict_json.decode(line.decode("utf-8")), dict):
                yield tree


def _key_finder(data: bytes) -> Callable[[Any], str]:
    """Return a function that returns the key of a record's conversation, empty for a record that cannot be read."""
    keys = {tree.get("run"): str(tree["key"]) for tree in _trees(data) if "run" in tree and "key" in tree}
    return lambda tree: str(tree.get("key") or keys.get(tree.get("run"), "")) if isinstance(tree, dict) else ""


@frozen
class InboxStore:
    """Scrubs the inbox, which only the process with the gateway's lock may write."""

    name: ClassVar[str] = "inbox"
    config: Config

    def scrub(self, order: ForgetOrder) -> ScrubResult:
        matcher, keys, path = order.inbox_matcher, order.chosen("inbox"), self.config.paths.inbox
        if not keys or not os.path.exists(path):
            return ScrubResult()
        try:
            with open_agent(self.config).lease(INBOX_LEASE, wait_s=0.0):
                find_key = _key_finder(data := read_if_possible(path))
                return _replace_file(path, _scrubbed(data, matcher, _INBOX, lambda tree: find_key(tree) in keys))
        except LockBusy:
            reason = "the inbox of the gateway that is running; forget it again when the gateway has stopped"
            return ScrubResult(unreachable=(reason,), is_complete=False)


# proposals of agents and changes that wait for review, and schedules


def find_in_proposals(
    workspace: Workspace, matcher: Matcher, may_change: Callable[[str], bool], folder: str = ""
) -> list[Place]:
    """Return a place for each item that has something to forget, for a note that may be changed, below a folder."""
    places: list[Place] = []
    for path in ReviewFolder(workspace).paths():
        text = read_if_possible(path).decode("utf-8", "replace")
        fields = next(_trees(text.replace("\n", " ").encode()), {"text": text})
        fields |= as_dict(fields.get("addition"))
        private = fields.get("private")
        notes = [str(fields.get("path", "")), *([f"{PRIVATE_FOLDER}/{private}/x.md"] if private else [])]
        texts = "\n\n".join(str(fields[name]) for name in _PROPOSAL_TEXTS if fields.get(name))
        is_match = matcher.matches(texts) or matcher.has_words(name_words(notes[0]))
        if is_match and all(map(may_change, notes)) and any(note.startswith(folder) for note in notes):
            shown = os.path.relpath(path, workspace.root)
            places.append(Place("proposal", shown, shown, texts, digest_of(text)))
    return places


@frozen
class ProposalStore:
    """Removes items: without its text, a proposal is worth nothing."""

    name: ClassVar[str] = "proposals"
    workspace: Workspace

    def scrub(self, order: ForgetOrder) -> ScrubResult:
        if not (chosen := order.chosen("proposal")):
            return ScrubResult()
        with ReviewFolder(self.workspace).locked():
            paths = [os.path.join(self.workspace.root, path) for path in chosen]
            return erase_files(path for path in paths if os.path.exists(path))


def find_in_schedules(config: Config, matcher: Matcher, sees_key: Callable[[str], bool]) -> list[Place]:
    """Return a place for each schedule whose text matches."""
    return [
        Place("schedule", item.id, f"schedule {item.id} ({item.when})", item.text, digest_of(item.text))
        for item in open_schedules(config).read().schedules
        if matcher.matches(item.text) and sees_key(item.to)
    ]


@frozen
class ScheduleStore:
    """Removes schedules: one without its text would ask nothing, again and again."""

    name: ClassVar[str] = "schedules"
    config: Config

    def scrub(self, order: ForgetOrder) -> ScrubResult:
        chosen = order.chosen("schedule")
        file = open_schedules(self.config)
        count = sum(item.id in chosen for item in file.read().schedules)
        if count:
            file.change(lambda book: replace(book, schedules=tuple(i for i in book.schedules if i.id not in chosen)))
        return ScrubResult(removed=count)


# files that came with messages


@frozen
class AttachmentStore:
    """Erases files of messages that were forgotten or deleted. It comes after the conversations and the inbox."""

    name: ClassVar[str] = "attachments"
    config: Config

    def scrub(self, order: ForgetOrder) -> ScrubResult:
        folder = AttachmentFolder(self.config.paths.attachments)
        mentioned = find_mentioned(self.config)
        paths = (os.path.join(folder.path, name) for name in folder.names() if name[:64].encode() not in mentioned)
        return erase_files(path for path in paths if time.time() - os.stat(path).st_mtime >= _GRACE_S)


def find_mentioned(config: Config) -> frozenset[bytes]:
    """Return the hashes of files that transcripts mention, and messages in the inbox that still have their text."""
    digests: set[bytes] = set()
    for path in iter_transcript_files(config.paths.sessions):
        with open(path, "rb") as file:
            for line in file:
                if b'"attachment"' in line:
                    digests.update(_DIGEST.findall(line))
    try:
        with open(config.paths.inbox, "rb") as file:
            for line in file:
                if b'"attachments"' in line and _has_text(line):
                    digests.update(_DIGEST.findall(line))
    except FileNotFoundError:
        pass
    return frozenset(digests)


def _has_text(line: bytes) -> bool:
    try:
        record = json.loads(line)
    except ValueError:
        return True  # it may be needed, once the line is repaired
    return not isinstance(record, dict) or bool(record.get("text"))


# temporary files that a killed process left: they may have the text of any file


def iter_leftovers(config: Config, workspace: str) -> Iterator[str]:
    """Yield temporary files that no process is writing."""
    for path in iter_all_files((config.home, workspace), frozenset((config.models_folder,))):
        if is_temporary(os.path.basename(path)) and is_abandoned(path):
            yield path


@frozen
class LeftoverStore:
    """Erases temporary files that no process will rename, whatever they contain."""

    name: ClassVar[str] = "leftovers"
    config: Config
    workspace: Workspace

    def scrub(self, order: ForgetOrder) -> ScrubResult:
        with writing_to(self.workspace, wait_s=LOCK_WAIT_S):
            return erase_files(iter_leftovers(self.config, self.workspace.root))
