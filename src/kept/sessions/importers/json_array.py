"""Elements of a JSON array, one at a time: an export needs the memory of its largest conversation only.

The scanner only counts brackets outside of strings, most of them inside a regular expression, and leaves the elements
to the parser of the standard library. 100 MB take less than two seconds; ijson is faster, but a further package.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"
_LEVELS = 8
"""Levels of brackets that the pattern skips by itself. A conversation of any service has fewer below its own."""


def _skipping(levels: int) -> str:
    """Return a pattern for everything up to a bracket that is not closed within a number of levels.

    All of it is possessive, so that a string or a group without an end costs nothing but its length.
    """
    group = f"|[\\[{{]{_skipping(levels - 1)}[\\]}}]" if levels else ""
    return rf'(?:[^"\[\]{{}}]++|"(?:[^"\\]++|\\.)*+"{group})*+'


_BETWEEN_ELEMENTS = re.compile(_skipping(0).encode(), re.DOTALL)
_INSIDE_ELEMENT = re.compile(_skipping(_LEVELS).encode(), re.DOTALL)
_REST_OF_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)


class DocumentDamaged(Exception):
    """The document is not JSON, or ends too early. The message is the reason, without the path."""


def iter_elements(read: Callable[[], bytes], *, max_bytes: int) -> Iterator[bytes | None]:
    """Yield the bytes of each object or array in a top-level array, or of the one top-level object.

    ``read`` returns the next part of the document, and nothing at its end. An element of more than ``max_bytes`` is
    skipped, and None is yielded instead. Raise DocumentDamaged after the last element that could be read.
    """
    start = _read_start(read)
    if not start:
        raise DocumentDamaged("is empty")
    if start[:2] in (b"\xff\xfe", b"\xfe\xff") or start[1:2] == b"\0":
        raise DocumentDamaged("is UTF-16, which JSON is not; save it as UTF-8")
    if start[:1] not in (b"[", b"{"):
        raise DocumentDamaged("is not JSON")
    scanner = _ElementScanner(max_bytes, outer_depth=1 if start[:1] == b"[" else 0)
    while start:
        yield from scanner.feed(start)
        if scanner.is_complete:
            return
        start = read()
    raise DocumentDamaged("ends in the middle of a conversation; the file is not complete")


def _read_start(read: Callable[[], bytes]) -> bytes:
    """Return the first part of the document, from its first character on."""
    start = b""
    while part := read():
        start += part
        if len(start) >= len(_BOM):
            start = start.removeprefix(_BOM).lstrip(_SPACE)
            if len(start) > 1:
                break
    return start


class _ElementScanner:
    """Finds where elements begin and end. Strings may contain brackets, and the parts that are fed end anywhere."""

    def __init__(self, max_bytes: int, *, outer_depth: int) -> None:
        self.is_complete = False
        self._max_bytes = max_bytes
        self._outer_depth = outer_depth
        self._buffer = bytearray()
        self._at = 0
        self._depth = 0
        self._element_start: int | None = None
        self._is_in_string = False
        self._is_too_large = False

    def feed(self, part: bytes) -> Iterator[bytes | None]:
        self._buffer += part
        while not self.is_complete and self._skip_to_bracket():
            is_opening = self._buffer[self._at] in b"[{"
            if is_opening and self._depth == self._outer_depth:
                self._element_start = self._at
            self._depth += 1 if is_opening else -1
            self._at += 1
            if not is_opening and self._depth == self._outer_depth:
                yield self._take_element()
            self.is_complete = self._depth <= 0
        self._drop_what_was_read()

    def _skip_to_bracket(self) -> bool:
        """Move to the next bracket. Return False if more has to be read first."""
        if self._is_in_string:
            self._at = _end(_REST_OF_STRING, self._buffer, self._at)
            if self._buffer[self._at : self._at + 1] != b'"':
                return False  # at the end, or at a backslash whose character is in the next part
            self._is_in_string = False
            self._at += 1
        is_between = self._depth <= self._outer_depth
        self._at = _end(_BETWEEN_ELEMENTS if is_between else _INSIDE_ELEMENT, self._buffer, self._at)
        if self._at == len(self._buffer):
            return False
        if self._buffer[self._at] != ord('"'):
            return True
        self._is_in_string = True
        self._at += 1
        self._at = _end(_REST_OF_STRING, self._buffer, self._at)
        return False

    def _take_element(self) -> bytes | None:
        start, self._element_start = self._element_start, None
        is_too_large, self._is_too_large = self._is_too_large, False
        if is_too_large or start is None or self._at - start > self._max_bytes:
            return None
        return bytes(self._buffer[start : self._at])

    def _drop_what_was_read(self) -> None:
        start = self._at if self._element_start is None else self._element_start
        if self._at - start > self._max_bytes:
            self._is_too_large, self._element_start = True, self._at
            start = self._at
        del self._buffer[:start]
        self._at -= start
        if self._element_start is not None:
            self._element_start = 0


def _end(pattern: re.Pattern[bytes], buffer: bytearray, at: int) -> int:
    match = pattern.match(buffer, at)
    return at if match is None else match.end()
