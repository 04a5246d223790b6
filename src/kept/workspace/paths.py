"""Which paths a caller may name. Every path that comes from outside passes through `Workspace.locate`."""

from __future__ import annotations

import os
import stat
from dataclasses import field

from kept.durable import make_private_folder
from kept.errors import NoteNotFound, PathRefused, WorkspaceError, WorkspaceMissing
from kept.values import frozen

ROOT_NOTES = ("MEMORY.md", "memory.md", "USER.md", "SOUL.md", "AGENTS.md")
MEMORY_FOLDER = "memory"


def is_markdown(name: str) -> bool:
    return name.lower().endswith(".md")


def is_indexed_name(relative: str) -> bool:
    """Whether a note of this name, relative to the workspace, is one that discovery finds."""
    if relative in ROOT_NOTES:
        return True
    folder, _, rest = relative.partition("/")
    return folder == MEMORY_FOLDER and bool(rest) and not _hidden(rest)


def _hidden(relative: str) -> bool:
    return any(part.startswith(".") for part in relative.split("/"))


@frozen
class Workspace:
    """A folder of notes, and the extra files and folders that count as part of it."""

    root: str
    extra_paths: tuple[str, ...] = field(default=())

    @classmethod
    def at(cls, root: str, extra_paths: tuple[str, ...] = ()) -> Workspace:
        """A relative extra path is relative to the workspace."""
        root = os.path.abspath(root)
        extras = (os.path.abspath(os.path.join(root, os.path.expanduser(extra))) for extra in extra_paths)
        return cls(root, tuple(dict.fromkeys(extras)))

    def require(self) -> None:
        if not os.path.isdir(self.root):
            raise WorkspaceMissing(f"There is no workspace at {self.root}.")

    def make(self) -> None:
        """The folder, where it is missing, and the one for the notes in it."""
        try:
            make_private_folder(os.path.join(self.root, MEMORY_FOLDER))
        except OSError as exc:
            raise WorkspaceError(
                f"{self.root}: a workspace cannot be made there ({exc.strerror}).",
                hint="Name another place with --workspace.",
            ) from exc

    def cite(self, absolute: str) -> str:
        """The name a file is cited by: relative inside the workspace, absolute outside it."""
        if absolute.startswith(self.root + os.sep):
            return absolute[len(self.root) + 1 :].replace(os.sep, "/")
        return absolute

    def is_indexed(self, absolute: str) -> bool:
        """Whether a note at this place is one that discovery finds."""
        if is_indexed_name(self.cite(absolute)) or absolute in self.extra_paths:
            return True
        below = (absolute[len(extra) + 1 :] for extra in self.extra_paths if absolute.startswith(extra + os.sep))
        return any(not _hidden(rest) for rest in below)

    def locate(self, path: str, *, must_exist: bool = True) -> str:
        """The absolute path of a note that a caller named, or a refusal.

        Refused are: anything but Markdown, '..', a path outside the workspace and its extra paths, a symbolic
        link anywhere below those, and whatever is not a regular file.
        """
        if not path or "\0" in path or len(path) > 4096:
            raise PathRefused("That is not a path.")
        parts = path.replace("\\", "/").split("/")
        if ".." in parts:
            raise PathRefused(f"{path}: '..' is not allowed.")
        if not is_markdown(path):
            raise PathRefused(f"{path}: only Markdown notes (.md) can be read or written.")
        absolute = os.path.normpath(os.path.join(self.root, path))
        base = self._base_of(absolute)
        if base is None:
            raise PathRefused(f"{path}: outside the workspace.")
        if base != self.root and os.path.islink(base):
            raise PathRefused(f"{path}: symbolic links are not followed.")
        exists = _refuse_links(base, absolute, path)
        if must_exist and not exists:
            raise NoteNotFound(f"{path}: there is no such note.")
        return absolute

    def _base_of(self, absolute: str) -> str | None:
        for base in (self.root, *self.extra_paths):
            if absolute == base or absolute.startswith(base + os.sep):
                return base
        return None


def _refuse_links(base: str, absolute: str, shown: str) -> bool:
    """Walks down from the base without ever following a link. Whether the file is there."""
    walked = base
    rest = absolute[len(base) :].strip(os.sep)
    for part in rest.split(os.sep) if rest else [""]:
        walked = os.path.join(walked, part) if part else walked
        try:
            mode = os.lstat(walked).st_mode
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as exc:
            raise PathRefused(f"{shown}: cannot be reached ({exc}).") from exc
        if stat.S_ISLNK(mode):
            raise PathRefused(f"{shown}: symbolic links are not followed.")
    if not stat.S_ISREG(mode):
        raise PathRefused(f"{shown}: not a file.")
    return True
