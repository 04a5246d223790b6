"""Compares the rows with the folder, for `kept doctor`."""

from __future__ import annotations

from kept.team_files.file_tables import digest
from kept.team_files.team_files import TeamFiles
from kept.values import frozen
from kept.working_copy.synced_files import FileRules, SyncedFiles
from kept.workspace.opened import OpenWorkspace


@frozen
class FilesComparison:
    files: int
    damaged: tuple[str, ...]
    """Rows whose content has another SHA-256."""
    differing: tuple[str, ...]
    """Files that the folder has otherwise, or lacks, although both agreed last."""


def compare_files(team: TeamFiles) -> FilesComparison:
    """Read every row, and compare it with its SHA-256 and with the folder."""
    files = SyncedFiles(team.workspace, FileRules(True, team.settings.max_file_bytes))
    damaged: list[str] = []
    differing: list[str] = []
    with team.state.locked(60), OpenWorkspace(files.workspace) as opened:
        _, rows, _ = team.tables.list_changes(-1)
        copies = team.state.files()
        for row, data in team.tables.iter_contents([row for row in rows if row.sha256 is not None]):
            if data is None or digest(data) != row.sha256:
                damaged.append(row.path)
                continue
            copied = copies.get(row.path)
            is_copied = copied is not None and copied.version == row.version and files.accepts_path(row.path)
            if is_copied and files.read(opened, row.path) != data:
                differing.append(row.path)
    return FilesComparison(len(rows), tuple(damaged), tuple(differing))


def repair_rows(team: TeamFiles) -> int:
    """Write damaged rows anew from the folder, where it has the same file. Return how many could be repaired."""
    files = SyncedFiles(team.workspace, FileRules(True, team.settings.max_file_bytes))
    repaired = 0
    with team.state.locked(60), OpenWorkspace(files.workspace) as opened:
        _, rows, _ = team.tables.list_changes(-1)
        for row, data in team.tables.iter_contents([row for row in rows if row.sha256 is not None]):
            if (data is not None and digest(data) == row.sha256) or not files.accepts_path(row.path):
                continue
            here = files.read(opened, row.path)
            if here is not None and digest(here) == row.sha256:
                repaired += team.tables.rewrite(row, here)
    return repaired
