"""What was forgotten: text is taken out of transcript lines, and hashes of it keep imports from bringing it back.

A line keeps its place: number, id, parent, time, role, and its length. Other processes remember offsets, and an import
compares ids; both stay right. The bytes that the text took are spaces at the end of the line, where JSON allows them.
`"forgotten":true` marks the entry, if there is space for it.

`forgotten-hashes.jsonl` in the agent's folder begins with a random salt. Each further line has the keyed hashes of one
forget: of the words that were forgotten, with their number of words, and of whole lines:

    {"salt":"9f2c…"}
    {"at":"2026-04-01T08:00:00+02:00","words":[[1,"5e1d…"]],"lines":["b07a…"]}

A forget in the memory of a project or of one of several people has its folder as "scope", and counts only there. It
has no text. Someone who can read it can guess a word and test whether it was forgotten.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from kept.base.limits import strict_json
from kept.sessions.echoes import RECALLED
from kept.sessions.entries import (
    FORWARDED,
    QUOTED,
    AnyEntry,
    Attachment,
    Block,
    CompactionEntry,
    DamagedEntry,
    Entry,
    Message,
    ResetEntry,
    SessionStart,
    StateEntry,
    Text,
    ToolCall,
    ToolResult,
    UnknownEntry,
    format_entry,
    parse_entry,
    to_json,
)
from kept.sessions.transcript import RawLine, hash_lines, is_receipt, ranges_of
from kept.storage.contract import START, Append, Storage

Matches = Callable[[str], bool]
"""Returns whether a text has to go."""

MARK = "forgotten"
_NO_ENTRY = {"type": MARK}
_IDENTITY = ("type", "id", "parentId", "timestamp")
_TALK_METADATA = (QUOTED, FORWARDED, "group", RECALLED, "context")
"""Metadata with texts of other messages, and names of notes that a message was about."""
_SENTENCE_END = r"(?<=[.!?…。！？])\s+"


# entries


def blank_entry(entry: AnyEntry, matches: Matches) -> AnyEntry:
    """Return an entry without the text that matches. A message with a match in its content loses all of it."""
    if isinstance(entry, UnknownEntry):
        return _blank_unknown(entry, matches)
    body, extra = entry.body, blank_tree(entry.extra, matches)
    match body:
        case Message():
            content = tuple(_empty_blocks(body, matches)) if has_match(format_blocks(body), matches) else body.content
            sender = None if body.sender and matches(body.sender) else body.sender
            body = replace(body, content=content, sender=sender, metadata=blank_tree(body.metadata, matches))
        case CompactionEntry():
            receipt = None if body.receipt is None else blank_tree(body.receipt, matches)
            metadata = blank_tree(body.metadata, matches)
            body = replace(body, summary=cut_sentences(body.summary, matches), receipt=receipt, metadata=metadata)
        case StateEntry():
            body = replace(body, value=blank_tree(body.value, matches))
        case SessionStart():
            body = replace(body, state=blank_tree(body.state, matches), metadata=blank_tree(body.metadata, matches))
        case ResetEntry():
            pass
    return entry if (body, extra) == (entry.body, entry.extra) else replace(entry, body=body, extra=extra)


def empty_entry(entry: AnyEntry) -> AnyEntry:
    """Return an entry without all that it says. A session's start and end, and settings, stay as they are."""
    if isinstance(entry, UnknownEntry):
        return _blank_unknown(entry, lambda text: bool(text.strip()))
    match entry.body:
        case Message() as message:
            metadata = {name: value for name, value in message.metadata.items() if name not in _TALK_METADATA}
            blocks = tuple(_empty_blocks(message, lambda text: False))
            return replace(entry, body=replace(message, content=blocks, metadata=metadata))
        case CompactionEntry() as compaction:
            return replace(entry, body=replace(compaction, summary=""))
        case _:
            return entry


def _blank_unknown(entry: UnknownEntry, matches: Matches) -> UnknownEntry:
    tree = strict_json.decode(entry.raw.decode("utf-8"))
    fields = {
        name: value if name in _IDENTITY else blank_tree(value, matches)
        for name, value in tree.items()
        if name in _IDENTITY or not matches(name)
    }
    return entry if fields == tree else replace(entry, raw=to_json(fields))


def format_blocks(message: Message) -> list[Any]:
    """Return all texts of a message's content."""
    texts: list[Any] = []
    for block in message.content:
        match block:
            case Text(text):
                texts.append(text)
            case ToolCall(name=name, arguments=arguments):
                texts += [name, arguments]
            case ToolResult(text=text, name=name):
                texts += [text, name]
            case Attachment(name=name, path=path):
                texts += [name, path]
            case _:
                texts.append(getattr(block, "fields", None) or getattr(block, "text", None))
    return texts


