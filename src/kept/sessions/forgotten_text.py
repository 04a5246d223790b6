"""Hashes of what was forgotten, so that an import, a hook or a flush does not bring it back.

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
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from kept.damaged_records import repair_end
from kept.durable import append_durably
from kept.errors import TranscriptUnreadable
from kept.limits import strict_json
from kept.sessions.blanking import blank_entry, blank_tree
from kept.sessions.entries import AnyEntry, SessionStart

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

    def __init__(self, path: str) -> None:
        self.path = path
        self._salt = b""
        self._words: dict[tuple[str, int], set[str]] = {}
        """Hashes of phrases, by scope and word count."""
        self._lines: dict[str, set[str]] = {}
        """Hashes of lines, by scope."""
        self._size = -1
        self.refresh()

    def __bool__(self) -> bool:
        return bool(self._words or self._lines)

    def refresh(self) -> None:
        """Read what another process has added."""
        try:
            size = os.path.getsize(self.path)
        except OSError:
            size = 0
        if size != self._size:
            self._read()
            self._size = size

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
        if not self._salt:
            self._salt = os.urandom(16)
            append_durably(self.path, json.dumps({"salt": self._salt.hex()}).encode() + b"\n")
        words = [(len(parts), self._hash(" ".join(parts))) for parts in map(normalise_words, phrases) if parts]
        words = [(count, digest) for count, digest in words if digest not in self._words.get((scope, count), ())]
        known = self._lines.get(scope, ())
        hashes = [digest for digest in dict.fromkeys(map(self._hash, lines)) if digest not in known]
        if words or hashes:
            record = {"at": now.isoformat(timespec="seconds"), "words": words, "lines": hashes}
            record |= {"scope": scope} if scope else {}
            repair_end(self.path, lambda raw: raw.endswith(b"}"))
            append_durably(self.path, json.dumps(record, separators=(",", ":")).encode() + b"\n")
            self._take(record)
            self._size = -1

    def _hash(self, text: str) -> str:
        data = text.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(data, key=self._salt, digest_size=_HASH_BYTES).hexdigest()

    def _read(self) -> None:
        try:
            with open(self.path, "rb") as file:
                lines = file.read().splitlines()
        except FileNotFoundError:
            return
        except OSError as exc:  # going on would bring back what was forgotten
            raise TranscriptUnreadable(f"{self.path}: cannot be read ({exc.strerror}).") from exc
        for raw in lines:
            try:
                record = strict_json.decode(raw.decode())
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict):
                self._take(record)

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
