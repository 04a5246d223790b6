"""Names of transcripts: of the file, in a citation, and in a listing of their folder.

20260314T150926Z_1f0e….jsonl                 file: time of creation in UTC, id of the session
sessions/20260314T150926Z_1f0e….jsonl        citation: as a search and a receipt name it
sessions/desk/20260314T150926Z_1f0e….jsonl   citation of a transcript of the machine desk, in a folder of that name

A machine writes only the transcripts directly in the folder. Those of other machines are copies (`host_transcripts`).
"""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Iterator

from kept.host_names import is_host_name

TRANSCRIPT_ENDING = ".jsonl"
CITED_FOLDER = "sessions/"
"""Prefix of a transcript's name in citations."""
_TIME_FORMAT = "%Y%m%dT%H%M%SZ"
_NAME = r"^(?P<time>\d{8}T\d{6}Z)_(?P<id>.+)\.jsonl$"  # not compiled here: a search needs none of it


def transcript_name(session_id: str, created: dt.datetime) -> str:
    return f"{created.astimezone(dt.UTC):{_TIME_FORMAT}}_{session_id}{TRANSCRIPT_ENDING}"


def parse_transcript_name(name: str) -> tuple[str, dt.datetime | None]:
    """Return the session's id and its time of creation. For a name that a person chose, the name is the id."""
    match = re.match(_NAME, name)
    if not match:
        return name.removesuffix(TRANSCRIPT_ENDING), None
    try:
        return match["id"], dt.datetime.strptime(match["time"], _TIME_FORMAT).replace(tzinfo=dt.UTC)
    except ValueError:
        return match["id"], None


def is_transcript(name: str) -> bool:
    """Return whether a file of this name is a transcript. A deleted one has another ending, a hidden file is none."""
    return name.endswith(TRANSCRIPT_ENDING) and not name.startswith(".")


def iter_transcripts(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yield the transcripts of this machine in a folder. Links and folders are left out, whatever their names."""
    with os.scandir(folder) as listing:
        for entry in listing:
            if is_transcript(entry.name) and entry.is_file(follow_symlinks=False):
                yield entry


def iter_all_transcripts(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yield the transcripts in a folder, and then those of other machines in its folders."""
    host_folders = []
    with os.scandir(folder) as listing:
        for entry in listing:
            if is_transcript(entry.name) and entry.is_file(follow_symlinks=False):
                yield entry
            elif _is_host_folder(entry):
                host_folders.append(entry.path)
    for path in host_folders:
        try:
            yield from iter_transcripts(path)
        except FileNotFoundError:  # removed meanwhile
            pass


def list_host_folders(folder: str) -> list[str]:
    """Return the paths of the folders with transcripts of other machines. A folder that cannot be listed has none."""
    try:
        with os.scandir(folder) as listing:
            return sorted(entry.path for entry in listing if _is_host_folder(entry))
    except OSError:
        return []


def _is_host_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False) and is_host_name(entry.name)


def host_of_file(file: str) -> str:
    """Return whose a transcript is by its name below the folder: NAME is this machine's, HOST/NAME that of another."""
    return file.rpartition("/")[0]


def relative_name(path: str) -> str:
    """Return the name of a transcript below the folder of transcripts, from its path: NAME or HOST/NAME."""
    folder, name = os.path.split(path)
    above, host = os.path.split(folder)
    is_hosts = is_host_name(host) and os.path.basename(above) in ("", CITED_FOLDER[:-1])
    return f"{host}/{name}" if is_hosts else name


def cite_transcript(path: str) -> str:
    """Return the citation of a transcript, from its path or its name below the folder."""
    return CITED_FOLDER + relative_name(path)


def is_transcript_citation(cited: str) -> bool:
    """Return whether a citation names a transcript. Notes are Markdown, so the ending is enough to tell."""
    return cited.startswith(CITED_FOLDER) and cited.endswith(TRANSCRIPT_ENDING)


def find_cited_path(folder: str, citation: str) -> str:
    """Return the path of a cited transcript. Does not check that it stays in the folder: `locate_transcript` does.

    What one machine cites as its own is in another one's folder of that machine, so a transcript that is not where the
    citation says is looked for by its name.
    """
    path = os.path.join(folder, citation.removeprefix(CITED_FOLDER))
    if os.path.lexists(path):
        return path
    name = os.path.basename(path)
    candidates = (os.path.join(place, name) for place in (folder, *list_host_folders(folder)))
    return next(filter(os.path.lexists, candidates), path)