def _empty_blocks(message: Message, matches: Matches) -> list[Block]:
    """Return what is left of the content: calls and results stay pairs, since a model refuses one without the other."""
    blocks: list[Block] = []
    for block in message.content:
        match block:
            case ToolCall(call_id, name):
                blocks.append(ToolCall(call_id, "tool" if matches(name) else name, {}))
            case ToolResult(call_id, _, name, is_error):
                blocks.append(ToolResult(call_id, "", None if name and matches(name) else name, is_error))
            case _:
                pass
    return blocks or [Text("")]


def cut_sentences(text: str, matches: Matches) -> str:
    """Return a text without the sentences that match; without a whole line if the match runs over sentences."""
    if not matches(text):
        return text
    lines = []
    for line in text.split("\n"):
        if matches(line):
            sentences = re.split(_SENTENCE_END, line)
            line = " ".join(sentence for sentence in sentences if not matches(sentence))
            if not line.strip() or matches(line):
                continue
        lines.append(line)
    left = "\n".join(lines)
    return "" if matches(left) else left  # the match runs over lines


# trees of JSON


def blank_tree(tree: Any, matches: Matches) -> Any:
    """Return a tree with every text that matches replaced by an empty one."""
    if isinstance(tree, str):
        return "" if matches(tree) else tree
    if isinstance(tree, list):
        return [blank_tree(item, matches) for item in tree]
    if isinstance(tree, dict):
        return {name: blank_tree(value, matches) for name, value in tree.items() if not matches(name)}
    return tree


def has_match(tree: Any, matches: Matches) -> bool:
    if isinstance(tree, str):
        return matches(tree)
    if isinstance(tree, list | tuple):
        return any(has_match(item, matches) for item in tree)
    if isinstance(tree, dict):
        return any(matches(name) or has_match(value, matches) for name, value in tree.items())
    return False


# lines


def blank_line(raw: bytes, matches: Matches, *, whole: bool = False) -> bytes:
    """Return a line without the text that matches, or ``whole`` without all that it says, and of the same length."""
    try:
        entry = parse_entry(raw)
    except DamagedEntry:
        is_match = whole or matches(raw.decode("utf-8", "replace"))
        return to_json(_NO_ENTRY).ljust(len(raw)) if is_match else raw
    blanked = blank_entry(entry, matches)
    if whole:
        blanked = empty_entry(blanked)
    if blanked == entry:
        return raw
    if isinstance(blanked, Entry):
        marked = format_entry(replace(blanked, extra={**blanked.extra, MARK: True}))[:-1]
        if len(marked) <= len(raw):
            return marked.ljust(len(raw))
    return format_entry(blanked)[:-1].ljust(len(raw))


def renew_receipts(before: Sequence[RawLine], after: Sequence[RawLine], path: str) -> list[RawLine]:
    """Return the lines with the hashes of receipts made new where they were right before.

    Otherwise a compaction would look as if somebody had tampered with the lines that it covers.
    """
    renewed = list(after)
    for number, line in enumerate(after):
        if b'"receipt"' not in line.raw:
            continue
        try:
            entry = parse_entry(line.raw)
        except DamagedEntry:
            continue
        if not isinstance(entry, Entry) or not isinstance(entry.body, CompactionEntry):
            continue
        receipt = entry.body.receipt
        if not is_receipt(receipt) or receipt["path"] != path:
            continue
        digest = hash_lines(after, ranges_of(receipt))
        if digest != receipt["sha256"] and hash_lines(before, ranges_of(receipt)) == receipt["sha256"]:
            body = replace(entry.body, receipt={**receipt, "sha256": digest})
            raw = format_entry(replace(entry, body=body))[:-1].ljust(len(line.raw))
            renewed[number] = replace(line, raw=raw)
    return renewed


# hashes of what was forgotten

FORGOTTEN_HASHES = "forgotten-hashes.jsonl"
MIN_LINE_CHARS = 16
"""Shorter lines are too common to identify."""
_HASH_BYTES = 16
_LIST_MARKS = "-*+>#•|. "


def normalise_line(line: str) -> str:
    """Return a line without list marks and differences of case, width and spacing."""
    return " ".join(unicodedata.normalize("NFKC", line).casefold().split()).lstrip(_LIST_MARKS)


def normalise_words(text: str) -> list[str]:
    return re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold())


def iter_long_lines(text: str) -> Iterator[str]:
    """Yield the normalised lines of a text that are long enough to be told from others."""
    for line in text.splitlines():
        normal = normalise_line(line)
        if len(normal) >= MIN_LINE_CHARS:
            yield normal


