"""Downloads of files from public servers: they resume where they broke off, and follow redirects."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import IO, cast
from urllib.parse import urljoin, urlsplit

from kept.errors import ConfigError
from kept.net.client import CircuitBreaker, HttpClient, RetryPolicy, Timeouts, is_safe_source
from kept.remote_errors import BadAnswer

FILE_TIMEOUTS = Timeouts(3_600.0, 7_200.0)
_IDLE_S = 60.0
_MOST_REDIRECTS = 5
_PAGE_BYTES = 40_000_000

Report = Callable[[int], None]
"""Called with the number of bytes of the file that have arrived."""


def download_file(
    url: str, sink: IO[bytes], *, max_bytes: int, report: Report | None = None, policy: RetryPolicy | None = None
) -> None:
    """Write a file into ``sink``, after the part of it that ``sink`` has already.

    Raise RemoteError if it does not arrive; ``sink`` then has a part of it. Check what arrived: a part from an earlier
    time may be of another file.
    """
    counted = cast(IO[bytes], _CountingFile(sink, report)) if report else sink
    _fetch(url, counted, accept="*/*", max_bytes=max_bytes, policy=policy)


def download_page(url: str, *, accept: str, policy: RetryPolicy | None = None) -> bytes:
    """Return the content of a page."""
    page = io.BytesIO()
    _fetch(url, page, accept=accept, max_bytes=_PAGE_BYTES, policy=policy)
    return page.getvalue()


def _fetch(url: str, sink: IO[bytes], *, accept: str, max_bytes: int, policy: RetryPolicy | None) -> None:
    for _ in range(_MOST_REDIRECTS):
        client = _open_client(url, policy)
        try:
            location = client.fetch(
                urlsplit(url).path, sink, accept=accept, timeouts=FILE_TIMEOUTS, max_bytes=max_bytes, idle_s=_IDLE_S
            )
        finally:
            client.close()
        if location is None:
            return
        target = urljoin(url, location)
        if not is_safe_source(target) and not target.startswith(f"{client.endpoint.origin}/"):
            raise BadAnswer(f"{client.endpoint.origin} redirects to an address that is not HTTPS.")
        url = target
    raise BadAnswer(f"{client.endpoint.origin} redirects too often.")


def _open_client(url: str, policy: RetryPolicy | None) -> HttpClient:
    try:
        # A breaker of its own: a mirror that is down must not stop calls of other kinds to the same machine.
        return HttpClient(url, policy=policy, breaker=CircuitBreaker())
    except ConfigError as exc:
        raise BadAnswer("A file should come from something that is not an address.") from exc


class _CountingFile(io.RawIOBase):
    """File that reports its length as it grows."""

    def __init__(self, file: IO[bytes], report: Report) -> None:
        self._file = file
        self._report = report

    def write(self, data: bytes) -> int:  # type: ignore[override]
        count = self._file.write(data)
        self._report(self._file.tell())
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def truncate(self, size: int | None = None) -> int:
        return self._file.truncate(size)
