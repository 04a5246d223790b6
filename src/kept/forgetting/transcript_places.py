"""Conversations: the lines that say something, and taking their text away. Lines keep their place."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import ClassVar

from kept.damaged_records import TORN_ENDING
from kept.durable import replace_erasing
from kept.errors import SessionError, SessionNotFound
from kept.file_lock import locked
from kept.forgetting.needles import Matcher, Needles
from kept.forgetting.note_places import keeps_link
from kept.forgetting.plan import EntryCut, ForgetOrder, Kind, Place, ScrubResult, digest_of
from kept.records import cite
from kept.sessions.blanking import blank_line, renew_receipts
from kept.sessions.entries import AnyEntry, Entry, Message, SessionStart, StateEntry
from kept.sessions.spoken import find_utterance
from kept.sessions.store import SessionStore
from kept.sessions.transcript import LOCK_WAIT_S, RawLine, Transcript, TranscriptLine, parse_line
from kept.sessions.transcript_paths import (
    cite_transcript,
    is_transcript,
)
from kept.values import frozen

Wants = Callable[[AnyEntry], bool]
"""Returns whether an entry is to go as a whole, whatever its words."""
_DELETED = ".jsonl.deleted-"
FORGET_STATE = "forget"
"""State of a session with a proposal of /forget, which has the query. It is scrubbed, but it is not a place."""


def iter_transcript_files(folder: str) -> Iterator[str]:
    """Yield the paths of transcripts, deleted ones and torn ends."""
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return
    for name in names:
        path = os.path.join(folder, name)
        has_text = is_transcript(name) or _DELETED in name or name.endswith(TORN_ENDING)
        if has_text and os.path.isfile(path) and not os.path.islink(path):
            yield path


def find_in_transcript(path: str, matcher: Matcher, wants: Wants | None = None) -> list[Place]:
    """Return the lines of a transcript that match or are wanted."""

    def choose(line: TranscriptLine) -> bool | None:
        content = line.content
        return None if _is_proposal(content) else wants is not None and isinstance(content, Entry) and wants(content)

    return _find_places(path, matcher.matches, choose, matcher.may_match_raw if wants is None else None)


def find_lines(path: str, first: int, last: int) -> list[Place]:
    """Return the lines of a transcript from ``first`` to ``last`` that say something."""
    return _find_places(path, lambda text: False, lambda line: True if first <= line.number <= last else None)


def _find_places(
    path: str,
    matches: Callable[[str], bool],
    choose: Callable[[TranscriptLine], bool | None],
    may_match: Callable[[bytes], bool] | None = None,
) -> list[Place]:
    """Return the lines that would lose something. ``choose`` returns whether a line goes as a whole, None if it stays.

    Lines after the first are parsed only if they ``may_match``.
    """
    places: list[Place] = []
    kind: Kind = "conversation"
    cited = cite_transcript(path)
    for raw in _iter_raw(path):
        if raw.number > 1 and may_match is not None and not may_match(raw.raw):
            continue
        line = parse_line(raw)
        if isinstance(line.content, Entry) and isinstance(line.content.body, SessionStart):
            kind = "import" if "imported" in line.content.body.metadata else kind
        is_whole = choose(line)
        if is_whole is not None and blank_line(raw.raw, matches, whole=is_whole) != raw.raw:
            citation = cite(cited, raw.number, raw.number)
            places.append(Place(kind, cited, citation, _shown_text(line), digest_of(raw.raw), raw.number, 1, is_whole))
    return places


def _is_proposal(content: object) -> bool:
    body = content.body if isinstance(content, Entry) else None
    return isinstance(body, StateEntry) and body.name == FORGET_STATE


def spoken_texts(path: str) -> list[str]:
    """Return what people and the agent say in a transcript, without tool results, which quote the notes."""
    texts = []
    for raw in _iter_raw(path):
        content = parse_line(raw).content
        if isinstance(content, Entry) and isinstance(content.body, Message) and content.body.role != "tool":
            texts.append(content.body.text)
    return texts


def _iter_raw(path: str) -> Iterator[RawLine]:
    try:
        yield from Transcript(path).iter_raw()
    except SessionNotFound:
        return


def _shown_text(line: TranscriptLine) -> str:
    utterance = find_utterance(line)
    return utterance.shown if utterance is not None else "(details of the conversation or of a tool call)"


@frozen
class TranscriptStore:
    """Scrubs the conversations of an agent, and deletes those that go as a whole."""

    name: ClassVar[str] = "conversations"
    sessions: SessionStore

    def scrub(self, order: ForgetOrder) -> ScrubResult:
        result = ScrubResult()
        for session_id in order.sessions:
            result += self._delete(session_id)
        matcher = Matcher(order.words_only)
        for path in iter_transcript_files(self.sessions.folder):
            cited = cite_transcript(path)
            cuts = [entry for entry in order.entries if entry.path == cited]
            if cuts or (order.words and not order.is_scoped):
                result += self._blank(path, cuts, matcher)
        return result

    def _delete(self, session_id: str) -> ScrubResult:
        try:
            self.sessions.delete(session_id, purge=True)
        except SessionNotFound:
            return ScrubResult()  # deleted by the run that was interrupted
        return ScrubResult(removed=1)

    def _blank(self, path: str, cuts: list[EntryCut], matcher: Matcher) -> ScrubResult:
        if path.endswith(TORN_ENDING):
            return self._drop_torn(path, matcher)
        if not is_transcript(os.path.basename(path)):
            with locked(path, wait_s=LOCK_WAIT_S, purpose="deleting this session", create=False):
                return _blank_lines(path, cuts, matcher, lambda lines: replace_erasing(path, b"".join(lines)))
        try:
            with Transcript(path).appending() as append:
                return _blank_lines(path, cuts, matcher, append.replace_lines)
        except SessionNotFound:
            return ScrubResult()
        except SessionError as exc:
            return ScrubResult(unreachable=(exc.message,), is_complete=False)

    def _drop_torn(self, path: str, matcher: Matcher) -> ScrubResult:
        with open(path, "rb") as file:
            lines = file.read().splitlines(keepends=True)
        remaining = [line for line in lines if not matcher.matches(line.decode("utf-8", "replace"))]
        if len(remaining) < len(lines):
            replace_erasing(path, b"".join(remaining))
        return ScrubResult(removed=len(lines) - len(remaining))


def _blank_lines(
    path: str, cuts: list[EntryCut], matcher: Matcher, write: Callable[[list[bytes]], bool]
) -> ScrubResult:
    by_line = {cut.line: cut for cut in cuts}
    before = list(Transcript(path).iter_raw())
    after: list[RawLine] = []
    for line in before:
        cut = by_line.get(line.number)
        is_same = cut is not None and digest_of(line.raw) == cut.digest
        # A copy of a removed line is a place without words of its own: all of it goes.
        is_whole = cut is not None and is_same and (cut.whole or not matcher.needles)
        if is_whole or matcher.may_match_raw(line.raw):
            after.append(replace(line, raw=blank_line(line.raw, matcher.matches, whole=is_whole)))
        else:
            after.append(line)
    after = renew_receipts(before, after, cite_transcript(path))
    count = sum(old.raw != new.raw for old, new in zip(before, after, strict=True))
    if not count and _tail(path, before, Matcher(Needles())) == _tail(path, before, matcher):
        return ScrubResult()
    is_erased = write([*(line.raw for line in after), _tail(path, before, matcher)])
    cited = cite_transcript(path)
    return ScrubResult(count, unreachable=() if is_erased else (keeps_link(cited),))


def _tail(path: str, lines: list[RawLine], matcher: Matcher) -> bytes:
    """Return the bytes after the last whole line of a deleted transcript, unless they match."""
    with open(path, "rb") as file:
        file.seek(lines[-1].end if lines else 0)
        tail = file.read()
    return b"" if matcher.matches(tail.decode("utf-8", "replace")) else tail
