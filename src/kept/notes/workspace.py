"""A workspace and its rules: files of a system prompt, paths a caller may name, names that are indexed.

Everything that a tool writes may have been suggested by others: by a note, a web page, a message in a group.
So a tool must not write what a model later reads as instructions. Tools write MEMORY.md, which is shown as data, notes
below memory/, and a vault's daily notes. All other files belong to the person, who changes them with an editor or
`kept add --to`.

A note is named by its path in the storage of the workspace; one in an extra path, which belongs to others and is only
read, by its absolute path. Every path from outside passes through `Workspace.locate`, which returns that name.
Discovery (`scan.py`) and writing (`note_writer.py`) use the same rules: `is_visible`, `Workspace.is_note_file`,
and `find_name_fault`. In a vault, `vault.py` adds the patterns of .gitignore and .keptignore.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from kept.base.limits import is_utf8
from kept.base.values import frozen
from kept.base.visibility import PROJECTS_FOLDER, project_of_path
from kept.errors import DocumentNotFound, NoteNotFound, PathRefused, WorkspaceError, WorkspaceMissing, WriteFailed
from kept.storage.contract import MAX_PATH_BYTES, DocumentInfo, Storage
from kept.storage.open import open_extra, open_folder, open_workspace

if TYPE_CHECKING:
    from kept.config import Config
    from kept.config.schema import WorkspaceLayout

# the text of a note, whatever bytes it has: its encoding, its line ends, and what is not valid in it

_BOM = b"\xef\xbb\xbf"
_MARKS = {
    _BOM: "utf-8",
    b"\xff\xfe\0\0": "utf-32-le",  # before UTF-16, which begins the same
    b"\0\0\xfe\xff": "utf-32-be",
    b"\xff\xfe": "utf-16-le",
    b"\xfe\xff": "utf-16-be",
}


@frozen
class NoteText:
    """A note as it was read: its bytes, its text with '\\n' line ends, and a warning if bytes were replaced."""

    path: str
    raw: bytes
    text: str
    size: int
    mtime_ns: int
    ctime_ns: int
    version: str
    """SHA-256 of its bytes."""
    warning: str | None = None


def decode(raw: bytes) -> tuple[str, str | None]:
    """Decode leniently: strip the BOM, normalise line ends, replace invalid bytes. Return the text and a warning.

    The text is UTF-8, or what a BOM at its beginning declares: UTF-16 or UTF-32. Such a BOM is never valid UTF-8.
    """
    body = raw.removeprefix(_BOM)
    warning = None
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as exc:
        codec = encoding_of(raw)[1]
        name = "UTF-8" if codec == "utf-8" else codec[:6].upper()
        text = raw.decode(name, errors="replace").removeprefix("\ufeff")
        if name == "UTF-8" or "\ufffd" in text:
            at = f" at byte {exc.start}" if name == "UTF-8" else ""
            warning = (
                f"not valid {name}{at}; unreadable bytes are shown as �. Save it as UTF-8, or convert it with iconv"
            )
    if "\0" in text:
        text = text.replace("\0", "�")
        warning = warning or "contains NUL bytes, shown as �"
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text, warning


def encoding_of(raw: bytes) -> tuple[bytes, str]:
    """Return the byte order mark of a note, which may be missing, and its encoding."""
    return next(((mark, codec) for mark, codec in _MARKS.items() if raw.startswith(mark)), (b"", "utf-8"))


# files of a prompt

INSTRUCTING = ("AGENTS.md", "SOUL.md", "IDENTITY.md", "TOOLS.md", "HEARTBEAT.md", "BOOTSTRAP.md")
"""Shown verbatim and in this order: the person's own instructions."""
LONG_TERM = ("MEMORY.md", "memory.md")
INFORMING = ("USER.md", *LONG_TERM)
"""Shown as data."""
MEMORY_FOLDER = "memory"

_OTHERS = ("AGENTS.override.md", "CLAUDE.md", "CLAUDE.local.md", "GEMINI.md")
"""Instructions for other agents that work in the same folder."""
PERSONS_OWN = (*INSTRUCTING, "USER.md", *_OTHERS)
_FOLDED = frozenset(map(str.casefold, PERSONS_OWN))


