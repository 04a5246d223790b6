"""Names of the members of an archive: which files belong into one, and which names a restore accepts.

    archive.json                          header, the first member
    config.yaml                           settings, without secrets
    notes/AGENT/memory/ideas.md           the workspace of an agent, or of several that share it
    agents/AGENT/sessions/….jsonl         its conversations and records
    agents/AGENT/sessions/HOST/….jsonl    copies of conversations of another machine
    removed-agents/AGENT/sessions/….jsonl
    manifest.jsonl                        records of all files, the last member

The same rules decide what is packed and what is accepted, so an archive cannot place a file that an export would not
have packed: no index, lock or token, no hook of git, no plugin of an editor.
"""

from __future__ import annotations

import re

from kept.config.agents import is_agent_id
from kept.host_names import is_host_name
from kept.limits import is_utf8
from kept.sessions.attachments import ATTACHMENTS, STORED_NAME
from kept.values import frozen
from kept.workspace.workspace import MAX_NAME_BYTES, MAX_PATH_BYTES

HEADER = "archive.json"
MANIFEST = "manifest.jsonl"
SETTINGS = "config.yaml"
NOTES, AGENTS, REMOVED = "notes", "agents", "removed-agents"

KEPT_FOLDER = ".kept"
"""Folder in a workspace with the history of its notes."""
_HIDDEN_FILES = (".kept.yaml", ".keptignore")
_RECORD_ENDINGS = (".jsonl", ".json", ".md", ".damaged", ".torn")
_DELETED = ".jsonl.deleted-"
_DERIVED = re.compile(r"\.sqlite|\.lock$|\.tmp$|^qmd-|^watcher-", re.IGNORECASE)
_SECRET = re.compile(r"token|secret|credential|password|\.env\b|^env$|api.?key", re.IGNORECASE)
_UNFINISHED = ("forgetting.json",)
"""Journal of a forget that was interrupted: it has the words in clear, and belongs to this machine."""
_MAX_RECORD_DEPTH = 4
_NO_NAME = ("", ".", "..")


@frozen
class MemberPath:
    """Place of a member: below a workspace, below the folder of an agent, or the settings."""

    root: str
    """NOTES, AGENTS, REMOVED or SETTINGS."""
    agent: str
    """Name of the agent, or empty for the settings."""
    parts: tuple[str, ...]


def parse_member_name(name: str) -> MemberPath | str:
    """Return where a member belongs, or the reason why its name is refused."""
    fault = _find_fault(name)
    if fault:
        return fault
    if name == SETTINGS:
        return MemberPath(SETTINGS, "", (name,))
    root, _, rest = name.partition("/")
    agent, _, below = rest.partition("/")
    parts = tuple(below.split("/"))
    if root not in (NOTES, AGENTS, REMOVED) or not is_agent_id(agent) or not below:
        return "is not a name that 'kept export' gives"
    is_right = is_note_member(parts) if root == NOTES else is_agent_record(parts)
    return MemberPath(root, agent, parts) if is_right else "is not a file that 'kept export' packs"


def _find_fault(name: str) -> str | None:
    if name.startswith("/"):
        return "is an absolute name"
    parts = name.split("/")
    if any(part in _NO_NAME for part in parts):
        return "leads out of the archive" if ".." in parts else "is not a plain name"
    if not is_utf8(name) or "\0" in name:
        return "is not valid UTF-8"
    if not is_short(name):
        return "is too long"
    return None


def is_short(name: str) -> bool:
    encoded = name.encode()
    return len(encoded) <= MAX_PATH_BYTES and all(len(part) <= MAX_NAME_BYTES for part in encoded.split(b"/"))


def is_note_member(parts: tuple[str, ...]) -> bool:
    """Return whether a file of a workspace belongs into an archive, by its path.

    Hidden files are other programs' own, and some of them are run as code: only Kept's are packed.
    """
    if parts[0] == KEPT_FOLDER and len(parts) > 1:
        return all(not part.startswith(".") and not _DERIVED.search(part) for part in parts[1:])
    if len(parts) == 1 and parts[0] == _HIDDEN_FILES[0]:
        return True
    *folders, name = parts
    return not any(part.startswith(".") for part in folders) and (not name.startswith(".") or name == _HIDDEN_FILES[1])


def is_log(parts: tuple[str, ...], *, root: str) -> bool:
    """Return whether a file only ever grows: a record of an agent, or the history of a workspace."""
    if root == NOTES:
        return parts[0] == KEPT_FOLDER and parts[-1].endswith((".jsonl", ".pack"))
    return parts[-1].endswith(".jsonl")


def is_agent_record(parts: tuple[str, ...]) -> bool:
    """Return whether a file in the folder of an agent belongs into an archive: it is neither derived nor secret."""
    name = parts[-1]
    if parts[0] == "sessions" and len(parts) == 3 and is_host_name(parts[1]):
        parts = (parts[0], name)  # any name can be that of a machine
    if len(parts) > _MAX_RECORD_DEPTH or any(part.startswith(".") or _DERIVED.search(part) for part in parts):
        return False
    if parts[0] == ATTACHMENTS:
        return len(parts) == 2 and STORED_NAME.fullmatch(name) is not None
    if parts[0] in _UNFINISHED:
        return False
    is_record = name.endswith(_RECORD_ENDINGS) or _DELETED in name
    return is_record and (parts[0] == "sessions" or not _SECRET.search(name))
