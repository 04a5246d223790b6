"""Searches notes with the program `qmd` (npm @tobilu/qmd), and with Kept's own index when qmd fails.

qmd gets its own configuration and index below Kept's home, so that the user's other collections are neither read nor
changed. Its answers are verified: a hit is shown with the current lines of the note, or dropped. It is run without a
shell, with limits of time and output, and no processes of it are left over.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice, zip_longest

from kept.base.clock import Clock
from kept.base.durable import make_private_folder, read_if_possible, write_atomic
from kept.base.file_lock import locked
from kept.base.limits import is_amount, one_line, time_from_ms, utf8_safe
from kept.base.records import Dropped, Hit, ScorePart, SearchResult, SourceFile, grade_of
from kept.base.values import frozen
from kept.config import Config
from kept.errors import BackendFailed, KeptError
from kept.index.note_rows import note_timestamp_ms
from kept.notes.daily import get_daily_notes
from kept.notes.note_writer import read_passage
from kept.notes.scan import Scan
from kept.notes.workspace import MEMORY_FOLDER, ROOT_NOTES, Workspace
from kept.search.query import IndexQuery, ParsedQuery
from kept.search.selection import make_snippet

INSTALL = "Install it: npm install -g @tobilu/qmd; or set memory_search.qmd.command."
SEARCH_TIMEOUT_S = 4.0
COOLDOWN_S = 60.0
"""Pause after a failure, during which the program is not run: otherwise every search would wait for it to time out."""
UPDATE_TIMEOUT_S = 300.0
EMBED_TIMEOUT_S = 3600.0
MAX_OUTPUT_BYTES = 8_000_000
_MAX_ERROR_BYTES = 4_000
_INDEX_NAME = "kept"
_STATE_FILE = "updated"
_LINE_RANGE = re.compile(r"@@ -(\d{1,9}),(\d{1,9}) @@[^\n]*\n")
_ANSWER_KEYS = ("file", "snippet", "score")
_RESULTS_PER_HIT = 3
"""More results are requested than needed: some may be outdated, and are left out."""

SearchIndex = Callable[[IndexQuery], SearchResult]
"""Function that searches Kept's own index."""
_NO_FILTERS = "Answered from Kept's own index: qmd cannot narrow by path, date, tag or project."


@frozen
class QmdAnswer:
    """One result as the program prints it."""

    file: str
    score: float
    start: int
    lines: int
    text: str