def is_persons_own(path: str) -> bool:
    """Return whether a file belongs to the person, being part of a system prompt, in any folder and spelling."""
    return _fold(path.replace("\\", "/").rpartition("/")[2]) in _FOLDED


def is_instruction(workspace: Workspace, path: str) -> bool:
    """Return whether the note at a path says what agents do, or which repository a project is for, by any name."""
    name = workspace.locate(path)
    return _is_prompt(workspace, name) or _is_project_file(name)


def _is_project_file(name: str) -> bool:
    return bool(project_of_path(name)) and _fold(name.rpartition("/")[2]) == "project.md"


def require_tool_may_write(workspace: Workspace, name: str, shown: str) -> None:
    """Raise PathRefused unless a tool may write a note."""
    if _is_prompt(workspace, name):
        raise refusal(shown)
    if _is_project_file(name):
        raise PathRefused(f"{shown}: tools cannot write the file that says which repository a project is for.", hint="")
    if name in LONG_TERM or name.startswith(f"{MEMORY_FOLDER}/"):
        return
    is_vault = workspace.layout == "vault"
    if is_vault and not os.path.isabs(name):  # a note in the vault's own place for daily notes, by the name of a day
        from kept.notes.daily import get_daily_notes

        daily = get_daily_notes(workspace)
        if daily.find_day(name) is not None and (not daily.folder or name.startswith(f"{daily.folder}/")):
            return
    raise PathRefused(
        f"{shown}: tools write only MEMORY.md{', daily notes' if is_vault else ''} and notes below memory/.",
        hint="Write it to one of those without 'replaces', name this note in it, and tell the user, who can change it.",
    )


def refusal(shown: str) -> PathRefused:
    return PathRefused(
        f"{shown}: tools cannot write files that are part of a system prompt; write to 'memory' (MEMORY.md) or to a "
        "daily note instead, or ask the person to change it.",
        hint="",
    )


def _is_prompt(workspace: Workspace, name: str) -> bool:
    """Return whether a note belongs to the person, by its own name or by another one of the same file: AGENTS.md may be
    a link to MEMORY.md, which Kept would not read, but other agents do."""
    is_same = workspace.storage.documents.is_same
    return is_persons_own(name) or any(is_same(name, own) for own in PERSONS_OWN)


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
_SHOWN_CHARS = 300
_CONTROL = r"[\x00-\x1f\x7f-\x9f\u2028\u2029]"
_LONGEST_TITLE = 200
CANVAS = ".canvas"
"""Ending of Obsidian's canvases, which are notes in a vault."""
IGNORE_FILES = (".gitignore", ".keptignore")
PACKAGES = "node_modules"
"""Folder of other people's packages, with Markdown by the thousand."""
_NOT_WRITTEN = "Name a note of the workspace, or change this one with an editor."


def is_markdown(name: str) -> bool:
    return name.lower().endswith(".md")


def is_visible(name: str) -> bool:
    """Return whether discovery looks at a file or folder of this name."""
    return not name.startswith(".") and name != PACKAGES


def has_projects(workspace: Workspace) -> bool:
    return bool(list_names(workspace.storage, PROJECTS_FOLDER))


def list_names(storage: Storage, folder: str = "") -> dict[str, bool]:
    """Return the names in a folder, each with whether it is a folder. There are none if it cannot be read."""
    listed: dict[str, bool] = {}

    def choose(_: str, names: Mapping[str, bool]) -> tuple[str, ...]:
        listed.update(names)
        return ()

    prefix = f"{folder}/" if folder else ""
    for _ in storage.documents.list(prefix, choose=choose, on_refused=lambda path, exc: None):
        pass
    return listed


def may_be_title(name: str) -> bool:
    """Return whether a name is not the path of a note, and may be its title or its day (2026/11/12) instead."""
    is_path = is_markdown(name) or name.startswith((".", "~")) or ".." in name
    is_path = is_path or ("/" in name and not name[0].isdigit())
    return not is_path and len(name) <= _LONGEST_TITLE and bool(name.strip()) and name.isprintable()


def find_name_fault(name: str) -> str | None:
    """Return the reason why the name of a note prevents indexing it, or None."""
    if not is_utf8(name):
        return "its name is not valid UTF-8"
    if len(os.fsencode(name)) > MAX_PATH_BYTES:
        return f"its path has more than {MAX_PATH_BYTES:,} bytes"
    return None


