"""Files of Kept's own beside the notes and transcripts: the inbox, records that were set aside, and logs.

Every file is a text of lines, most of them JSON. A text in JSON that matches becomes empty; any other line that matches
is dropped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from kept.config import Config
from kept.config.agent_paths import GATEWAY_LOCK
from kept.damaged_records import DAMAGED_ENDING, TORN_ENDING
from kept.durable import read_if_possible, replace_erasing
from kept.file_lock import claimed, locked
from kept.forgetting.byte_scan import iter_all_files
from kept.forgetting.needles import Matcher, Needles
from kept.forgetting.note_places import matching_passages
from kept.forgetting.order import ForgetOrder, ScrubResult
from kept.forgetting.places import Kind, Place, digest_of
from kept.limits import strict_json
from kept.sessions.blanking import blank_tree

_LOCK_WAIT_S = 10.0
_TEXT_ENDINGS = (".md", ".txt", ".jsonl", ".json", ".log", ".csv", ".html", DAMAGED_ENDING, TORN_ENDING)
_ARCHIVE_ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".zip")
_SETTINGS = ("config.yaml", "config.yml", "config.json")
_INBOX_TEXTS = ("text", "sender", "metadata", "parts", "details", "error", "reason")
"""Fields of the inbox that may have text of a message. The others identify it."""
_LARGEST_FILE = 1 << 28
INBOX = "inbox.jsonl"


def scrub_text(data: bytes, matcher: Matcher, name: str) -> bytes:
    """Return a file without what matches."""
    if name.endswith(".json"):
        return scrub_json(data, matcher)
    if name.endswith((".md", ".txt")):
        return _scrub_prose(data, matcher)
    lines = []
    for line in data.splitlines(keepends=True):
        if not matcher.may_match_raw(line):
            lines.append(line)
        elif (scrubbed := scrub_line(line, matcher, name)) is not None:
            lines.append(scrubbed)
    return b"".join(lines)


def scrub_line(line: bytes, matcher: Matcher, name: str) -> bytes | None:
    """Return a line of JSON with empty texts, or None for any other line that matches and for a copy of a passage."""
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
    if name.startswith("forgotten.jsonl"):
        return None
    return json.dumps(blanked, separators=(",", ":")).encode() + b"\n"


def scrub_json(data: bytes, matcher: Matcher) -> bytes:
    try:
        tree = strict_json.decode(data.decode("utf-8"))
    except (ValueError, RecursionError):
        lines = data.splitlines(keepends=True)
        return b"".join(line for line in lines if not matcher.matches(line.decode("utf-8", "replace")))
    blanked = blank_tree(tree, matcher.matches)
    return data if blanked == tree else json.dumps(blanked, indent=1).encode() + b"\n"


def _scrub_prose(data: bytes, matcher: Matcher) -> bytes:
    from kept.workspace.opened import decode
    from kept.workspace.removal import remove_lines

    text = decode(data)[0]
    ranges = [(passage.start_line, passage.end_line) for passage in matching_passages(text, matcher)]
    return remove_lines(data, ranges, "") if ranges else data


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
            others += [path] if path.endswith(_TEXT_ENDINGS) and _needs_scrub(path, matcher) else []
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


class RecordStore:
    """Scrubs the inbox, records that were set aside, copies of earlier /forget, ledgers and batches."""

    name = "records"

    def __init__(self, config: Config) -> None:
        self.config = config

    def scrub(self, order: ForgetOrder) -> ScrubResult:
        matcher, result = Matcher(order.needles), ScrubResult()
        for path in iter_records(self.config):
            if path.startswith(self.config.paths.inbox):
                continue
            result += scrub_file(path, matcher)
        return result


class InboxStore:
    """Scrubs the inbox, which only the process with the gateway's lock may write."""

    name = "inbox"

    def __init__(self, config: Config) -> None:
        self.config = config

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


def scrub_file(path: str, matcher: Matcher) -> ScrubResult:
    """Scrub a file under its lock, if it needs it."""
    if not _needs_scrub(path, matcher):
        return ScrubResult()
    with locked(f"{path}.lock", wait_s=_LOCK_WAIT_S, purpose="writing this file"):
        return replace_file(path, matcher)


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
