"""Files of Kept's own beside the notes and transcripts: the inbox, records that were set aside, logs, proposals, files
that came with messages, and temporary files of killed processes.

Most are texts of lines of JSON. A text in JSON that matches becomes empty; any other line that matches is dropped.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from typing import Any, ClassVar

from kept.config import Config
from kept.config.agent_paths import GATEWAY_LOCK
from kept.damaged_records import DAMAGED_ENDING, TORN_ENDING
from kept.durable import is_abandoned, is_temporary, read_if_possible, replace_erasing
from kept.file_lock import claimed, locked
from kept.forgetting.needles import Matcher, Needles
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

_LOCK_WAIT_S = 10.0
_TEXT_ENDINGS = (".md", ".txt", ".jsonl", ".json", ".log", ".csv", ".html", DAMAGED_ENDING, TORN_ENDING)
_ARCHIVE_ENDINGS = (".tar", ".tar.gz", ".tgz", ".zip")
_SETTINGS = ("config.yaml", "config.yml", "config.json")
_INBOX_TEXTS = ("text", "sender", "metadata", "parts", "details", "error", "reason")
"""Fields of the inbox that may have text of a message. The others identify it."""
_LARGEST_FILE = 1 << 28
INBOX = "inbox.jsonl"
_DIGEST = re.compile(rb'"sha256":"([0-9a-f]{64})"')
_GRACE_S = 10.0
"""Age below which a file may belong to a message that is about to be accepted."""


def scrub_text(data: bytes, matcher: Matcher, name: str) -> bytes:
    """Return a file without what matches."""
    if name.endswith(".json"):
        return scrub_json(data, matcher)
    lines = []
    for line in data.splitlines(keepends=True):
        if not matcher.may_match_raw(line):
            lines.append(line)
        elif (scrubbed := scrub_line(line, matcher, name)) is not None:
            lines.append(scrubbed)
    return b"".join(lines)


def scrub_line(line: bytes, matcher: Matcher, name: str) -> bytes | None:
    """Return a line of JSON with empty texts, or None for any other line that matches."""
    try:
        tree = strict_json.decode(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None if matcher.matches(line.decode("utf-8", "replace")) else line
    if name.startswith(INBOX) and isinstance(tree, dict):
        texts = {field: value for field, value in tree.items() if field in _INBOX_TEXTS}
        blanked: Any = {**tree, **blank_tree(texts, matcher.matches)}
    else:
        blanked = blank_tree(tree, matcher.matches)
    if blanked == tree:
        return line
    return json.dumps(blanked, separators=(",", ":")).encode() + b"\n"


def scrub_json(data: bytes, matcher: Matcher) -> bytes:
    try:
        tree = strict_json.decode(data.decode("utf-8"))
    except (ValueError, RecursionError):
        lines = data.splitlines(keepends=True)
        return b"".join(line for line in lines if not matcher.matches(line.decode("utf-8", "replace")))
    blanked = blank_tree(tree, matcher.matches)
    return data if blanked == tree else json.dumps(blanked, indent=1).encode() + b"\n"


def iter_records(config: Config) -> Iterator[str]:
    """Yield the files of Kept's own in the agent's folder that may have text."""
    paths = config.paths
    own = {paths.forgetting, paths.forgotten_hashes, paths.deleted_sessions}
    for name in sorted(os.listdir(paths.folder)) if os.path.isdir(paths.folder) else ():
        path = os.path.join(paths.folder, name)
        is_file = os.path.isfile(path) and not os.path.islink(path) and os.path.getsize(path) <= _LARGEST_FILE
        if is_file and path not in own and name.endswith(_TEXT_ENDINGS):
            yield path


def find_others(config: Config, workspace: str, matcher: Matcher) -> list[str]:
    """Return other files that have it or, if they are archives, may have it. They are the user's own, and stay."""
    others: list[str] = []
    leave_out = frozenset((os.path.join(config.home, "agents"), config.models_folder))
    for path in iter_all_files((config.home, workspace), leave_out):
        if path.endswith(_ARCHIVE_ENDINGS):
            others.append(f"{path}, an archive that may have it")
        elif not path.startswith(workspace + os.sep) and os.path.basename(path) not in _SETTINGS:
            text = read_if_possible(path).decode("utf-8", "replace") if path.endswith(_TEXT_ENDINGS) else ""
            others += [path] if matcher.matches(text) else []
    return others


