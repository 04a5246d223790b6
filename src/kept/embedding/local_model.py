"""What the models on this machine share: a digest of their weights, and texts that their tokenizers take."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Iterable

from kept.base.limits import utf8_safe
from kept.base.remote_errors import EmbedderUnavailable

_SAMPLE_BYTES = 1 << 20


def sample_digest(paths: Iterable[str]) -> str:
    """Return a digest of weights without reading gigabytes: SHA-256 of each file's size, first and last megabyte.

    Neither the time of a file nor its path counts, so a model that is copied or downloaded again keeps its vectors.
    """
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            digest.update(size.to_bytes(8, "little"))
            for start in (0, max(0, size - _SAMPLE_BYTES)):
                file.seek(start)
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def encodable(text: str, *, max_chars: int) -> str:
    """Cut a text, and replace the lone surrogates that tokenizers refuse.

    Tokenizing megabytes to keep a few hundred tokens would cost more than the model.
    """
    return utf8_safe(text[:max_chars])


def require_packages(*names: str, extra: str) -> None:
    """Raise EmbedderUnavailable if a package of an extra is not installed. Import nothing."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise EmbedderUnavailable(
            f"This model needs the package {missing[0]}, which is not installed.",
            hint=f"Install it: pip install 'kept[{extra}]'",
        )
