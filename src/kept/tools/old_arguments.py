"""Names of arguments in OpenClaw's documents, which models may have learned: read as those that Kept's tools take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NAMES: dict[str, dict[str, str]] = {
    "memory_search": {"topK": "maxResults", "limit": "maxResults", "sessionKey": "session"},
    "memory_get": {"file": "path", "relPath": "path", "startLine": "from"},
}
_DAILY = "daily"
"""File that stood for the log of a day."""


def translate_arguments(tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with their present names. A name that is given twice keeps the present one."""
    names = _NAMES.get(tool, {})
    present = {name: value for name, value in arguments.items() if name not in names and name != "endLine"}
    for old, name in names.items():
        if old in arguments:
            present.setdefault(name, arguments[old])
    if "endLine" in arguments and tool != "memory_get":
        present["endLine"] = arguments["endLine"]
    elif isinstance(arguments.get("endLine"), int) and "lines" not in present:
        first = present.get("from")
        present["lines"] = arguments["endLine"] - (first if isinstance(first, int) else 1) + 1
    if tool == "memory_get" and present.get("path") == _DAILY:
        del present["path"]
        present.setdefault("date", "today")
    elif tool == "memory_get" and "file" in arguments and present.get("date") is not None:
        del present["date"]  # a date belonged to the daily file only
    return present
