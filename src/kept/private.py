"""Folders for their owner alone."""

from __future__ import annotations

import os


def make_private_folder(path: str) -> None:
    """Makes a folder and those above it that are missing, each 0700: `os.makedirs` has its mode for the last only."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            if not os.path.isdir(folder):
                raise
