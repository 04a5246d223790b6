"""A workspace and its rules: the paths a caller may name, and the names that are indexed. Names only, not the disk.

Every path from outside passes through `Workspace.locate` and is then opened through `OpenWorkspace`, which follows no
link. Discovery (`scan.py`) and writing (`notes.py`) use the same rules: `is_visible`, `is_note_name` and
`find_name_fault`.
"""

from __future__ import annotations

import os
import re
from dataclasses import field

from kept.durable import make_private_folder
from kept.errors import PathRefused, WorkspaceError, WorkspaceMissing
from kept.limits import is_utf8
from kept.values import frozen
from kept.workspace.prompt_files import INSTRUCTING, LONG_TERM
from kept.workspace.prompt_files import MEMORY_FOLDER as MEMORY_FOLDER

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
        return self._is_covered(absolute, cited) and find_name_fault(absolute, cited) is None

    def _is_covered(self, absolute: str, cited: str) -> bool:
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
        _refuse_long(absolute, shown)
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


def _refuse_long(absolute: str, shown: str) -> None:
    try:
        encoded = os.fsencode(absolute)
    except UnicodeEncodeError:
        raise PathRefused(f"{shown}: the name is not valid UTF-8.") from None
    if len(encoded) > MAX_PATH_BYTES or any(len(part) > MAX_NAME_BYTES for part in encoded.split(b"/")):
        raise PathRefused(f"{shown}: the name is too long.")
