"""Random name of this machine, which a home folder keeps: it tells machines apart whose host names are the same."""

from __future__ import annotations

import os

from kept.clock import new_id
from kept.durable import write_atomic

MACHINE_FILE = "machine-id"


def find_machine(home: str) -> str:
    """Return the random name of this machine, which the home folder keeps; empty if there is none yet."""
    path = os.path.join(home, MACHINE_FILE)
    try:
        with open(path, "rb", buffering=0) as file:
            name = (file.read(64) or b"").strip().decode("utf-8", "replace")
        return name if name.isascii() and name.isalnum() else ""
    except OSError:
        return ""


def get_machine(home: str) -> str:
    """Return the random name of this machine. Create it if there is none."""
    name = find_machine(home)
    if not name:
        name = new_id()
        write_atomic(os.path.join(home, MACHINE_FILE), f"{name}\n".encode())
    return name
