"""What there is to index: the notes of a workspace and the transcripts of an agent, by their names and states."""

from __future__ import annotations

import os

from kept.config import MemorySearch
from kept.limits import int64
from kept.records import Problem, SourceFile
from kept.workspace.paths import Workspace
from kept.workspace.scan import Scan, scan_workspace

CITED_FOLDER = "sessions/"
"""What the name of a transcript is cited with."""
TRANSCRIPT_ENDING = ".jsonl"


def scan_sources(workspace: Workspace, sessions_folder: str, settings: MemorySearch) -> Scan:
    """The sources that are switched on."""
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


def is_transcript_path(cited: str) -> bool:
    """Notes are Markdown, so a path that ends like this can only mean a transcript."""
    return cited.startswith(CITED_FOLDER) and cited.endswith(TRANSCRIPT_ENDING)


def is_transcript(name: str) -> bool:
    return name.endswith(TRANSCRIPT_ENDING) and not name.startswith(".")


def scan_transcripts(folder: str) -> Scan:
    """However large they are: a transcript is read piece by piece, and after that only where it grew."""
    files: list[SourceFile] = []
    problems: list[Problem] = []
    try:
        with os.scandir(folder) as listing:
            for entry in sorted(listing, key=lambda entry: entry.name):
                if is_transcript(entry.name) and entry.is_file(follow_symlinks=False):
                    _look_at(entry, files, problems)
    except FileNotFoundError:
        return Scan((), (), (_nearest_folder(folder),))
    except OSError as exc:
        problems.append(Problem(CITED_FOLDER, f"cannot be listed ({exc.strerror})"))
    return Scan(tuple(files), tuple(problems), (folder,))


def _look_at(entry: os.DirEntry[str], files: list[SourceFile], problems: list[Problem]) -> None:
    cited = CITED_FOLDER + entry.name
    try:
        cited.encode("utf-8")
        state = entry.stat(follow_symlinks=False)
    except UnicodeEncodeError:
        problems.append(Problem(cited.encode("utf-8", "replace").decode(), "its name is not valid UTF-8"))
    except FileNotFoundError:
        pass
    else:
        times = (int64(state.st_mtime_ns), int64(state.st_ctime_ns))
        files.append(SourceFile(cited, entry.path, "sessions", state.st_size, *times))


def _nearest_folder(folder: str) -> str:
    """Where it will be noticed that the folder is made."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder
