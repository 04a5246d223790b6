"""Visibility: projects and private folders by path, and the viewer whose notes and conversations a search reads."""

from __future__ import annotations

from kept.base.values import frozen

PROJECTS_FOLDER = "memory/projects"
"""Folder in the workspace with the notes of projects, each in a folder of its own."""


PROJECT_MARKER = "PROJECT.md"
"""Note in the folder of a project that names its repository."""


def project_of_path(path: str) -> str | None:
    """Return the project that a note belongs to by its path in the workspace, or None for a shared one."""
    if path[: len(PROJECTS_FOLDER) + 1].lower() != f"{PROJECTS_FOLDER}/":  # some file systems ignore case
        return None
    name, slash, _ = path[len(PROJECTS_FOLDER) + 1 :].partition("/")
    return name if slash else None


PRIVATE_FOLDER = "memory/private"
"""Folder in the workspace with the notes of single people and groups, each in a folder of its own."""


def private_folder_of(path: str) -> str | None:
    """Return the folder in memory/private that a note is in. Empty for a note directly there; None for a shared one."""
    if path[: len(PRIVATE_FOLDER) + 1].lower() != f"{PRIVATE_FOLDER}/":  # some file systems ignore case
        return None
    name, slash, _ = path[len(PRIVATE_FOLDER) + 1 :].lower().partition("/")
    return name if slash else ""


@frozen
class ProjectScope:
    """A project that a search is made in: its notes are preferred, and those of other projects are left out."""

    name: str
    """Empty outside all projects: then only what is shared is searched."""
    own_transcripts: frozenset[str] = frozenset()
    """Citations of the conversations in the project."""
    hidden_transcripts: frozenset[str] = frozenset()
    """Citations of the conversations in other projects."""


@frozen
class KeyPattern:
    """Keys of conversations on one channel. Any account follows ``start``; then comes ``end``, or a text that begins
    with ``inside``. With neither, all conversations on the channel fit."""

    start: str
    """Ends with ':'."""
    end: str = ""
    inside: str = ""

    def fits(self, key: str) -> bool:
        if not key.startswith(self.start):
            return False
        _, colon, rest = key[len(self.start) :].partition(":")
        rest = colon + rest
        return rest == self.end if self.end else rest.startswith(self.inside)


@frozen
class Viewer:
    """A person or a group that asks. Private conversations and notes of others are left out."""

    name: str
    folder: str
    """Folder in memory/private that its notes are written to."""
    folders: frozenset[str] = frozenset()
    """Folders in memory/private that it reads, with its own. "" are the notes directly there, which are the owner's."""
    keys: tuple[KeyPattern, ...] = ()
    """Conversations that it reads."""
    is_owner: bool = False
    """True if the conversations of the home itself are among them, such as those in the terminal."""
    writes_shared: bool = False
    """True if its notes are the shared ones."""

    def sees_note(self, path: str) -> bool:
        """Return whether a note is shared, or this viewer's."""
        folder = private_folder_of(path)
        return folder is None or folder in self.folders

    def sees_key(self, key: str | None) -> bool:
        """Return whether a conversation is this viewer's. One without a key is nobody's."""
        return bool(key) and any(pattern.fits(key or "") for pattern in self.keys)
