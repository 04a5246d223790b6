"""Names of transcripts: of the file, in a citation, and in a listing of their folder.

20260314T150926Z_1f0e….jsonl                 file: time of creation in UTC, id of the session
sessions/20260314T150926Z_1f0e….jsonl        citation: as a search and a receipt name it
"""

from __future__ import annotations

import datetime as dt
import os
import re

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
    """Return whether a log of this name is a transcript. A deleted one has another ending, a hidden file is none."""
    return name.endswith(TRANSCRIPT_ENDING) and not name.startswith(".") and "/" not in name


def cite_transcript(path: str) -> str:
    """Return the citation of a transcript, from its path or its name."""
    return CITED_FOLDER + os.path.basename(path)


def is_transcript_citation(cited: str) -> bool:
    """Return whether a citation names a transcript. Notes are Markdown, so the ending is enough to tell."""
    return cited.startswith(CITED_FOLDER) and cited.endswith(TRANSCRIPT_ENDING)