def find_in_file(path: str, matcher: Matcher, kind: Kind, shown: str) -> list[Place]:
    """Return a place for a file that has something to scrub, with the number of lines that change."""
    data = read_if_possible(path)
    scrubbed = scrub_text(data, matcher, os.path.basename(path))
    if scrubbed == data:
        return []
    left = set(scrubbed.splitlines())
    count = sum(line not in left for line in data.splitlines())
    return [Place(kind, shown, shown, f"{count} lines" if count > 1 else "1 line", digest_of(data), lines=count)]


def is_only_asked(path: str, needles: Needles) -> bool:
    """Return whether all that matches in an inbox are /forget commands: the request itself is not what it is about."""
    matcher = Matcher(needles)
    for line in read_if_possible(path).splitlines():
        if matcher.may_match_raw(line) and scrub_line(line, matcher, INBOX) != line and not _is_forget_command(line):
            return False
    return True


def _is_forget_command(line: bytes) -> bool:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(record, dict) and str(record.get("text", "")).lstrip().lower().startswith("/forget")


# records


@frozen
class RecordStore:
    """Scrubs records that were set aside, ledgers and batches."""

    name: ClassVar[str] = "records"
    config: Config

    def scrub(self, order: ForgetOrder) -> ScrubResult:
        matcher, result = Matcher(order.needles), ScrubResult()
        for path in iter_records(self.config):
            if not path.startswith(self.config.paths.inbox) and _needs_scrub(path, matcher):
                with locked(f"{path}.lock", wait_s=_LOCK_WAIT_S, purpose="writing this file"):
                    result += replace_file(path, matcher)
        return result


@frozen
class InboxStore:
    """Scrubs the inbox, which only the process with the gateway's lock may write."""

    name: ClassVar[str] = "inbox"
    config: Config

    def scrub(self, order: ForgetOrder) -> ScrubResult:
        matcher = Matcher(order.needles)
        paths = [path for path in iter_records(self.config) if path.startswith(self.config.paths.inbox)]
        if not any(_needs_scrub(path, matcher) for path in paths):
            return ScrubResult()
        with claimed(os.path.join(self.config.home, GATEWAY_LOCK)) as is_ours:
            if not is_ours:
                reason = "the inbox of the gateway that is running; forget it again when the gateway has stopped"
                return ScrubResult(unreachable=(reason,), is_complete=False)
            result = ScrubResult()
            for path in paths:
                result += replace_file(path, matcher)
            return result


def _needs_scrub(path: str, matcher: Matcher) -> bool:
    data = read_if_possible(path)
    return scrub_text(data, matcher, os.path.basename(path)) != data


def replace_file(path: str, matcher: Matcher) -> ScrubResult:
    """Scrub a file that no other process writes now."""
    data = read_if_possible(path)
    scrubbed = scrub_text(data, matcher, os.path.basename(path))
    if scrubbed == data:
        return ScrubResult()
    replace_erasing(path, scrubbed)
    return ScrubResult(removed=1)


# proposals of agents, and changes that wait for review


def find_in_proposals(workspace: Workspace, matcher: Matcher) -> list[Place]:
    """Return a place for each item that has something to forget."""
    places: list[Place] = []
    for path in ReviewFolder(workspace).paths():
        places += find_in_file(path, matcher, "proposal", os.path.relpath(path, workspace.root))
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


def find_in_leftovers(config: Config, workspace: str, matcher: Matcher) -> list[Place]:
    places: list[Place] = []
    for path in iter_leftovers(config, workspace):
        with open(path, "rb") as file:
            data = file.read()
        if matcher.may_match_raw(data) and matcher.matches(data.decode("utf-8", "replace")):
            name = os.path.basename(path)
            places.append(Place("record", name, name, "a temporary file of a process that was killed", digest_of(data)))
    return places


@frozen
class LeftoverStore:
    """Erases temporary files that no process will rename, whatever they contain."""

    name: ClassVar[str] = "leftovers"
    config: Config
    workspace: Workspace

    def scrub(self, order: ForgetOrder) -> ScrubResult:
        with writing_to(self.workspace, wait_s=LOCK_WAIT_S):
            return erase_files(iter_leftovers(self.config, self.workspace.root))