def find_arrival_fault(name: str) -> str | None:
    """Return why no note comes into a workspace under this name, by whatever way it arrives, or None."""
    if fault := find_name_fault(name):
        return fault
    if name.isprintable():
        return None
    if has_control_characters(name):
        return "its name contains control characters, so it cannot be cited"
    return "its name has invisible characters and reads like that of an instruction" if is_persons_own(name) else None


def has_control_characters(path: str) -> bool:
    # Most paths are printable, which is quicker to tell than to compile the pattern.
    return not path.isprintable() and re.search(_CONTROL, path) is not None


@frozen
class Workspace:
    """Notes in a storage, and the extra files and folders that are searched with them and never written."""

    root: str
    """Its folder, for messages and for other programs."""
    storage: Storage
    extra_paths: tuple[str, ...] = field(default=())
    layout: WorkspaceLayout = "kept"
    endings: tuple[str, ...] = (".md",)
    """Endings of the names of notes, in lower case."""
    agent_id: str = "main"
    """For hints only."""

    @classmethod
    def at(cls, root: str, *, layout: WorkspaceLayout = "kept") -> Workspace:
        """Return the workspace of a folder, whoever's it is."""
        root = os.path.abspath(root)
        return cls(root, open_folder(root), (), layout, (".md", CANVAS) if layout == "vault" else (".md",))

    @classmethod
    def of(cls, config: Config) -> Workspace:
        """Return the workspace that the settings describe. Relative extra paths are relative to it."""
        settings, layout = config.agent.memory_search, config.agent.workspace_layout
        root = os.path.abspath(config.workspace)
        extras = (os.path.abspath(os.path.join(root, os.path.expanduser(extra))) for extra in settings.extra_paths)
        endings = (".md", *settings.extensions, *((CANVAS,) if layout == "vault" else ()))
        return cls(root, open_workspace(config), tuple(dict.fromkeys(extras)), layout, endings, config.agent_id)

    def require(self) -> None:
        if not self.storage.exists():
            raise WorkspaceMissing(
                f"There is no workspace at {self.root}.",
                hint=f"Create it with '{self.init_command}', or name another with --workspace.",
            )

    def why_read_only(self) -> str:
        """Return why no note can be written, or nothing. memory/ may be writable in a folder that is not."""
        if not self.storage.exists() or any(map(self.storage.is_writable, ("", MEMORY_FOLDER))):
            return ""
        return f"{self.root} cannot be written to: notes are searched, and no facts are noted."

    @property
    def init_command(self) -> str:
        """Command that creates the workspace of this agent."""
        return "kept init" if self.agent_id == "main" else f"kept --agent {self.agent_id} init"

    def make(self) -> None:
        """Create the place for notes, unless it exists; and memory/ in it, unless it is a vault."""
        try:
            self.storage.make("" if self.layout == "vault" else MEMORY_FOLDER)
        except WriteFailed as exc:
            hint = "Name another place with --workspace."
            raise WorkspaceError(f"{self.root}: cannot create a workspace there.", hint=hint) from exc

    # names

    def cite(self, absolute: str) -> str:
        """Return the name of a file of this machine: its path in the workspace, or an absolute one outside it."""
        if absolute.startswith(self.root + os.sep):
            return absolute[len(self.root) + 1 :].replace(os.sep, "/")
        return absolute

    def locate(self, path: str) -> str:
        """Return the name of a note that a caller named by any path.

        Raise PathRefused for anything but notes, for '..', for a path outside the workspace and its extra paths,
        and for a name that is too long. The storage checks for missing notes and links.
        """
        if not path or "\0" in path:
            raise PathRefused("That is not a path.")
        shown = show_path(path)
        if ".." in path.replace("\\", "/").split("/"):
            raise PathRefused(f"{shown}: '..' is not allowed.")
        if not self.is_note_file(path):
            endings = ", ".join(self.endings)
            raise PathRefused(f"{shown}: only Markdown notes ({endings}) can be read or written.")
        name = self.cite(os.path.normpath(os.path.join(self.root, path)))
        if os.path.isabs(name) and self._find_extra(name) is None:
            raise PathRefused(f"{shown}: outside the workspace.")
        if fault := find_name_fault(name):
            raise PathRefused(f"{shown}: {fault}.")
        return name

    def is_note_file(self, name: str) -> bool:
        """Return whether a file is a note by the end of its name."""
        return name.lower().endswith(self.endings)

    def is_indexed(self, name: str) -> bool:
        """Return whether discovery finds a note of this name."""
        return find_name_fault(name) is None and (self.is_own_note(name) or self._is_found_in_extra(name))

    def is_own_note(self, name: str) -> bool:
        """Return whether discovery finds a note of this name in the workspace itself, not only in an extra path."""
        if os.path.isabs(name) or not self._is_found_below(name):
            return False
        if self.layout == "kept":
            return name in ROOT_NOTES or name.startswith(f"{MEMORY_FOLDER}/")
        from kept.notes.vault import is_ignored

        return not is_ignored(self, name)

    def may_write(self, name: str) -> bool:
        """Return whether a note may be written, as far as its place and kind tell."""
        return self.is_own_note(name) and not name.lower().endswith(CANVAS)

    def require_own(self, name: str, shown: str) -> None:
        """Raise PathRefused if a note is a canvas, or in an extra path only: those are searched, never written."""
        if name.lower().endswith(CANVAS):
            raise PathRefused(f"{shown}: a canvas is searched, never written.", hint="Change it in Obsidian.")
        if not self.is_own_note(name) and self._is_found_in_extra(name):
            raise PathRefused(f"{shown}: extra paths are searched, never written.", hint=_NOT_WRITTEN)

    def _find_extra(self, name: str) -> str | None:
        """Return the extra path that a file is in, or None."""
        absolute = os.path.join(self.root, name)
        return next((path for path in self.extra_paths if absolute == path or absolute.startswith(path + os.sep)), None)

    def _is_found_in_extra(self, name: str) -> bool:
        absolute = os.path.join(self.root, name)
        if absolute in self.extra_paths:
            return self.is_note_file(absolute)
        folders = (path + os.sep for path in self.extra_paths)
        return any(self._is_found_below(absolute[len(path) :]) for path in folders if absolute.startswith(path))

    def _is_found_below(self, relative: str) -> bool:
        """Return whether discovery finds a note of this name, relative to a folder that it walks."""
        return all(map(is_visible, relative.split("/"))) and self.is_note_file(relative)

    # reading

    def find(self, name: str) -> DocumentInfo | None:
        """Return the state of a note, or None if there is none. Raise PathRefused for a link, or what is no file."""
        storage, path = self._open_outside(name) if os.path.isabs(name) else (self.storage, name)
        return storage.documents.find(path)

    def read(self, name: str, *, max_bytes: int) -> NoteText:
        """Return a note of any encoding. Raise NoteNotFound, NoteTooLarge, or PathRefused."""
        storage, path = self._open_outside(name) if os.path.isabs(name) else (self.storage, name)
        try:
            document = storage.documents.read(path, max_bytes=max_bytes)
        except DocumentNotFound:
            raise NoteNotFound(f"{show_path(name)}: there is no such note.") from None
        text, warning = decode(document.data)
        info = document.info  # size and times are those of the bytes that were read
        times = info.modified_ns, info.changed_ns
        return NoteText(name, document.data, text, info.size, *times, document.version, warning)

    def _open_outside(self, name: str) -> tuple[Storage, str]:
        """Return the storage that has a note of an extra path, and its path in there."""
        extra = self._find_extra(name)
        if extra is None:
            raise PathRefused(f"{show_path(name)}: outside the workspace.")
        storage, base = self.open_extra(extra)
        return storage, name[len(base) :].lstrip(os.sep)

    def open_extra(self, extra: str) -> tuple[Storage, str]:
        """Return the storage that has an extra path, and the folder of that storage."""
        if extra.startswith(self.root + os.sep):
            return self.storage, self.root
        return open_extra(extra), os.path.dirname(extra)


def show_path(path: str) -> str:
    """Return a path for a message: on one line, without characters that a terminal or JSON cannot take."""
    shown = path if path.isprintable() else ascii(path)[1:-1]
    return shown if len(shown) <= _SHOWN_CHARS else f"{shown[:_SHOWN_CHARS]}…"