class ForgottenText:
    """Text that was forgotten in one agent's memory, as hashes. Read on creation and by ``refresh``.

    Hold the forgetting lock while calling ``add``.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._salt = b""
        self._words: dict[tuple[str, int], set[str]] = {}
        """Hashes of phrases, by scope and word count."""
        self._lines: dict[str, set[str]] = {}
        """Hashes of lines, by scope."""
        self._read_to = START
        self.refresh()

    def __bool__(self) -> bool:
        return bool(self._words or self._lines)

    def refresh(self) -> None:
        """Read what another process has added. A log that cannot be read raises: going on would bring back what was
        forgotten."""
        for line in self._storage.logs.read(FORGOTTEN_HASHES, self._read_to):
            self._read_to = line.end
            try:
                record = strict_json.decode(line.data.decode())
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict):
                self._take(record)

    def matches(self, text: str, path: str = "") -> bool:
        """Return whether a text has words or a line that were forgotten: for everybody, or where its note belongs."""
        lines = [hashes for scope, hashes in self._lines.items() if _is_in(path, scope)]
        if lines and any(self._hash(line) in hashes for line in iter_long_lines(text) for hashes in lines):
            return True
        words = [(count, hashes) for (scope, count), hashes in self._words.items() if _is_in(path, scope)]
        return bool(words) and self._has_words(normalise_words(text), words)

    def _has_words(self, words: list[str], forgotten: Iterable[tuple[int, set[str]]]) -> bool:
        for count, hashes in forgotten:
            phrases = {" ".join(words[start : start + count]) for start in range(len(words) - count + 1)}
            if any(self._hash(phrase) in hashes for phrase in phrases):
                return True
        return False

    def without_forgotten(self, data: bytes, own: bytes, path: str) -> bytes:
        """Return a text without lines that were forgotten, unless they are in ``own``; nothing if only blank ones stay.

        Words that were forgotten may also stand on two lines: then nothing is left.
        """

        def is_forgotten(text: bytes) -> bool:
            return self.matches(text.decode("utf-8", "replace"), path)

        if not is_forgotten(data):
            return data
        here = {line.rstrip() for line in own.splitlines()}
        lines = data.splitlines(keepends=True)
        rest = [line for line in lines if line.rstrip() in here or not is_forgotten(line)]
        new = b"".join(line for line in rest if line.rstrip() not in here)
        is_left = is_forgotten(new) or not b"".join(rest).strip()
        return b"" if is_left else b"".join(rest)

    def clean(self, entry: AnyEntry) -> AnyEntry:
        """Return an entry without what was forgotten. It keeps its id, so that it is not imported again."""
        return blank_entry(entry, self.matches) if self else entry

    def clean_start(self, start: SessionStart) -> SessionStart:
        """Return the first line of a session without what was forgotten."""
        return replace(start, metadata=blank_tree(start.metadata, self.matches)) if self else start

    def add(self, phrases: Iterable[str], lines: Iterable[str], now: dt.datetime, *, scope: str = "") -> None:
        """Add words and normalised lines, for everybody or for notes in a folder. What is known is not added again."""
        salt = []
        if not self._salt:
            self._salt = os.urandom(16)
            salt = [{"salt": self._salt.hex()}]
        words = [(len(parts), self._hash(" ".join(parts))) for parts in map(normalise_words, phrases) if parts]
        words = [(count, digest) for count, digest in words if digest not in self._words.get((scope, count), ())]
        known = self._lines.get(scope, ())
        hashes = [digest for digest in dict.fromkeys(map(self._hash, lines)) if digest not in known]
        if words or hashes:
            record = {"at": now.isoformat(timespec="seconds"), "words": words, "lines": hashes}
            record |= {"scope": scope} if scope else {}
            added = [json.dumps(tree, separators=(",", ":")).encode() for tree in (*salt, record)]
            self._storage.commit([Append(FORGOTTEN_HASHES, added)])
            self.refresh()

    def _hash(self, text: str) -> str:
        data = text.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(data, key=self._salt, digest_size=_HASH_BYTES).hexdigest()

    def _take(self, record: dict[str, Any]) -> None:
        match record:
            case {"salt": str(salt)} if not self._salt and re.fullmatch(r"[0-9a-f]{2,128}", salt):
                self._salt = bytes.fromhex(salt[: len(salt) // 2 * 2])
            case {"words": [*words], "lines": [*hashes]}:
                scope = str(record.get("scope") or "")
                for word in words:
                    match word:
                        case [int(count), str(digest)] if 0 < count < 100:
                            self._words.setdefault((scope, count), set()).add(digest)
                if hashes:
                    own = self._lines.setdefault(scope, set())
                    own.update(digest for digest in hashes if isinstance(digest, str))


def _is_in(path: str, scope: str) -> bool:
    return not scope or f"{path}/".lower().startswith(f"{scope}/".lower())
