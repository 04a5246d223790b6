"""Paths of an agent's files below the home folder."""

from __future__ import annotations

import os

from kept.base.digest import digest_bytes
from kept.base.values import frozen

CLAIM = "workspace"
"""File of an agent that names the workspace its conversations belong to, in a home without a workspace of its own."""


@frozen
class AgentPaths:
    """Paths of one agent. ``folder`` is HOME/agents/NAME."""

    folder: str
    apart_for: str = ""
    """Workspace whose conversations are kept apart from those of the agent's own one."""

    @property
    def conversations(self) -> str:
        """Folder of the conversations and the records about them."""
        if not self.apart_for:
            return self.folder
        return os.path.join(self.folder, "workspaces", workspace_key(os.path.realpath(self.apart_for)))

    @property
    def sessions(self) -> str:
        """Folder of the transcripts."""
        return os.path.join(self.conversations, "sessions")

    @property
    def transcripts(self) -> str:
        """Beginning of the names of transcripts in the storage of the agent."""
        return os.path.relpath(self.sessions, self.folder).replace(os.sep, "/") + "/"

    @property
    def attachments(self) -> str:
        """Folder of the files that came with messages."""
        return os.path.join(self.folder, "attachments")

    @property
    def catalogue(self) -> str:
        return os.path.join(self.conversations, "sessions.sqlite")

    @property
    def forgotten_hashes(self) -> str:
        """Salted hashes of what was forgotten, so that an import leaves it out."""
        return os.path.join(self.folder, "forgotten-hashes.jsonl")

    @property
    def forgetting(self) -> str:
        """Journal of a forget that is under way. It exists only until the forget is complete."""
        return os.path.join(self.folder, "forgetting.json")

    @property
    def index(self) -> str:
        """Path of the index of the first workspace that the agent was used with."""
        return os.path.join(self.folder, "index.sqlite")

    def index_of(self, workspace: str) -> str:
        """Return the path of the index of any further workspace."""
        return os.path.join(self.folder, f"index-{workspace_key(workspace)}.sqlite")

    def qmd(self, workspace: str) -> str:
        return os.path.join(self.folder, f"qmd-{workspace_key(workspace)}")

    def watcher_lock(self, workspace: str) -> str:
        return os.path.join(self.folder, f"watcher-{workspace_key(workspace)}.lock")


def workspace_key(workspace: str, *, digits: int = 12) -> str:
    """Return a short hash of a workspace's path, for file names."""
    return digest_bytes(os.fsencode(workspace))[:digits]
