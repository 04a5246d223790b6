"""Tells whether the kernel of this machine makes every change in a folder, and so can report it."""

from __future__ import annotations

import os
from collections.abc import Iterable

_LOCAL = frozenset("ext2 ext3 ext4 xfs btrfs f2fs bcachefs jfs zfs tmpfs ramfs vfat exfat ntfs3".split())
"""File systems on a disk or in the memory of one machine. Over a network, in FUSE or in layers of a container, files
may change without this kernel."""
_MOUNTS = "/proc/self/mountinfo"


def are_local(folders: Iterable[str]) -> bool:
    """Return whether all these folders are on file systems of this machine alone. In doubt, they are not."""
    try:
        devices = {os.stat(folder).st_dev for folder in folders}
        kinds = _read_kinds()
    except (OSError, LookupError, ValueError):
        return False
    return all(kinds.get(f"{os.major(device)}:{os.minor(device)}") in _LOCAL for device in devices)


def _read_kinds() -> dict[str, str]:
    """Return the kind of each mounted file system by its device."""
    kinds: dict[str, str] = {}
    with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            fields = line.split()
            kinds[fields[2]] = fields[fields.index("-", 6) + 1]
    return kinds
