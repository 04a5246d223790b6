"""Reading an index whose first page is destroyed: it says where every table begins, and without it nothing is found.

The permanent tables are the first that are made in an empty file, so they begin at the same pages in every index. A
copy of the damaged file gets the first page of an empty index, and its tables can be read again.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from kept.database_files import create_private, database_files, delete_database
from kept.store.connection import connect

_PAGE = 4096
_PAGE_COUNT = 28
"""Where the header has the number of pages."""
_RESERVED = 20
"""Where it has how much of each page is left to the checksum layer."""


@contextmanager
def with_first_page(path: str) -> Iterator[str]:
    """A copy of a damaged index that begins as an empty one does. It is deleted afterwards."""
    empty, copy = f"{path}.empty", f"{path}.copy"
    delete_database(empty)
    delete_database(copy)
    try:
        connect(empty).close()
        for original, copied in zip(database_files(path)[:2], database_files(copy), strict=False):
            if os.path.exists(original):
                create_private(copied)
                shutil.copyfile(original, copied)
        with open(empty, "rb") as file:
            page = file.read(_PAGE)
        with open(copy, "r+b") as file:
            pages = os.fstat(file.fileno()).st_size // _PAGE
            file.write(_adjusted(page, max(1, pages)))
        yield copy
    finally:
        delete_database(empty)
        delete_database(copy)


def _adjusted(page: bytes, pages: int) -> bytes:
    reserved = page[_RESERVED]
    page = page[:_PAGE_COUNT] + struct.pack(">I", pages) + page[_PAGE_COUNT + 4 :]
    return page[:-reserved] + _checksum(page[:-reserved]) if reserved else page


def _checksum(content: bytes) -> bytes:
    """As SQLite's checksum layer computes it for a page without its last eight bytes."""
    first = second = 0
    for left, right in struct.iter_unpack("<II", content):
        first = (first + left + second) & 0xFFFFFFFF
        second = (second + right + first) & 0xFFFFFFFF
    return struct.pack("<II", first, second)
