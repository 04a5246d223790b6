"""Take the text out of transcript lines. A line keeps its place: number, id, parent, time, role, and its length.

Other processes remember offsets, and an import compares ids; both stay right. The bytes that the text took are spaces
at the end of the line, where JSON allows them. `"forgotten":true` marks the entry, if there is space for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from kept.limits import strict_json
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
        entry = parse_entry(raw.rstrip(b"\n"))
    except DamagedEntry:
        is_match = whole or matches(raw.decode("utf-8", "replace"))
        return _fit(to_json(_NO_ENTRY), len(raw)) if is_match else raw
    blanked = blank_entry(entry, matches)
    if whole:
        blanked = empty_entry(blanked)
    if blanked == entry:
        return raw
    if isinstance(blanked, Entry):
        marked = format_entry(replace(blanked, extra={**blanked.extra, MARK: True}))
        if len(marked) <= len(raw):
            return _fit(marked[:-1], len(raw))
    return _fit(format_entry(blanked)[:-1], len(raw))


def _fit(line: bytes, size: int) -> bytes:
    return line.ljust(size - 1) + b"\n"


def renew_receipts(before: Sequence[RawLine], after: Sequence[RawLine], path: str) -> list[RawLine]:
    """Return the lines with the hashes of receipts made new where they were right before.

    Otherwise a compaction would look as if somebody had tampered with the lines that it covers.
    """
    renewed = list(after)
    for number, line in enumerate(after):
        if b'"receipt"' not in line.raw:
            continue
        try:
            entry = parse_entry(line.raw.rstrip(b"\n"))
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
            raw = _fit(format_entry(replace(entry, body=body))[:-1], len(line.raw))
            renewed[number] = replace(line, raw=raw)
    return renewed
