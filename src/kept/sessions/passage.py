"""Reading a cited transcript back, as it is indexed: who said what and when, without secrets."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from itertools import takewhile

from kept.errors import PathRefused, SessionNotFound
from kept.limits import is_utf8
from kept.records import Passage
from kept.sessions.entries import Entry, ResetEntry, SessionStart
from kept.sessions.spoken import find_utterance, show_utterances
from kept.sessions.transcript import Damage, Transcript, TranscriptLine, parse_line
from kept.sessions.transcript_paths import CITED_FOLDER, is_transcript

_DEFAULT_LINES = 200
_MAX_PASSAGE_CHARS = 60_000
_MAX_NAME_CHARS = 255


def read_transcript(folder: str, citation: str, *, start: int = 1, lines: int | None = None) -> Passage:
    """Return lines of a transcript, fewer if they are long. Lines that say nothing count and are not shown."""
    first, limit = max(1, start), _DEFAULT_LINES if lines is None else max(1, lines)
    texts: list[str] = []
    last, chars, is_truncated = first - 1, 0, False
    for line in _iter_from(locate_transcript(folder, citation), first):
        text = _line_text(line)
        if line.number >= first + limit or (texts and chars + len(text) > _MAX_PASSAGE_CHARS):
            is_truncated = True
            break
        last, chars = line.number, chars + len(text) + 1
        if text:
            texts.append(text)
    return Passage(
        path=citation,
        start=first,
        lines=last - first + 1,
        text="\n".join(texts),
        truncated=is_truncated,
        next_from=last + 1 if is_truncated else None,
    )


def still_says(folder: str, citation: str, *, start: int, end: int, text: str) -> bool:
    """Return whether these lines of a transcript still contain a text as it was indexed."""
    lines = takewhile(lambda line: line.number <= end, _iter_from(locate_transcript(folder, citation), start))
    utterances = (find_utterance(line) for line in lines)
    return text in show_utterances([utterance for utterance in utterances if utterance is not None])


def locate_transcript(folder: str, citation: str) -> Transcript:
    """Return the cited transcript. Raise PathRefused for anything but a regular file directly in the folder.

    A citation may come from a model or a web page, so it must not lead to any other file.
    """
    name = citation.removeprefix(CITED_FOLDER)
    if "/" in name or "\\" in name or "\0" in name or len(name) > _MAX_NAME_CHARS or not is_transcript(name):
        raise PathRefused(f"{citation}: not a transcript.", hint="Name one as a search cites it: sessions/….jsonl.")
    if not is_utf8(name):
        raise SessionNotFound(f"{citation}: there is no such transcript.")
    transcript = Transcript(os.path.join(folder, name))
    if not stat.S_ISREG(transcript.stat().st_mode):
        raise PathRefused(f"{citation}: symbolic links are not followed.", hint="Name a transcript that is a file.")
    return transcript


def _iter_from(transcript: Transcript, first_line: int) -> Iterator[TranscriptLine]:
    return (parse_line(raw) for raw in transcript.iter_raw() if raw.number >= first_line)


def _line_text(line: TranscriptLine) -> str:
    utterance = find_utterance(line)
    if utterance is not None:
        return utterance.shown
    match line.content:
        case Damage(reason=reason):
            return f"(line {line.number} cannot be read: {reason})"
        case Entry(body=SessionStart(), timestamp=when):
            return f"[{when:%Y-%m-%d %H:%M}] (the session begins)"
        case Entry(body=ResetEntry(), timestamp=when):
            return f"[{when:%Y-%m-%d %H:%M}] (the session ends)"
        case _:
            return ""
