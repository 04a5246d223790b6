"""Folders that are nobody else's business."""

from __future__ import annotations

import os


def make_private_folder(path: str) -> None:
    """A folder that only its owner can look into, and so every folder above it that had to be made."""
    path = os.path.abspath(path)
    if os.path.isdir(path):
        return
    make_private_folder(os.path.dirname(path))
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
