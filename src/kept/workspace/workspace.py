"""A workspace and its rules: files of a system prompt, paths a caller may name, names that are indexed, daily logs.

Everything that a tool writes may have been suggested by others: by a note, a web page, a message in a group.
So a tool must not write what a model later reads as instructions. Tools write MEMORY.md, which is shown as data, and
notes below memory/. All other files belong to the person, who changes them with an editor or `kept add --to`.

Every path from outside passes through `Workspace.locate` and is then opened through `OpenWorkspace`, which follows no
link. Discovery (`scan.py`) and writing (`notes.py`) use the same rules: `is_visible`, `is_note_name` and
`find_name_fault`.

The log of a day is memory/2026-11-16.md, and memory/2026-11-16-2.md after the first is full.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from dataclasses import field
from functools import cache

from kept.durable import make_private_folder
from kept.errors import PathRefused, WorkspaceError, WorkspaceMissing
from kept.limits import is_utf8
from kept.values import frozen

# files of a prompt

INSTRUCTING = ("SOUL.md", "AGENTS.md")
"""Shown verbatim: the person's own instructions."""
LONG_TERM = ("MEMORY.md", "memory.md")
INFORMING = ("USER.md", *LONG_TERM)
"""Shown as data."""
MEMORY_FOLDER = "memory"

_OTHERS = (
    *("IDENTITY.md", "TOOLS.md", "HEARTBEAT.md", "BOOTSTRAP.md"),
    *("AGENTS.override.md", "CLAUDE.md", "CLAUDE.local.md", "GEMINI.md"),
)
"""Instructions for other agents that work in the same folder."""
PERSONS_OWN = (*INSTRUCTING, "USER.md", *_OTHERS)


def is_persons_own(path: str) -> bool:
    """Return whether a file belongs to the person, being part of a system prompt, in any folder and spelling."""
    return _fold(path.replace("\\", "/").rpartition("/")[2]) in _folded()


def require_tool_may_write(root: str, absolute: str, shown: str) -> None:
    """Raise PathRefused unless a tool may write the note at ``absolute`` in the workspace ``root``."""
    relative = os.path.relpath(absolute, root).replace(os.sep, "/")
    if is_persons_own(relative) or _is_linked_to_persons_own(root, absolute):
        raise refusal(shown)
    if relative not in LONG_TERM and not relative.startswith(f"{MEMORY_FOLDER}/"):
        raise PathRefused(f"{shown}: tools write only MEMORY.md and notes below memory/.")


def refusal(shown: str) -> PathRefused:
    return PathRefused(
        f"{shown}: tools cannot write files that are part of a system prompt; write to 'memory' (MEMORY.md) or to a "
        "daily note instead, or ask the person to change it.",
        hint="",
    )


def _is_linked_to_persons_own(root: str, absolute: str) -> bool:
    """Return whether a path is another name of such a file: by a link, or on a file system that ignores case."""
    target = _identity(absolute)
    return target is not None and any(target == _identity(os.path.join(root, name)) for name in PERSONS_OWN)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        state = os.stat(path)
    except (OSError, ValueError):
        return None
    return state.st_dev, state.st_ino


@cache
def _folded() -> frozenset[str]:
    return frozenset(map(_fold, PERSONS_OWN))


def _fold(name: str) -> str:
    """Return a name as the most lenient file system compares it.

    Case, width, invisible characters, trailing dots and spaces, and the name of an NTFS stream are dropped.
    """
    import unicodedata

    plain = unicodedata.normalize("NFKC", name.partition(":")[0]).casefold()
    visible = (char for char in plain if unicodedata.category(char) not in ("Cc", "Cf"))
    return "".join(visible).strip(" .")


# names and paths

ROOT_NOTES = (*LONG_TERM, "USER.md", *INSTRUCTING)
MAX_PATH_BYTES = 4095
"""Limit of Linux for a path. A longer one could be opened part by part, but not by other programs."""
MAX_NAME_BYTES = 255
_SURELY_SHORT = MAX_PATH_BYTES // 4
"""A character has at most four bytes, so a path of this many characters is within the limit."""
_SHOWN_CHARS = 300
_CONTROL = r"[\x00-\x1f\x7f-\x9f\u2028\u2029]"
_LONGEST_TITLE = 200


def is_markdown(name: str) -> bool:
    return name.lower().endswith(".md")


def is_visible(name: str) -> bool:
    """Return whether discovery looks at a file or folder of this name."""
    return not name.startswith(".")


def may_be_title(name: str) -> bool:
    """Return whether a name is not the path of a note, and may be its title or its day (2026/11/12) instead."""
    is_path = is_markdown(name) or name.startswith((".", "~")) or ".." in name
    is_path = is_path or ("/" in name and not name[0].isdigit())
    return not is_path and len(name) <= _LONGEST_TITLE and bool(name.strip()) and name.isprintable()


def is_note_name(name: str) -> bool:
    return is_visible(name) and is_markdown(name)


def find_name_fault(absolute: str, cited: str) -> str | None:
    """Return the reason why the name of a note prevents indexing it, or None."""
    if not is_utf8(cited):
        return "its name is not valid UTF-8"
    if is_too_long(absolute):
        return f"its path has more than {MAX_PATH_BYTES:,} bytes"
    return None


def is_too_long(absolute: str) -> bool:
    return len(absolute) > _SURELY_SHORT and len(os.fsencode(absolute)) > MAX_PATH_BYTES


