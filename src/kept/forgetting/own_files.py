"""Files of Kept's own beside the notes and transcripts: the inbox, records that were set aside, proposals, files that
came with messages, and temporary files of killed processes.

In the inbox, in receipts and in records that were set aside, a text that matches becomes empty; a line that is no JSON
is dropped. Other records, such as schedules, are never changed: the receipt names those that still have it.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from typing import ClassVar

from kept.config import Config
from kept.config.agent_paths import GATEWAY_LOCK
from kept.damaged_records import DAMAGED_ENDING, TORN_ENDING
from kept.durable import is_abandoned, is_temporary, read_if_possible, replace_erasing
from kept.file_lock import claimed
from kept.forgetting.needles import Matcher
from kept.forgetting.plan import ForgetOrder, Kind, Place, ScrubResult, digest_of, erase_files
from kept.forgetting.receipt import iter_all_files
from kept.forgetting.transcript_places import iter_transcript_files
from kept.limits import strict_json
from kept.review.review_item import ReviewFolder
from kept.sessions.attachments import AttachmentFolder
from kept.sessions.blanking import blank_tree
from kept.values import frozen
from kept.workspace.notes import LOCK_WAIT_S
from kept.workspace.workspace import Workspace, writing_to

_INBOX_TEXTS = ("text", "sender", "metadata", "parts", "details", "error", "reason")
"""Fields of the inbox that may have text of a message. The others identify it."""
_INBOX = "inbox.jsonl"
_DIGEST = re.compile(rb'"sha256":"([0-9a-f]{64})"')
_GRACE_S = 10.0
"""Age below which a file may belong to a message that is about to be accepted."""


def _iter_records(config: Config) -> Iterator[str]:
    """Yield the receipts, and the files in the agent's folder with records that were set aside."""
    yield config.paths.forget_receipts
    folder = config.paths.folder
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        path = os.path.join(folder, name)
        if name.endswith((DAMAGED_ENDING, TORN_ENDING)) and os.path.isfile(path) and not os.path.islink(path):
            yield path


def _scrubbed(data: bytes, matcher: Matcher, name: str) -> bytes:
    """Return a file without what matches."""
    lines = (_scrubbed_line(line, matcher, name) for line in data.splitlines(keepends=True))
    return b"".join(line for line in lines if line is not None)


def _scrubbed_line(line: bytes, matcher: Matcher, name: str) -> bytes | None:
    if not matcher.may_match_raw(line):
        return line
    try:
        tree = strict_json.decode(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None if matcher.matches(line.decode("utf-8", "replace")) else line
    blanked = blank_tree(tree, matcher.matches)
    if name == _INBOX and isinstance(tree, dict):
        blanked = {field: blanked[field] if field in _INBOX_TEXTS else value for field, value in tree.items()}
    return line if blanked == tree else json.dumps(blanked, separators=(",", ":")).encode() + b"\n"


def find_in_records(config: Config, matcher: Matcher) -> list[Place]:
    """Return a place for each record of Kept's own that has something to scrub."""
    places: list[Place] = []
    for path in (config.paths.inbox, *_iter_records(config)):
        places += _find_in_file(path, matcher, "record", os.path.basename(path))
    return places


def _find_in_file(path: str, matcher: Matcher, kind: Kind, shown: str) -> list[Place]:
    data = read_if_possible(path)
    if _scrubbed(data, matcher, os.path.basename(path)) == data:
        return []
    return [Place(kind, shown, shown, "some of its lines", digest_of(data))]


def replace_file(path: str, matcher: Matcher) -> ScrubResult:
    """Scrub a file that no other process writes now."""
    data = read_if_possible(path)
    scrubbed = _scrubbed(data, matcher, os.path.basename(path))
    if scrubbed == data:
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
        for path in _iter_records(self.config):
            result += replace_file(path, matcher)
        return result


@frozen
class InboxStore:
    """Scrubs the inbox, which only the process with the gateway's lock may write."""

    name: ClassVar[str] = "inbox"
    config: Config

    def scrub(self, order: ForgetOrder) -> ScrubResult:
        matcher, path = Matcher(order.needles), self.config.paths.inbox
        if not _find_in_file(path, matcher, "record", path):
            return ScrubResult()
        with claimed(os.path.join(self.config.home, GATEWAY_LOCK)) as is_ours:
            if not is_ours:
                reason = "the inbox of the gateway that is running; forget it again when the gateway has stopped"
                return ScrubResult(unreachable=(reason,), is_complete=False)
            return replace_file(path, matcher)


# proposals of agents, and changes that wait for review


def find_in_proposals(workspace: Workspace, matcher: Matcher) -> list[Place]:
    """Return a place for each item that has something to forget."""
    places: list[Place] = []
    for path in ReviewFolder(workspace).paths():
        text = read_if_possible(path).decode("utf-8", "replace")
        try:
            tree = strict_json.decode(text)
        except (ValueError, RecursionError):
            tree = text
        if blank_tree(tree, matcher.matches) != tree:
            shown = os.path.relpath(path, workspace.root)
            places.append(Place("proposal", shown, shown, "the proposal", digest_of(text)))
    return places


@frozen
class ProposalStore:
    """Removes items that match: without its text, a proposal is worth nothing."""

    name: ClassVar[str] = "proposals"
    workspace: Workspace

    def scrub(self, order: ForgetOrder) -> ScrubResult:
        matcher = Matcher(order.needles)
        if not find_in_proposals(self.workspace, matcher):
            return ScrubResult()
        with ReviewFolder(self.workspace).locked():
            places = find_in_proposals(self.workspace, matcher)
            return erase_files(os.path.join(self.workspace.root, place.path) for place in places)


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
