"""Tells whether a file is in a folder that other machines have too."""

from __future__ import annotations

import os

_MARKERS = (".stfolder", ".stignore", ".dropbox", ".dropbox.cache", ".sync", ".owncloudsync.log", ".nextcloudsync.log")
"""Files and folders that Syncthing, Dropbox, Resilio, ownCloud and Nextcloud keep in a folder that they share."""
_CLOUD_FOLDERS = ("Mobile Documents", "CloudStorage", "Dropbox", "OneDrive", "Nextcloud", "Google Drive")
"""Names of folders of cloud services: iCloud Drive, other services on macOS, and their own."""


def find_synchronised(path: str, *, workspace: str) -> str | None:
    """Return the synchronised folder that a file is in, or None.

    That is a folder with the marks of a program that synchronises, or the workspace: notes are shared in many ways that
    leave no mark, and what is beside them would be too.
    """
    user = os.path.realpath(os.path.expanduser("~"))
    notes = os.path.realpath(workspace)
    folder = os.path.dirname(os.path.realpath(path))
    while folder not in (os.path.dirname(folder), user):
        if folder == notes:
            return folder
        is_cloud = os.path.basename(folder) in _CLOUD_FOLDERS
        if is_cloud or any(os.path.exists(os.path.join(folder, marker)) for marker in _MARKERS):
            return folder
        folder = os.path.dirname(folder)
    return None
