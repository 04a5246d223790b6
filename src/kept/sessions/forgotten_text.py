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

from kept.base.limits import as_dict, is_deep, read_object, strict_json
from kept.sessions.echoes import RECALLED
from kept.sessions.entries import FORWARDED, QUOTED, AnyEntry, SessionStart, format_entry, parse_entry, to_json
from kept.sessions.transcript import TranscriptLine, hash_lines, is_receipt, ranges_of
from kept.storage.contract import START, Append, Storage

Matches = Callable[[str], bool]
"""Returns whether a text has to go."""
Tree = dict[str, Any]

MARK = "forgotten"
_NO_ENTRY = {"type": MARK}
_MAX_DEPTH = 200
_IDENTITY = frozenset({"type", "id", "parentId", "timestamp"})
_STRUCTURE = _IDENTITY | frozenset(
    "version key predecessor compactions role content model usage toolCallId isError mediaType sha256 size signature"
    " firstKeptId source tokensBefore tokensAfter reason successor".split()
)
"""Fields of entries, messages and blocks that stay as they are: they say what kind something is, or belong together."""
_OWN = frozenset("message summary receipt metadata state value name sender".split())
"""Further fields that Kept names. Any other one goes if its name matches."""
_TALK_METADATA = (QUOTED, FORWARDED, "group", RECALLED, "context")
"""Metadata with texts of other messages, and names of notes that a message was about."""
_SENTENCE_END = r"(?<=[.!?…。！？])\s+"


# entries, as the objects that their lines have


def blank_entry(tree: Tree, matches: Matches, *, whole: bool = False) -> Tree:
    """Return an entry without the text that matches, or ``whole`` without all that it says: its settings stay.

    A message with a match in its content loses all of it. A summary loses the sentences.
    """
    match tree:
        case {"type": "message", "message": {"content": str() | list() as content} as message}:
            inner = _blank_fields(message, matches)
            blocks = [content] if isinstance(content, str) else content
            values = [[*_without(block, _STRUCTURE).values()] if isinstance(block, dict) else block for block in blocks]
            if whole or blank_tree(values, matches) != values:
                inner["content"] = [left for block in blocks if (left := _empty_block(block, matches))] or ""
            if whole and inner.get("metadata"):
                inner["metadata"] = _without(inner["metadata"], _TALK_METADATA)
            return {**_blank_fields(tree, matches), "message": inner}
        case {"type": "compaction", "summary": str(summary)}:
            return {**_blank_fields(tree, matches), "summary": "" if whole else cut_sentences(summary, matches)}
        case {"type": "state", "name": name}:
            return {**_blank_fields(tree, matches), "name": name}
        case {"type": "session" | "reset"}:
            return _blank_fields(tree, matches)
    return _blank_fields(tree, (lambda text: bool(text.strip())) if whole else matches, _IDENTITY, frozenset())


def _blank_fields(
    tree: Tree, matches: Matches, structure: frozenset[str] = _STRUCTURE, own: frozenset[str] = _OWN
) -> Tree:
    return {
        name: value if name in structure else blank_tree(value, matches)
        for name, value in tree.items()
        if name in structure or name in own or not matches(name)
    }


def _without(tree: Any, names: Iterable[str]) -> Any:
    return {name: value for name, value in tree.items() if name not in names} if isinstance(tree, dict) else tree


def _empty_block(block: Any, matches: Matches) -> Tree:
    """Return what is left of a block: calls and results stay pairs, since a model refuses one without the other."""
    match block:
        case {"type": "toolCall", "name": str(name)}:
            return {**block, "name": "tool" if matches(name) else name, "arguments": {}}
        case {"type": "toolResult"}:
            left = {**block, "text": ""}
            return _without(left, ("toolName",)) if matches(str(left.get("toolName", ""))) else left
    return {}


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


# lines


def blank_line(raw: bytes, matches: Matches, *, whole: bool = False) -> bytes:
    """Return a line without the text that matches, or ``whole`` without all that it says, and of the same length."""
    tree = read_object(raw)
    if not tree or is_deep(tree, _MAX_DEPTH):
        is_match = whole or matches(raw.decode("utf-8", "replace"))
        return to_json(_NO_ENTRY).ljust(len(raw)) if is_match else raw
    blanked = blank_entry(tree, matches, whole=whole)
    if blanked == tree:
        return raw
    marked = to_json({**blanked, MARK: True})
    return (marked if len(marked) <= len(raw) else to_json(blanked)).ljust(len(raw))


