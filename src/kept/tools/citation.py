"""A citation as a way to name lines: what a search gives out can be handed back as it is."""

from __future__ import annotations

import re

_CITED = re.compile(r"^(?P<path>.+\.(?:md|jsonl))#L(?P<first>\d{1,9})(?:-L?(?P<last>\d{1,9}))?$", re.IGNORECASE)


def from_citation(path: str, start: int | None, lines: int | None) -> tuple[str, int | None, int | None]:
    """Path, first line and number of lines. What was said beside the citation goes before what it says."""
    cited = _CITED.match(path)
    if not cited:
        return path, start, lines
    first = int(cited["first"])
    last = int(cited["last"] or first)
    return cited["path"], start or first, lines or max(1, last - first + 1)