class QmdBackend:
    """Notes of one workspace in an index of qmd, and conversations in Kept's own. After a failure qmd is left alone for
    a while, and Kept's own index answers."""

    def __init__(self, config: Config, workspace: Workspace, clock: Clock) -> None:
        self.settings = config.memory_search.qmd
        self.workspace = workspace
        self.folder = config.paths.qmd(workspace.root)
        self._clock = clock
        self._max_bytes = config.memory_search.max_file_bytes
        self._bases = {os.path.realpath(path): path for path in (*workspace.extra_paths, workspace.root)}
        self._sources = config.memory_search.sources
        self._failure: tuple[int, KeptError] | None = None
        """Time of the last failure in nanoseconds, and the error, until qmd works again."""

    # updating its index

    def sync(self, files: Iterable[SourceFile]) -> str | None:
        """Let qmd index the changes, with vectors if it searches with them. Return the reason if it could not."""
        try:
            self._update(files, timeout_s=UPDATE_TIMEOUT_S)
            if self.settings.mode != "search":
                self._run(["embed"], timeout_s=EMBED_TIMEOUT_S)
        except KeptError as exc:
            return f"qmd: {exc.message} {exc.hint}".strip()
        self._failure = None
        return None

    def _update(self, files: Iterable[SourceFile], *, timeout_s: float) -> None:
        """Let qmd index the notes, if any has changed since the last time."""
        state = self._hash_state(files)
        if self._is_current(state):
            return
        make_private_folder(self.folder)
        config = self._config_text().encode("utf-8", "surrogateescape")
        write_atomic(os.path.join(self.folder, f"{_INDEX_NAME}.yml"), config)
        with locked(os.path.join(self.folder, "update.lock"), wait_s=timeout_s, purpose="updating qmd"):
            if not self._is_current(state):  # another process may have done it meanwhile
                self._run(["update"], timeout_s=timeout_s)
                write_atomic(os.path.join(self.folder, _STATE_FILE), state.encode())

    def _hash_state(self, files: Iterable[SourceFile]) -> str:
        """Return a hash of the configuration and of the notes' sizes and times."""
        digest = hashlib.sha256(self._config_text().encode("utf-8", "surrogateescape"))
        for file in files:
            if file.source == "memory":
                line = f"{file.absolute}\0{file.size}\0{file.mtime_ns}\0{file.ctime_ns}\n"
                digest.update(line.encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    def _is_current(self, state: str) -> bool:
        indexed = read_if_possible(os.path.join(self.folder, _STATE_FILE))
        return indexed == state.encode() and os.path.exists(os.path.join(self.folder, "index.sqlite"))

    def _config_text(self) -> str:
        """Return the configuration with its collections. JSON is valid YAML, and quotes anything a path may hold."""
        endings = [spelling for ending in self.workspace.endings for spelling in (ending[1:], ending[1:].upper())]
        files = f"**/*.{{{','.join(endings)}}}"
        notes = files if self.workspace.layout == "vault" else f"{{{','.join(ROOT_NOTES)},{MEMORY_FOLDER}/{files}}}"
        collections = {"workspace": {"path": os.path.realpath(self.workspace.root), "pattern": notes}}
        for number, extra in enumerate(self.workspace.extra_paths, start=1):
            path = os.path.realpath(extra)
            if os.path.isdir(path):
                collections[f"extra-{number}"] = {"path": path, "pattern": files}
            elif os.path.isfile(path):
                folder, name = os.path.split(path)
                collections[f"extra-{number}"] = {"path": folder, "pattern": name}
        return json.dumps({"collections": collections}, indent=1) + "\n"

    # searching

    def search(
        self, request: IndexQuery, search_index: SearchIndex, scan: Callable[[], Scan] | None, *, min_score: float
    ) -> SearchResult:
        """Search notes, and conversations if the settings name them.

        ``scan`` lists the notes for an update before the search; None skips it. A configured threshold is not applied
        to qmd, which scores on another scale.
        """
        started, filters, limit = time.perf_counter(), request.filters, request.settings.max_results
        if filters.sources == ("sessions",) or filters.is_conversation:
            return search_index(request)
        reason = _NO_FILTERS if replace(filters, sources=()) else ""
        try:
            notes = [] if reason else self._search_notes(request.query, scan, limit)
        except KeptError as exc:
            reason = f"Answered from Kept's own index: {exc.message} {exc.hint}".strip()
        if reason:
            result = search_index(request)
            return replace(result, degraded=(reason, *result.degraded))
        notes = [hit for hit in notes if hit.score >= min_score]
        sessions = SearchResult(())
        if "sessions" in self._sources and not filters.sources:
            sessions = search_index(replace(request, filters=replace(filters, sources=("sessions",))))
        # In turn, the best of each first: their scores cannot be compared.
        hits = tuple(hit for pair in zip_longest(notes, sessions.hits) for hit in pair if hit is not None)
        return SearchResult(
            hits=hits[:limit],
            degraded=sessions.degraded,
            provider="qmd",
            model=self.settings.mode,
            took_ms=(time.perf_counter() - started) * 1000,
            dropped=tuple(Dropped(hit.citation, hit.score, "beyond max_results") for hit in hits[limit:]),
        )

    def _search_notes(self, query: ParsedQuery, scan: Callable[[], Scan] | None, limit: int) -> list[Hit]:
        """Return the hits, best first, perhaps fewer than the limit. Raise the last error again if it was a moment
        ago."""
        # A clock that was set back ends the pause: it must not last for hours.
        if self._failure and 0 <= self._clock.time_ns() - self._failure[0] < COOLDOWN_S * 1_000_000_000:
            raise self._failure[1]
        text = utf8_safe(query.text)
        if self.settings.mode == "search":
            # qmd requires every word, so stop words are left out; and it takes a leading '-' for an operator.
            words = (word for term in query.terms for word in re.findall(r"\w+", utf8_safe(term.text)))
            text = " ".join(dict.fromkeys(words)) or text
        count = str(limit * _RESULTS_PER_HIT)
        command = [self.settings.mode, "--format", "json", "--full-path", "-n", count, "--", one_line(text)]
        try:
            if scan is not None:
                self._update(scan().files, timeout_s=SEARCH_TIMEOUT_S)
            answers = [*read_answers(self._run(command, timeout_s=SEARCH_TIMEOUT_S))]
            hits = list(islice(filter(None, map(self._find_hit, answers)), limit))
        except KeptError as exc:
            self._failure = (self._clock.time_ns(), exc)
            raise
        self._failure = None
        return hits

    def _run(self, command: list[str], *, timeout_s: float) -> bytes:
        program = shutil.which(os.path.expanduser(self.settings.command))
        if program is None:
            raise BackendFailed(f"the program '{self.settings.command}' is not installed.", hint=INSTALL)
        # Both are set because otherwise qmd would use a `.qmd` folder anywhere above the current one.
        env = {**os.environ, "QMD_CONFIG_DIR": self.folder, "INDEX_PATH": os.path.join(self.folder, "index.sqlite")}
        make_private_folder(self.folder)
        arguments = [os.path.abspath(program), "--index", _INDEX_NAME, *command]
        return run_program(arguments, env=env, cwd=self.folder, timeout_s=timeout_s)

    def _find_hit(self, answer: QmdAnswer) -> Hit | None:
        """Return the hit with the current lines of the note, or None if they are not what qmd reports."""
        absolute = os.path.realpath(os.path.join(self.folder, answer.file))
        path = self._cited_path(absolute)
        if path is None:
            return None
        try:
            passage = read_passage(
                self.workspace, path, start=answer.start, lines=answer.lines, max_bytes=self._max_bytes
            )
            state = os.stat(absolute)
        except (KeptError, OSError):
            return None
        if not _is_same_text(passage.text, answer.text):
            return None
        text = passage.text.strip("\n")
        start = answer.start + passage.text.index(text)  # blank lines, of one character each, come before it
        part = ScorePart("qmd", answer.score, f"{self.settings.mode}, as qmd scores it")
        return Hit(
            path=path,
            start_line=start,
            end_line=start + text.count("\n"),
            score=answer.score,
            vector_score=None,
            text_score=None,
            snippet=make_snippet(text, ()),
            source="memory",
            timestamp=time_from_ms(note_timestamp_ms(path, state.st_mtime_ns, get_daily_notes(self.workspace))),
            parts=(part,),
            grade=grade_of(answer.score),
        )

    def _cited_path(self, absolute: str) -> str | None:
        """Return the path under which Kept cites a file, or None if it is not an indexed note."""
        for real, base in self._bases.items():
            if absolute == real or absolute.startswith(real + os.sep):
                path = self.workspace.cite(base + absolute[len(real) :])
                if self.workspace.is_indexed(path):
                    return path
        return None


def read_answers(output: bytes) -> Iterator[QmdAnswer]:
    """Yield the results in the output of the program. Text before the list, and files that are gone, are ignored."""
    try:
        text = output.decode("utf-8")
        results = json.loads(text[text.index("[") :]) if "[" in text else None
    except (ValueError, RecursionError) as exc:
        raise BackendFailed(f"the output of qmd cannot be parsed ({exc}).") from exc
    if not isinstance(results, list):
        raise BackendFailed("the output of qmd cannot be parsed (no list of results).")
    for result in results:
        file, snippet, score = (result.get(key) if isinstance(result, dict) else None for key in _ANSWER_KEYS)
        if not isinstance(file, str) or not isinstance(snippet, str):
            raise BackendFailed("the output of qmd cannot be parsed (a result without a file or a snippet).")
        lines = _LINE_RANGE.match(snippet)
        # qmd still lists a file that is gone, by a URL instead of a path.
        if lines and "://" not in file and is_amount(score):
            yield QmdAnswer(file, min(1.0, max(0.0, score)), int(lines[1]), int(lines[2]), snippet[lines.end() :])


def _is_same_text(note_text: str, reported: str) -> bool:
    """Return whether a note holds the text that qmd reports. A long passage is cut there and ends in dots."""
    note_text, reported = (re.sub(r"\r\n?", "\n", text).strip() for text in (note_text, reported))
    is_cut = reported.endswith("...") and note_text.startswith(reported[:-3].rstrip())
    return bool(reported) and (note_text == reported or is_cut)


# running the program


def run_program(command: Sequence[str], *, env: Mapping[str, str], cwd: str, timeout_s: float) -> bytes:
    """Return the standard output. The program and its children are killed if it takes too long or prints too much."""
    name = os.path.basename(command[0])
    with tempfile.TemporaryFile() as errors:
        try:
            # In a new process group, which can be killed as one.
            process = subprocess.Popen(
                command,
                env=env,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        except (OSError, ValueError) as exc:
            raise BackendFailed(f"{name} could not be started ({exc}).") from exc
        deadline_s = time.monotonic() + timeout_s
        timer = threading.Timer(timeout_s, _kill_group, (process,))
        timer.start()
        try:
            assert process.stdout is not None
            with process.stdout:
                output = process.stdout.read(MAX_OUTPUT_BYTES + 1)
            if len(output) <= MAX_OUTPUT_BYTES:
                process.wait()
        finally:
            is_late = time.monotonic() >= deadline_s
            timer.cancel()
            _kill_group(process)
            process.wait()
        if len(output) > MAX_OUTPUT_BYTES:
            raise BackendFailed(f"{name} printed more than {MAX_OUTPUT_BYTES:,} bytes.")
        if is_late:
            raise BackendFailed(f"{name} did not answer within {timeout_s:g} s.")
        if process.returncode:
            errors.seek(max(0, errors.tell() - _MAX_ERROR_BYTES))
            lines = errors.read().decode("utf-8", "replace").strip().splitlines()
            reason = f": {lines[-1][:300]}" if lines else ", without a message."
            raise BackendFailed(f"{name} failed with exit code {process.returncode}{reason}")
        return output


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the program and its children, including those that outlived it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
