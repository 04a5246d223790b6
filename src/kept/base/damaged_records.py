"""Records that cannot be read: they are kept beside their file, and the other records still work.

    FILE.torn       the start of a line that a crash cut short, moved there

To move them, the caller holds the lock of the file, if it has one. Readers without a lock skip such records and change
nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from kept.base.durable import append_durably, cut_durably, read_or_empty

TORN_ENDING = ".torn"


def move_torn_end(path: str, start: int, torn: bytes) -> str:
    """Move the bytes from ``start`` on into FILE.torn. Return the path of that file."""
    beside = path + TORN_ENDING
    append_durably(beside, torn + b"\n")
    cut_durably(path, start)
    return beside


def repair_end(path: str, is_whole: Callable[[bytes], bool]) -> None:
    """Make sure that the next append starts a new line.

    A last line without a line break gets one if it is whole, and is moved into FILE.torn otherwise.
    """
    data = read_or_empty(path)
    start = data.rfind(b"\n") + 1
    if start == len(data):
        return
    if is_whole(data[start:]):
        append_durably(path, b"\n")
    else:
        move_torn_end(path, start, data[start:])