def renew_receipts(
    before: Sequence[TranscriptLine], after: Sequence[TranscriptLine], path: str
) -> list[TranscriptLine]:
    """Return the lines with the hashes of receipts made new where they were right before.

    Otherwise a compaction would look as if somebody had tampered with the lines that it covers.
    """
    renewed = list(after)
    for number, line in enumerate(after):
        tree = read_object(line.raw) if b'"receipt"' in line.raw else {}
        receipt = tree.get("receipt")
        if not is_receipt(receipt) or receipt["path"] != path:
            continue
        digest = hash_lines(after, ranges_of(receipt))
        if digest != receipt["sha256"] and hash_lines(before, ranges_of(receipt)) == receipt["sha256"]:
            raw = to_json({**tree, "receipt": {**receipt, "sha256": digest}}).ljust(len(line.raw))
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
        self._hashes: dict[tuple[str, int], set[str]] = {}
        """Hashes of phrases, by scope and number of words; those of lines under the number 0."""
        self._read_to = START
        self.refresh()

    def refresh(self) -> None:
        """Read what another process has added. A log that cannot be read raises: going on would bring back what was
        forgotten."""
        for line in self._storage.logs.read(FORGOTTEN_HASHES, self._read_to):
            self._read_to = line.end
            self._take(read_object(line.data))

    def matches(self, text: str, path: str = "") -> bool:
        """Return whether a text has words or a line that were forgotten: for everybody, or where its note belongs."""
        words: list[str] | None = None
        for (scope, count), hashes in self._hashes.items():
            if not _is_in(path, scope):
                continue
            if count:
                words = normalise_words(text) if words is None else words
                phrases = {" ".join(words[start : start + count]) for start in range(len(words) - count + 1)}
            else:
                phrases = set(iter_long_lines(text))
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
        if not self._hashes:
            return entry
        tree = as_dict(strict_json.decode(format_entry(entry).decode()))
        blanked = blank_entry(tree, self.matches)
        return entry if blanked == tree else parse_entry(to_json(blanked))

    def clean_start(self, start: SessionStart) -> SessionStart:
        """Return the first line of a session without what was forgotten."""
        return replace(start, metadata=blank_tree(start.metadata, self.matches))

    def add(self, phrases: Iterable[str], lines: Iterable[str], now: dt.datetime, *, scope: str = "") -> None:
        """Add words and normalised lines, for everybody or for notes in a folder. What is known is not added again."""
        salt = []
        if not self._salt:
            self._salt = os.urandom(16)
            salt = [{"salt": self._salt.hex()}]
        words = [(len(parts), " ".join(parts)) for parts in map(normalise_words, phrases) if parts]
        hashes = [(count, self._hash(text)) for count, text in dict.fromkeys([*words, *((0, line) for line in lines)])]
        new = [(count, digest) for count, digest in hashes if digest not in self._hashes.get((scope, count), ())]
        if new:
            record: Tree = {"at": now.isoformat(timespec="seconds"), "words": [pair for pair in new if pair[0]]}
            record["lines"] = [digest for count, digest in new if not count]
            record |= {"scope": scope} if scope else {}
            added = [json.dumps(tree, separators=(",", ":")).encode() for tree in (*salt, record)]
            self._storage.commit([Append(FORGOTTEN_HASHES, added)])
            self.refresh()

    def _hash(self, text: str) -> str:
        data = text.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(data, key=self._salt, digest_size=_HASH_BYTES).hexdigest()

    def _take(self, record: Tree) -> None:
        match record:
            case {"salt": str(salt)} if not self._salt and re.fullmatch(r"[0-9a-f]{2,128}", salt):
                self._salt = bytes.fromhex(salt[: len(salt) // 2 * 2])
            case {"words": [*words], "lines": [*lines]}:
                scope = str(record.get("scope") or "")
                for pair in (*words, *([0, digest] for digest in lines)):
                    match pair:
                        case [int(count), str(digest)] if 0 <= count < 100:
                            self._hashes.setdefault((scope, count), set()).add(digest)


def _is_in(path: str, scope: str) -> bool:
    return not scope or f"{path}/".lower().startswith(f"{scope}/".lower())
