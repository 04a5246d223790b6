"""The name of this machine: a random one that the home keeps. Logs that several machines write are named by it."""

from __future__ import annotations

from kept.base.clock import new_id
from kept.errors import StorageConflict, WorkspaceError
from kept.storage.contract import ABSENT, Storage, Write

MACHINE_ID = "machine-id"


def find_machine(home: Storage) -> str:
    """Return the name of this machine; empty if it has none yet."""
    try:
        name = home.documents.read(MACHINE_ID, max_bytes=64).data.strip().decode("utf-8", "replace")
    except WorkspaceError:
        return ""
    return name if name.isascii() and name.isalnum() else ""


def get_machine(home: Storage) -> str:
    """Return the name of this machine. Give it one if it has none."""
    name = find_machine(home)
    if not name:
        try:
            home.commit([Write(MACHINE_ID, f"{new_id()}\n".encode(), ABSENT)])
        except StorageConflict:  # another process was faster, or the file is damaged
            if not find_machine(home):
                home.commit([Write(MACHINE_ID, f"{new_id()}\n".encode())])
        name = find_machine(home)
    return name
