"""Survey of a workspace folder for `kept init` and `kept doctor`: its notes, and which files are not indexed."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from typing import Literal

from kept.base.limits import utf8_safe
from kept.base.values import frozen
from kept.notes.ignored import IgnoreRules
from kept.notes.opened import OpenWorkspace
from kept.notes.scan import scan_workspace
from kept.notes.vault import find_program
from kept.notes.workspace import Workspace, is_persons_own, is_skipped_folder, is_visible

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
    inside = workspace.root + os.sep
    files = scan_workspace(workspace, max_bytes=max_bytes).files
    indexed = {file.absolute for file in files if file.absolute.startswith(inside)}
    left_out = tuple(_iter_left_out(workspace, indexed))
    return Survey(len(indexed), len({os.path.dirname(path) for path in indexed}), left_out)


def find_layout(root: str) -> Literal["kept", "vault"]:
    """Return the layout that fits a folder: vault if it has Markdown in other places than Kept's own."""
    is_vault = find_program(root) or any(entry.reason == "layout" for entry in _iter_left_out(Workspace.at(root), ()))
    return "vault" if is_vault else "kept"


def _iter_left_out(workspace: Workspace, indexed: Collection[str]) -> Iterator[LeftOut]:
    """Yield what is not in ``indexed``. Hidden files and folders of programs are left out without a word."""
    with OpenWorkspace(workspace) as opened:
        rules = IgnoreRules(opened, workspace, report=lambda path, reason: None)
        for folder, folders, files in os.walk(workspace.root):
            rules.enter(folder, [*folders, *files])
            prefix = utf8_safe(workspace.cite(os.path.join(folder, "")))
            links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
            folders[:] = [name for name in folders if is_visible(name) and not is_skipped_folder(prefix + name)]
            ignored = [name for name in folders if rules.is_ignored(folder, name, is_folder=True)]
            folders[:] = sorted({*folders} - {*links, *ignored})
            yield from (LeftOut(f"{prefix}{utf8_safe(name)}/", "link") for name in sorted(links))
            yield from (LeftOut(f"{prefix}{utf8_safe(name)}/", "ignored") for name in sorted(ignored))
            texts = (name for name in sorted(files) if is_visible(name) and name.lower().endswith(_TEXT_ENDINGS))
            for name in texts:
                is_indexed = os.path.join(folder, name) in indexed
                if not is_indexed and (reason := _find_reason(workspace, rules, folder, name)):
                    yield LeftOut(prefix + utf8_safe(name), reason)


def _find_reason(workspace: Workspace, rules: IgnoreRules, folder: str, name: str) -> Reason | None:
    """Return why a text is left out; None for a note that discovery itself reports."""
    absolute = os.path.join(folder, name)
    if os.path.islink(absolute):
        return "link"
    if not workspace.is_note_file(name):
        return "ending"
    if workspace.layout == "vault":
        return "ignored" if rules.is_ignored(folder, name, is_folder=False) else None
    return None if workspace.is_own_note(absolute) or is_persons_own(name) else "layout"
