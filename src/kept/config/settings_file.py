"""Reads a file of settings that may come from a stranger.

A project's settings come with its repository, so nothing about them is trusted: a pipe in place of the file would
block every command, and a YAML text of 400 bytes can expand to gigabytes.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from typing import Any

from kept.errors import ConfigError

MAX_BYTES = 256_000
MAX_NESTING = 50
MAX_DIGITS = 1_000
"""YAML has base-60 numbers (1:30:00), and takes quadratic time to add up a long one."""
_NUMBER = r"[-+]?[0-9.][0-9a-fA-Fox_:.]*"
_HARMLESS_CHARS = 1_000
_UNCHANGED = "Nothing was changed."
_FIX_YAML = "Fix the YAML; nothing was changed."


def read_settings(path: str, *, max_bytes: int = MAX_BYTES, follow_links: bool = True) -> bytes | None:
    """Return the bytes of a settings file, or None if there is none. Never wait for a pipe or a device."""
    extra = os.O_NONBLOCK if follow_links else os.O_NONBLOCK | os.O_NOFOLLOW
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | extra)) as file:
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


def read_yaml(path: str, *, follow_links: bool = True) -> dict[str, Any]:
    raw = read_settings(path, follow_links=follow_links)
    try:
        text = (raw or b"").decode("utf-8-sig")
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
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        if len(text) > _HARMLESS_CHARS or "&" in text or "*" in text:
            _refuse_costly(path, yaml.parse(text, Loader=loader))
        return yaml.load(text, Loader=loader)
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(exc, "problem", None) or "not valid YAML"
        raise ConfigError(f"{path}{line}: {problem}.", hint=_FIX_YAML) from exc
    except (ValueError, LookupError, AttributeError, ArithmeticError) as exc:
        # The YAML library raises these for a text that looks like a date or a number and is not.
        raise ConfigError(f"{path}: a value cannot be read ({exc}).", hint=_FIX_YAML) from exc


def _refuse_costly(path: str, events: Iterable[Any]) -> None:
    """Check the text as a flat stream of events, before a tree is built from it.

    Aliases multiply the size of the tree. The library builds it by recursion in C, where endless nesting crashes the
    process.
    """
    depth = 0
    for event in events:
        name = type(event).__name__
        depth += name in ("SequenceStartEvent", "MappingStartEvent")
        depth -= name in ("SequenceEndEvent", "MappingEndEvent")
        where = f"{path}, line {event.start_mark.line + 1}"
        if depth > MAX_NESTING:
            raise ConfigError(f"{where}: nested too deeply.", hint=_FIX_YAML)
        if getattr(event, "anchor", None) is not None:
            raise ConfigError(
                f"{where}: anchors (&{event.anchor}) and aliases (*{event.anchor}) are not allowed.",
                hint="Write the value out in each place; nothing was changed.",
            )
        if name == "ScalarEvent" and len(event.value) > MAX_DIGITS and re.fullmatch(_NUMBER, event.value):
            raise ConfigError(f"{where}: a number of more than {MAX_DIGITS:,} digits.", hint=_FIX_YAML)
