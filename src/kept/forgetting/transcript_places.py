"""Conversations: the lines that say something, and taking their text away. Lines keep their place."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar

from kept.base.damaged_records import TORN_ENDING
from kept.base.durable import replace_erasing
from kept.base.file_lock import locked
from kept.base.records import cite
from kept.base.values import frozen
from kept.errors import SessionError, SessionNotFound
from kept.forgetting.needles import Matcher, Needles
from kept.forgetting.note_places import keeps_link
from kept.forgetting.plan import EntryCut, ForgetOrder, Kind, Place, ScrubResult, digest_of
from kept.sessions.entries import AnyEntry, Entry, Message, SessionStart, StateEntry
from kept.sessions.forgotten_text import blank_line, renew_receipts
from kept.sessions.spoken import find_utterance
from kept.sessions.store import SessionStore
from kept.sessions.transcript import LOCK_WAIT_S, RawLine, Transcript, TranscriptLine, parse_line
from kept.sessions.transcript_paths import (
    cite_transcript,
    is_transcript,
)

Wants = Callable[[AnyEntry], bool]
"""Returns whether an entry is to go as a whole, whatever its words."""
_DELETED = ".jsonl.deleted-"
FORGET_STATE = "forget"
"""State of a session with a proposal of /forget, which has the query. It goes with the places that it names."""


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


def find_in_transcript(
    path: str, matcher: Matcher, wants: Wants | None = None, *, proposals: bool = False
) -> list[Place]:
    """Return the lines of a transcript that match or are wanted, or the ``proposals`` of /forget that match."""

    def choose(line: TranscriptLine) -> bool | None:
        content = line.content
        if _is_proposal(content) != proposals:
            return None
        return wants is not None and isinstance(content, Entry) and wants(content)

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
    """Yield the lines of a transcript, also a last one that has no end."""
    line = RawLine(0, 0, 0, b"")
    with suppress(SessionNotFound):
        for line in Transcript(path).iter_raw():
            yield line
        with open(path, "rb") as file:
            file.seek(line.end)
            if tail := file.read():
                yield RawLine(line.number + 1, line.end, line.end + len(tail), tail)


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
        matcher = Matcher(Needles(order.words))
        for path in iter_transcript_files(self.sessions.folder):
            if cuts := [entry for entry in order.entries if entry.path == cite_transcript(path)]:
                result += self._blank(path, cuts, matcher)
        return result

    def _delete(self, session_id: str) -> ScrubResult:
        try:
            self.sessions.delete(session_id, purge=True)
        except SessionNotFound:
            return ScrubResult()  # deleted by the run that was interrupted
        return ScrubResult(removed=1)

    def _blank(self, path: str, cuts: list[EntryCut], matcher: Matcher) -> ScrubResult:
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


def _blank_lines(
    path: str, cuts: list[EntryCut], matcher: Matcher, write: Callable[[list[bytes]], bool]
) -> ScrubResult:
    by_line = {cut.line: cut for cut in cuts}
    before = list(_iter_raw(path))
    after: list[RawLine] = []
    for line in before:
        cut = by_line.get(line.number)
        if cut is not None and digest_of(line.raw) == cut.digest:
            # A copy of a removed line is a place without words of its own: all of it goes.
            raw = blank_line(line.raw, matcher.matches, whole=cut.whole or not matcher.needles)
            after.append(replace(line, raw=raw))
        else:
            after.append(line)
    after = renew_receipts(before, after, cite_transcript(path))
    count = sum(old.raw != new.raw for old, new in zip(before, after, strict=True))
    if not count:
        return ScrubResult()
    is_erased = write([line.raw for line in after])
    return ScrubResult(count, unreachable=() if is_erased else (keeps_link(cite_transcript(path)),))
