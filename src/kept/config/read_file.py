"""Reads a file of settings, and trusts nothing about it: a pipe in its place would block every command, and a YAML text
of 400 bytes can expand to gigabytes."""

from __future__ import annotations

import os
import stat
from typing import Any

from kept.errors import ConfigError

MAX_BYTES = 256_000
_UNCHANGED = "Nothing was changed."
_FIX_YAML = "Fix the YAML; nothing was changed."


def read_settings(path: str, *, max_bytes: int = MAX_BYTES) -> bytes | None:
    """Return the bytes of a settings file, or None if there is none. Never wait for a pipe or a device."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"{path}: is not a file.", hint=_UNCHANGED)
            raw = file.read(max_bytes + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as exc:  # ValueError: not a path, such as one with a NUL
        reason = exc.strerror if isinstance(exc, OSError) else exc
        raise ConfigError(f"{path}: cannot be read ({reason}).", hint=_UNCHANGED) from exc
    if len(raw) > max_bytes:
        raise ConfigError(f"{path}: has more than {max_bytes:,} bytes, too many for settings.", hint=_UNCHANGED)
    return raw


def read_yaml(path: str) -> dict[str, Any]:
    return parse_settings(path, read_settings(path) or b"")


def parse_settings(path: str, raw: bytes) -> dict[str, Any]:
    """Return the settings in the bytes of a file. ``path`` is for messages."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{path}: not UTF-8 at byte {exc.start}.", hint=_UNCHANGED) from exc
    if not text.strip():
        return {}
    tree = _load(path, text)
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: expected settings by name, such as 'agents:'.")
    return tree


def _load(path: str, text: str) -> Any:
    from kept.base.safe_yaml import YamlRefused, load_yaml

    try:
        return load_yaml(text)
    except YamlRefused as exc:
        line = f", line {exc.line}" if exc.line else ""
        raise ConfigError(f"{path}{line}: {exc.problem}.", hint=exc.hint or _FIX_YAML) from exc
