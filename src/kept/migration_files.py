"""Numbered SQL files that bring the tables of a database to the current version."""

from __future__ import annotations

import os
from functools import cache


@cache
def read_migrations(folder: str) -> tuple[tuple[int, str], ...]:
    """Return number and script of each migration."""
    scripts = []
    for name in sorted(os.listdir(folder)):
        if name.endswith(".sql"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                scripts.append((int(name.partition("_")[0]), file.read()))
    return tuple(scripts)
