"""The files to index: the notes of a workspace and the transcripts of an agent, with their sizes and times."""

from __future__ import annotations

import os

from kept.config import MemorySearchSettings
from kept.limits import int64, utf8_safe
from kept.records import Problem, SourceFile
from kept.sessions.transcript_paths import CITED_FOLDER, cite_transcript, is_transcript, iter_transcripts
from kept.workspace.scan import Scan, scan_workspace
from kept.workspace.workspace import Workspace


def scan_sources(workspace: Workspace, sessions_folder: str, settings: MemorySearchSettings) -> Scan:
    """Scan the sources that are enabled."""
    scans = []
    if "memory" in settings.sources:
        scans.append(scan_workspace(workspace, max_bytes=settings.max_file_bytes))
    if "sessions" in settings.sources:
        scans.append(scan_transcripts(sessions_folder))
    return Scan(
        tuple(file for scan in scans for file in scan.files),
        tuple(problem for scan in scans for problem in scan.problems),
        tuple(folder for scan in scans for folder in scan.folders),
    )


def cite_source(absolute: str, workspace: Workspace, sessions_folder: str) -> str | None:
    """Return the name by which an indexed file is cited, or None if a sync would not index the file."""
    name = os.path.basename(absolute)
    if os.path.dirname(absolute) == sessions_folder and is_transcript(name):
        return cite_transcript(name)
    return workspace.cite(absolute) if workspace.is_note_file(absolute) and workspace.is_indexed(absolute) else None


def scan_transcripts(folder: str) -> Scan:
    """List the transcripts, however large: one is read in pieces, and later only where it has grown."""
    files: list[SourceFile] = []
    problems: list[Problem] = []
    try:
        for entry in sorted(iter_transcripts(folder), key=lambda entry: entry.name):
            _add_entry(entry, files, problems)
    except FileNotFoundError:
        return Scan((), (), (_nearest_folder(folder),))
    except OSError as exc:
        problems.append(Problem(CITED_FOLDER, f"cannot be listed ({exc.strerror})"))
    return Scan(tuple(files), tuple(problems), (folder,))


def _add_entry(entry: os.DirEntry[str], files: list[SourceFile], problems: list[Problem]) -> None:
    cited = cite_transcript(entry.name)
    try:
        cited.encode("utf-8")
        state = entry.stat(follow_symlinks=False)
    except UnicodeEncodeError:
        problems.append(Problem(utf8_safe(cited), "its name is not valid UTF-8"))
    except FileNotFoundError:
        pass
    else:
        times = (int64(state.st_mtime_ns), int64(state.st_ctime_ns))
        files.append(SourceFile(cited, entry.path, "sessions", state.st_size, *times))


def _nearest_folder(folder: str) -> str:
    """Return the nearest existing parent: a watch on it notices that the folder is created."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder
