"""Searching notes through the program `qmd` (npm @tobilu/qmd).

It gets a configuration and an index of its own below Kept's home, so that what its user has in it otherwise is neither
seen nor changed. What it answers is verified: a hit is shown with the lines as they stand in the note now, or not.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable
from typing import Any

from kept.backends.program import find_program, run_program
from kept.config import Config
from kept.durable import make_private_folder, write_atomic
from kept.errors import BackendFailed, KeptError
from kept.indexing.prepare import note_timestamp_ms
from kept.limits import is_amount, storable
from kept.lock import locked
from kept.records import Hit, Passage, ScorePart, SourceFile
from kept.search.query import parse_query
from kept.search.snippet import make_snippet
from kept.values import frozen
from kept.workspace.paths import MEMORY_FOLDER, ROOT_NOTES, Workspace

INSTALL = "Install it: npm install -g @tobilu/qmd; or set memory_search.qmd.command."
UPDATE_TIMEOUT_S = 300.0
EMBED_TIMEOUT_S = 3600.0
_NAME = "kept"
_UPDATED = "updated"
_WORD = re.compile(r"\w+")
_PLACE = re.compile(r"@@ -(\d{1,9}),(\d{1,9}) @@[^\n]*\n")
_MORE_THAN_ASKED = 3
"""Some of what it finds may be outdated, and is left out."""

Read = Callable[[str, int, int], Passage]
"""Reads lines of a note: path, first line, how many."""


@frozen
class Answer:
    """One result as the program prints it."""

    file: str
    score: float
    start: int
    lines: int
    text: str


class Qmd:
    def __init__(self, config: Config, workspace: Workspace, read: Read) -> None:
        self.settings = config.memory_search.qmd
        self.workspace = workspace
        self.folder = os.path.join(config.home, "agents", config.agent_id, f"qmd-{_short(workspace.root)}")
        self._read = read
        self._bases = {os.path.realpath(place): place for place in (*workspace.extra_paths, workspace.root)}

    # keeping its index

    def update(self, files: Iterable[SourceFile], *, whole: bool) -> None:
        """Lets it take in what changed, if anything has since it last did. ``whole`` takes the time that is needed,
        also for the vectors where it is to search with them; otherwise no more than a search may."""
        state = self._state(files)
        if self._has_taken_in(state, whole=whole):
            return
        limit_s = UPDATE_TIMEOUT_S if whole else self.settings.timeout_ms / 1000
        self._write_config()
        with locked(os.path.join(self.folder, "update.lock"), wait_s=limit_s, purpose="updating qmd"):
            if self._has_taken_in(state, whole=whole):
                return
            self._run(["update"], timeout_s=limit_s)
            embeds = whole and self.settings.mode != "search"
            if embeds:
                self._run(["embed"], timeout_s=EMBED_TIMEOUT_S)
            done = "whole" if embeds or self.settings.mode == "search" else "words"
            write_atomic(os.path.join(self.folder, _UPDATED), f"{state} {done}".encode())

    def _state(self, files: Iterable[SourceFile]) -> str:
        """What the files are like, and what it was told to index."""
        told = hashlib.sha256(self._config().encode("utf-8", "surrogateescape"))
        for file in files:
            if file.source == "memory":
                line = f"{file.absolute}\0{file.size}\0{file.mtime_ns}\0{file.ctime_ns}\n"
                told.update(line.encode("utf-8", "surrogateescape"))
        return told.hexdigest()

    def _has_taken_in(self, state: str, *, whole: bool) -> bool:
        try:
            with open(os.path.join(self.folder, _UPDATED), encoding="ascii") as file:
                before, _, done = file.read().partition(" ")
        except (OSError, ValueError):
            return False
        is_there = os.path.exists(os.path.join(self.folder, "index.sqlite"))
        return is_there and before == state and (done == "whole" or not whole)

    def _write_config(self) -> None:
        make_private_folder(self.folder)
        write_atomic(os.path.join(self.folder, f"{_NAME}.yml"), self._config().encode("utf-8", "surrogateescape"))

    def _config(self) -> str:
        """Its collections. JSON is YAML, and quotes whatever a path may hold."""
        notes = f"{{{','.join(ROOT_NOTES)},{MEMORY_FOLDER}/**/*.{{md,MD}}}}"
        collections = {"workspace": {"path": os.path.realpath(self.workspace.root), "pattern": notes}}
        for number, extra in enumerate(self.workspace.extra_paths, start=1):
            place = os.path.realpath(extra)
            if os.path.isdir(place):
                collections[f"extra-{number}"] = {"path": place, "pattern": "**/*.{md,MD}"}
            elif os.path.isfile(place):
                folder, name = os.path.split(place)
                collections[f"extra-{number}"] = {"path": folder, "pattern": name}
        return json.dumps({"collections": collections}, indent=1) + "\n"

    # asking

    def search(self, query: str, *, max_results: int) -> list[Hit]:
        """Notes, best first. Fewer than were asked for, where some are not in the notes any more."""
        query = storable(query.replace("\0", " "))
        asked = self._words(query) if self.settings.mode == "search" else " ".join(query.split())
        count = str(max_results * _MORE_THAN_ASKED)
        command = [self.settings.mode, "--format", "json", "--full-path", "-n", count, "--", asked]
        printed = self._run(command, timeout_s=self.settings.timeout_ms / 1000)
        hits = filter(None, map(self._find_hit, read_answers(printed)))
        return [hit for hit, _ in zip(hits, range(max_results), strict=False)]

    def _words(self, query: str) -> str:
        """It wants every word of a keyword search in a note, so those that say nothing are left out; and what it takes
        for operators, such as a leading '-', was not meant as one."""
        words = (word for term in parse_query(query).terms for word in _WORD.findall(term.text))
        return " ".join(dict.fromkeys(words)) or query

    def _run(self, command: list[str], *, timeout_s: float) -> bytes:
        program = find_program(self.settings.command, hint=INSTALL)
        # Named, because otherwise a `.qmd` folder anywhere above the current one would be used instead.
        env = {**os.environ, "QMD_CONFIG_DIR": self.folder, "INDEX_PATH": os.path.join(self.folder, "index.sqlite")}
        make_private_folder(self.folder)
        whole = [program, "--index", _NAME, *command]
        return run_program(whole, env=env, cwd=self.folder, timeout_s=timeout_s)

    def _find_hit(self, answer: Answer) -> Hit | None:
        """The hit with its lines as they stand in the note, if that says there what the program says it does."""
        absolute = os.path.realpath(os.path.join(self.folder, answer.file))
        path = self._cited(absolute)
        if path is None:
            return None
        try:
            passage = self._read(path, answer.start, answer.lines)
            state = os.stat(absolute)
        except (KeptError, OSError):
            return None
        if not _same(passage.text, answer.text):
            return None
        start, end, text = _trimmed(answer.start, passage.text)
        part = ScorePart("qmd", answer.score, f"{self.settings.mode}, as qmd scores it")
        return Hit(
            path=path,
            start_line=start,
            end_line=end,
            score=answer.score,
            vector_score=None,
            text_score=None,
            snippet=make_snippet(text, ()),
            source="memory",
            timestamp=_iso(note_timestamp_ms(path, state.st_mtime_ns)),
            parts=(part,),
        )

    def _cited(self, absolute: str) -> str | None:
        for real, place in self._bases.items():
            if absolute == real or absolute.startswith(real + os.sep):
                found = place + absolute[len(real) :]
                if self.workspace.is_indexed(found):
                    return self.workspace.cite(found)
        return None


def read_answers(printed: bytes) -> list[Answer]:
    """What the program printed, whatever else stands before the list."""
    try:
        text = printed.decode("utf-8")
        listed = json.loads(text[text.index("[") :]) if "[" in text else None
    except (ValueError, RecursionError) as exc:
        raise BackendFailed(f"what qmd answers cannot be understood ({exc}).") from exc
    if not isinstance(listed, list):
        raise BackendFailed("what qmd answers cannot be understood (no list of results).")
    return [answer for answer in map(_answer, listed) if answer is not None]


def _answer(one: Any) -> Answer | None:
    if not isinstance(one, dict) or not isinstance(one.get("file"), str) or not isinstance(one.get("snippet"), str):
        raise BackendFailed("what qmd answers cannot be understood (a result without a file or a snippet).")
    place = _PLACE.match(one["snippet"])
    score = one.get("score")
    if place is None or "://" in one["file"] or not is_amount(score):
        return None  # a file that is gone is still named, by another name
    text = one["snippet"][place.end() :]
    return Answer(one["file"], min(1.0, max(0.0, float(score))), int(place[1]), int(place[2]), text)


def _same(stands: str, said: str) -> bool:
    """Whether a note says what it is said to say. A long passage is cut and ends in dots."""
    stands, said = (re.sub(r"\r\n?", "\n", text).strip() for text in (stands, said))
    return bool(said) and (stands == said or (said.endswith("...") and stands.startswith(said[:-3].rstrip())))


def _trimmed(start: int, text: str) -> tuple[int, int, str]:
    """Without blank lines at either end."""
    lines = text.split("\n")
    while len(lines) > 1 and not lines[0].strip():
        lines.pop(0)
        start += 1
    while len(lines) > 1 and not lines[-1].strip():
        lines.pop()
    return start, start + len(lines) - 1, "\n".join(lines)


def _iso(timestamp_ms: int) -> str:
    return dt.datetime.fromtimestamp(timestamp_ms / 1000).astimezone().isoformat(timespec="seconds")


def _short(root: str) -> str:
    return hashlib.sha256(os.fsencode(root)).hexdigest()[:12]
