"""Survey of a workspace folder for `kept init` and `kept doctor`: its notes, and which files are not indexed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal

from kept.base.limits import utf8_safe
from kept.base.values import frozen
from kept.notes.scan import scan_workspace
from kept.notes.vault import IgnoreRules, find_program
from kept.notes.workspace import Workspace, is_persons_own, is_visible

Reason = Literal["ignored", "link", "ending", "layout"]
MARKDOWN_ENDINGS = (".md", ".markdown")
_TEXT_ENDINGS = (*MARKDOWN_ENDINGS, ".mdx", ".txt", ".org", ".rst", ".adoc")


@frozen
class LeftOut:
    """A file or folder that is not indexed. A folder's path ends in '/', and its contents are not listed."""

    path: str
    reason: Reason

    @property
    def is_missed(self) -> bool:
        """True for Markdown that nothing excludes on purpose."""
        return self.reason in ("layout", "ending") and self.path.lower().endswith(MARKDOWN_ENDINGS)


@frozen
class Survey:
    notes: int
    folders: int
    """Folders that have notes."""
    left_out: tuple[LeftOut, ...]

    def missed_markdown(self) -> list[str]:
        """Return Markdown files that nothing excludes on purpose."""
        return [entry.path for entry in self.left_out if entry.is_missed]


def survey_workspace(workspace: Workspace, *, max_bytes: int) -> Survey:
    """Compare the notes of a workspace with the files in its folder."""
    files = scan_workspace(workspace, max_bytes=max_bytes).files
    own = {file.path for file in files if not os.path.isabs(file.path)}
    return Survey(len(own), len(set(map(os.path.dirname, own))), find_left_out(workspace))


def find_layout(root: str) -> Literal["kept", "vault"]:
    """Return the layout that fits a folder: vault if it has Markdown in other places than Kept's own."""
    workspace = Workspace.at(root)
    is_vault = find_program(workspace.storage) or any(entry.reason == "layout" for entry in find_left_out(workspace))
    return "vault" if is_vault else "kept"


def find_left_out(workspace: Workspace) -> tuple[LeftOut, ...]:
    """Return the texts that are no notes, and what is ignored. Hidden files, folders of programs, and notes that
    discovery itself reports, are left out without a word."""
    rules = IgnoreRules(workspace)
    left_out: dict[str, Reason] = {}
    reasons: dict[str, Reason | None] = {}
    """Of each file that is looked at: None for a note."""

    def choose(folder: str, names: Mapping[str, bool]) -> list[str]:
        rules.enter(folder, names)
        lead = f"{folder}/" if folder else ""
        chosen = []
        for name in filter(is_visible, names):
            is_ignored = rules.is_ignored(folder, name, is_folder=names[name])
            if names[name] and is_ignored:
                left_out[f"{lead}{name}/"] = "ignored"
            elif names[name]:
                chosen.append(name)
            elif name.lower().endswith(_TEXT_ENDINGS) or "." not in name:
                chosen.append(name)
                reasons[lead + name] = _find_reason(workspace, lead + name, is_ignored)
        return chosen

    listed = {info.path for info in workspace.storage.documents.list(choose=choose, on_refused=lambda path, exc: None)}
    for path, reason in reasons.items():
        if path not in listed:
            left_out[path if "." in path.rpartition("/")[2] else f"{path}/"] = "link"
        elif reason is not None:
            left_out[path] = reason
    return tuple(LeftOut(utf8_safe(path), reason) for path, reason in sorted(left_out.items()))


def _find_reason(workspace: Workspace, path: str, is_ignored: bool) -> Reason | None:
    """Return why a file is no note, or None for a note and for what is no text."""
    if not path.lower().endswith(_TEXT_ENDINGS):
        return None
    if not workspace.is_note_file(path):
        return "ending"
    if workspace.layout == "vault":
        return "ignored" if is_ignored else None
    return None if workspace.is_own_note(path) or is_persons_own(path) else "layout"
