"""SHA-256 of notes, without the import of OpenSSL, which would cost `kept add` several milliseconds."""

from __future__ import annotations

import sys
from typing import Any


def _find_sha256() -> Any:
    hashlib = sys.modules.get("hashlib")
    if hashlib is not None:
        return hashlib.sha256
    for name in ("_sha2", "_sha256"):  # Python 3.12 and later; 3.11
        try:
            return __import__(name).sha256
        except ImportError:
            continue
    return __import__("hashlib").sha256


def digest_bytes(data: bytes) -> str:
    """Return the SHA-256 of a note in hexadecimal, as the index stores it."""
    digest: str = _find_sha256()(data).hexdigest()
    return digest
