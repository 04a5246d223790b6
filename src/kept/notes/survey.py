"""Survey of a workspace folder for `kept init` and `kept doctor`: its notes, and which files are not indexed."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Literal

from kept.base.limits import utf8_safe
from kept.base.values import frozen
from kept.errors import PathRefused
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


@frozen
class Survey:
    notes: int
    folders: int
    """Folders that have notes."""
    left_out: tuple[LeftOut, ...]

    def missed_markdown(self) -> list[str]:
        """Return Markdown files that nothing excludes on purpose."""
        missed = (entry.path for entry in self.left_out if entry.reason in ("layout", "ending"))
        return [path for path in missed if path.lower().endswith(MARKDOWN_ENDINGS)]


def survey_workspace(workspace: Workspace, *, max_bytes: int) -> Survey:
    """Compare the notes of a workspace with the files in its folder."""
    files = scan_workspace(workspace, max_bytes=max_bytes).files
    indexed = {file.path for file in files if not os.path.isabs(file.path)}
    left_out = tuple(_find_left_out(workspace, indexed))
    return Survey(len(indexed), len({os.path.dirname(path) for path in indexed}), left_out)


def find_layout(root: str) -> Literal["kept", "vault"]:
    """Return the layout that fits a folder: vault if it has Markdown in other places than Kept's own."""
    workspace = Workspace.at(root)
    left_out = _find_left_out(workspace, ())
    is_vault = find_program(workspace.storage) or any(entry.reason == "layout" for entry in left_out)
    return "vault" if is_vault else "kept"


def _find_left_out(workspace: Workspace, indexed: Collection[str]) -> list[LeftOut]:
    """Return what is not in ``indexed``. Hidden files and folders of programs are left out without a word."""
    rules = IgnoreRules(workspace)
    left_out: list[LeftOut] = []

    def choose(folder: str, names: Mapping[str, bool]) -> list[str]:
        rules.enter(folder, names)
        lead = f"{folder}/" if folder else ""
        entered, files = [], []
        for name in sorted(filter(is_visible, names)):
            path = lead + name
            if names[name]:
                if rules.is_ignored(folder, name, is_folder=True):
                    left_out.append(LeftOut(f"{utf8_safe(path)}/", "ignored"))
                else:
                    entered.append(name)
            elif path not in indexed and (reason := _find_reason(workspace, rules, folder, name)):
                files.append(LeftOut(utf8_safe(path) + ("/" if reason == "link" and "." not in name else ""), reason))
        left_out.extend(files)
        return entered

    for _ in workspace.storage.documents.list(choose=choose, on_refused=lambda path, exc: None):
        pass
    return left_out


def _find_reason(workspace: Workspace, rules: IgnoreRules, folder: str, name: str) -> Reason | None:
    """Return why a text is left out; None for another file, and for a note that discovery itself reports."""
    path = f"{folder}/{name}" if folder else name
    is_text = name.lower().endswith(_TEXT_ENDINGS)
    if (is_text or "." not in name) and _is_link(workspace, path):
        return "link"
    if not is_text:
        return None
    if not workspace.is_note_file(name):
        return "ending"
    if workspace.layout == "vault":
        return "ignored" if rules.is_ignored(folder, name, is_folder=False) else None
    return None if workspace.is_own_note(path) or is_persons_own(name) else "layout"


def _is_link(workspace: Workspace, path: str) -> bool:
    try:
        workspace.find(path)
    except PathRefused:
        return True
    return False
