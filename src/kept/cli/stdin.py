"""Text from standard input, as much of it as can be used."""

from __future__ import annotations

import sys

from kept.errors import KeptError, UsageError

MAX_BYTES = 4_000_000


def read_stdin(limit: int = MAX_BYTES, *, refusal: type[KeptError] = UsageError) -> str:
    """Read all of standard input. Raise ``refusal`` where there is more than the limit, without reading on."""
    raw = sys.stdin.buffer.read(limit + 1)
    if len(raw) > limit:
        raise refusal(f"Standard input has more than the limit of {limit:,} bytes.", hint="Pass less text at a time.")
    return raw.decode("utf-8", "replace")