def has_control_characters(path: str) -> bool:
    # Most paths are printable, which is quicker to tell than to compile the pattern.
    return not path.isprintable() and re.search(_CONTROL, path) is not None


def is_indexed_name(relative: str) -> bool:
    """Return whether discovery finds a note of this name, relative to the workspace."""
    if relative in ROOT_NOTES:
        return True
    folder, _, rest = relative.partition("/")
    return folder == MEMORY_FOLDER and _is_discovered_below(rest) and is_utf8(relative)


def _is_discovered_below(relative: str) -> bool:
    """Return whether discovery finds a note of this name, relative to a folder that it walks."""
    *folders, name = relative.split("/")
    return is_note_name(name) and all(map(is_visible, folders))


@frozen
class Workspace:
    """A folder of notes, and the extra files and folders that count as part of it."""

    root: str
    extra_paths: tuple[str, ...] = field(default=())

    @classmethod
    def at(cls, root: str, extra_paths: tuple[str, ...] = ()) -> Workspace:
        """Return the workspace of a folder. Relative extra paths are relative to it."""
        root = os.path.abspath(root)
        extras = (os.path.abspath(os.path.join(root, os.path.expanduser(extra))) for extra in extra_paths)
        return cls(root, tuple(dict.fromkeys(extras)))

    def require(self) -> None:
        if not os.path.isdir(self.root):
            raise WorkspaceMissing(f"There is no workspace at {self.root}.")

    def make(self) -> None:
        """Create the folder, and memory/ in it, unless they exist."""
        try:
            make_private_folder(os.path.join(self.root, MEMORY_FOLDER))
        except OSError as exc:
            raise WorkspaceError(
                f"{self.root}: cannot create a workspace there ({exc.strerror}).",
                hint="Name another place with --workspace.",
            ) from exc

    def cite(self, absolute: str) -> str:
        """Return the name a file is cited by: relative inside the workspace, absolute outside it."""
        if absolute.startswith(self.root + os.sep):
            return absolute[len(self.root) + 1 :].replace(os.sep, "/")
        return absolute

    def is_indexed(self, absolute: str) -> bool:
        """Return whether discovery finds a note at this path."""
        cited = self.cite(absolute)
        if find_name_fault(absolute, cited) is not None:
            return False
        if is_indexed_name(cited) or (absolute in self.extra_paths and is_markdown(absolute)):
            return True
        below = (absolute[len(extra) + 1 :] for extra in self.extra_paths if absolute.startswith(extra + os.sep))
        return any(map(_is_discovered_below, below))

    def locate(self, path: str) -> str:
        """Return the absolute path of a note that a caller named.

        Raise PathRefused for anything but Markdown, for '..', for a path outside the workspace and its extra paths,
        and for a name that is too long. `OpenWorkspace` checks for missing notes and links.
        """
        if not path or "\0" in path:
            raise PathRefused("That is not a path.")
        shown = show_path(path)
        parts = path.replace("\\", "/").split("/")
        if ".." in parts:
            raise PathRefused(f"{shown}: '..' is not allowed.")
        if not is_markdown(path):
            raise PathRefused(f"{shown}: only Markdown notes (.md) can be read or written.")
        absolute = os.path.normpath(os.path.join(self.root, path))
        if self.base_of(absolute) is None:
            raise PathRefused(f"{shown}: outside the workspace.")
        try:
            encoded = os.fsencode(absolute)
        except UnicodeEncodeError:
            raise PathRefused(f"{shown}: the name is not valid UTF-8.") from None
        if len(encoded) > MAX_PATH_BYTES or any(len(part) > MAX_NAME_BYTES for part in encoded.split(b"/")):
            raise PathRefused(f"{shown}: the name is too long.")
        return absolute

    def base_of(self, absolute: str) -> str | None:
        """Return the workspace or the extra path that a file is in, or None."""
        for base in (self.root, *self.extra_paths):
            if absolute == base or absolute.startswith(base + os.sep):
                return base
        return None


def show_path(path: str) -> str:
    """Return a path for a message: on one line, without characters that a terminal or JSON cannot take."""
    shown = path if path.isprintable() else ascii(path)[1:-1]
    return shown if len(shown) <= _SHOWN_CHARS else f"{shown[:_SHOWN_CHARS]}…"


# the log of a day

DAILY_NOTE = re.compile(r"(?:^|/)(\d{4}-\d{2}-\d{2})(?:-([2-9]|[1-9]\d{1,2}))?\.md$", re.IGNORECASE)
"""Groups: the day, and the number of the part, without one for the first."""
_MAX_PARTS = 999


def daily_name(day: dt.date, part: int = 1) -> str:
    return f"{MEMORY_FOLDER}/{day:%Y-%m-%d}{'' if part == 1 else f'-{part}'}.md"


def daily_parts(workspace: Workspace, day: dt.date) -> list[str]:
    """Return the existing files of a day's log, in the order they were written."""
    parts: list[str] = []
    for part in range(1, _MAX_PARTS + 1):
        name = daily_name(day, part)
        if not os.path.lexists(os.path.join(workspace.root, name)):
            break
        parts.append(name)
    return parts


def find_next_part(workspace: Workspace, path: str) -> str | None:
    """Return the part of a daily log that follows ``path``, or None."""
    name = DAILY_NOTE.search(path)
    if name is None:
        return None
    part = int(name[2] or 1) + 1
    after = f"{path[: name.start(1)]}{name[1]}-{part}.md"
    return after if os.path.isfile(os.path.join(workspace.root, after)) else None
