"""Survey of a workspace folder for `kept init` and `kept doctor`: its notes, and which files are not indexed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Literal

from kept.limits import utf8_safe
from kept.values import frozen
from kept.workspace.ignored import IgnoreRules
from kept.workspace.opened import OpenWorkspace
from kept.workspace.scan import scan_workspace
from kept.workspace.vault import OBSIDIAN_FOLDER, find_program
from kept.workspace.workspace import IGNORE_FILES, Workspace, is_persons_own, is_skipped_folder, is_visible

Reason = Literal["hidden", "skipped", "ignored", "link", "ending", "layout"]
MARKDOWN_ENDINGS = (".md", ".markdown")
_TEXT_ENDINGS = (*MARKDOWN_ENDINGS, ".mdx", ".txt", ".org", ".rst", ".adoc")
_MAX_ENTRIES = 200_000


@frozen
class LeftOut:
    """A file or folder that is not indexed. A folder's path ends in '/', and its contents are not listed."""

    path: str
    reason: Reason


@frozen
class Survey:
    notes: int
    folders: int
    """Folders that have notes."""
    left_out: tuple[LeftOut, ...]
    is_complete: bool
    """False if the folder has too many files to look at all of them."""

    def paths(self, *reasons: Reason) -> list[str]:
        return [entry.path for entry in self.left_out if entry.reason in reasons]

    def missed_markdown(self) -> list[str]:
        """Return Markdown files that nothing excludes on purpose."""
        return [path for path in self.paths("layout", "ending") if path.lower().endswith(MARKDOWN_ENDINGS)]


def survey_workspace(workspace: Workspace, *, max_bytes: int) -> Survey:
    """Compare the notes of a workspace with the files in its folder."""
    inside = workspace.root + os.sep
    files = scan_workspace(workspace, max_bytes=max_bytes).files
    indexed = {file.absolute for file in files if file.absolute.startswith(inside)}
    with OpenWorkspace(workspace) as opened:
        walk = _Walker(workspace, opened, indexed)
        left_out = tuple(walk.iter_left_out())
    return Survey(len(indexed), len({os.path.dirname(path) for path in indexed}), left_out, walk.remaining > 0)


def find_layout(root: str) -> Literal["kept", "vault"]:
    """Return the layout that fits a folder: vault if it has Markdown in other places than Kept's own."""
    if not os.path.isdir(root):
        return "kept"
    if find_program(root):
        return "vault"
    workspace = Workspace.at(root)
    with OpenWorkspace(workspace) as opened:
        left_out = _Walker(workspace, opened, set()).iter_left_out()
        return "vault" if any(entry.reason == "layout" for entry in left_out) else "kept"


class _Walker:
    """Walks through all visible folders, and lists what is not in ``indexed``."""

    def __init__(self, workspace: Workspace, opened: OpenWorkspace, indexed: set[str]) -> None:
        self.workspace = workspace
        self.opened = opened
        self.indexed = indexed
        self.rules = IgnoreRules(opened, workspace, report=lambda path, reason: None)
        self.remaining = _MAX_ENTRIES

    def iter_left_out(self) -> Iterator[LeftOut]:
        waiting = [""]
        while waiting and self.remaining > 0:
            relative = waiting.pop()
            prefix = f"{relative}/" if relative else ""
            for name, is_folder, is_link in self.list_folder(relative):
                path = prefix + name
                reason = self.find_reason(relative, name, is_folder=is_folder, is_link=is_link)
                if reason is not None:
                    yield LeftOut(utf8_safe(path + "/" if is_folder else path), reason)
                elif is_folder:
                    waiting.append(path)

    def list_folder(self, relative: str) -> list[tuple[str, bool, bool]]:
        folder = os.path.join(self.workspace.root, relative) if relative else self.workspace.root
        try:
            entries = self.opened.list_folder(folder)
        except OSError:
            return []
        self.remaining -= len(entries)
        self.rules.enter(folder, [name for name, _, _ in entries if name in (*IGNORE_FILES, OBSIDIAN_FOLDER)])
        return sorted(entries)

    def find_reason(self, relative: str, name: str, *, is_folder: bool, is_link: bool) -> Reason | None:
        """Return why a file or folder is left out. None if it is indexed, walked through, or not a text."""
        folder = os.path.join(self.workspace.root, relative) if relative else self.workspace.root
        is_text = name.lower().endswith(_TEXT_ENDINGS)
        path = f"{relative}/{name}" if relative else name
        if is_link:
            return "link" if is_text or os.path.isdir(os.path.join(folder, name)) else None
        if is_folder:
            return self.find_folder_reason(folder, name, path)
        if not is_text or os.path.join(folder, name) in self.indexed:
            return None
        if not is_visible(name):
            return "hidden"
        if not self.workspace.is_note_file(name):
            return "ending"
        if self.workspace.layout == "vault":
            return "ignored" if self.rules.is_ignored(folder, name, is_folder=False) else None
        is_own = self.workspace.is_own_note(os.path.join(folder, name))
        return None if is_own or is_persons_own(name) else "layout"

    def find_folder_reason(self, folder: str, name: str, path: str) -> Reason | None:
        if not is_visible(name):
            return "hidden"
        if is_skipped_folder(path):
            return "skipped"
        return "ignored" if self.rules.is_ignored(folder, name, is_folder=True) else None
