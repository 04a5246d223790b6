"""SHA-256, without the import of OpenSSL, which would cost `kept add` several milliseconds."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any


def _import_builtin() -> Any:
    for name in ("_sha2", "_sha256"):  # Python 3.12 and later; 3.11
        with suppress(ImportError):
            return __import__(name)
    return __import__("hashlib")


_builtin = _import_builtin()


def digest_bytes(data: bytes) -> str:
    """Return the SHA-256 in hexadecimal."""
    digest: str = (sys.modules.get("hashlib") or _builtin).sha256(data).hexdigest()
    return digest
