"""The name of this machine: a random one that the home keeps. Logs that several machines write are named by it."""

from __future__ import annotations

from contextlib import suppress

from kept.base.clock import new_id
from kept.errors import DocumentNotFound, StorageConflict, WorkspaceError
from kept.storage.contract import ABSENT, Storage, Write

MACHINE_ID = "machine-id"


def get_machine(home: Storage) -> str:
    """Return the name of this machine. Give it one if it has none, or one that is damaged."""
    while True:
        expected = None
        try:
            name = home.documents.read(MACHINE_ID, max_bytes=64).data.strip()
            if name.isalnum():  # ASCII, of bytes
                return name.decode()
        except DocumentNotFound:
            expected = ABSENT
        except WorkspaceError:
            pass
        with suppress(StorageConflict):  # another process was faster
            home.commit([Write(MACHINE_ID, f"{new_id()}\n".encode(), expected)])
