"""Parse YAML from untrusted sources.

Nothing about the text is trusted: 400 bytes of YAML can expand to gigabytes, and deep nesting can end the process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

MAX_NESTING = 50
MAX_DIGITS = 1_000
"""YAML counts in sixties too (1:30:00), and takes quadratic time to add up a long number of that kind."""
_NUMBER = r"[-+]?[0-9.][0-9a-fA-Fox_:.]*"
_HARMLESS_CHARS = 1_000
_PLAIN_LINE = re.compile(r"( *)(- )?([A-Za-z_]\w*):(?: ((?:~/|[A-Za-z/])[\w./-]*|0|[1-9]\d{0,8}))?", re.ASCII)
_NOT_TEXT = frozenset(("true", "false", "yes", "no", "on", "off", "null"))


class YamlRefused(Exception):
    """The text is not valid YAML, or is refused because of its cost."""

    def __init__(self, problem: str, *, line: int | None = None, hint: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.line = line
        """Line of the problem, counted from 1, if it is known."""
        self.hint = hint


def load_yaml(text: str, *, as_text: bool = False) -> Any:
    """Return the value of a YAML text. ``as_text`` leaves every scalar a string. Raise YamlRefused."""
    if not as_text and (plain := _read_plain(text)):
        return plain
    import yaml

    name = "BaseLoader" if as_text else "SafeLoader"
    loader: Any = getattr(yaml, f"C{name}", None) or getattr(yaml, name)  # in Python where PyYAML was built without C
    try:
        if len(text) > _HARMLESS_CHARS or "&" in text or "*" in text:
            _refuse_costly(yaml.parse(text, Loader=loader))
        return yaml.load(text, Loader=loader)
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        problem = getattr(exc, "problem", None) or "not valid YAML"
        raise YamlRefused(problem, line=mark.line + 1 if mark else None) from exc
    except (ValueError, LookupError, AttributeError, ArithmeticError) as exc:
        # The YAML library lets these through for a text in the form of a date or a number that is neither.
        raise YamlRefused(f"a value cannot be read ({exc})") from exc


def _read_plain(text: str) -> dict[str, Any] | None:
    """Return a mapping of plain names, words and numbers, as most settings are, or None if the text has anything else.

    Every command reads the settings, and the import of PyYAML takes a tenth of the time of `kept add`.
    """
    root: dict[str, Any] = {}
    inner: list[tuple[int, Any]] = [(0, root)]  # mappings and lists that the last line is in, with their indents
    waiting: tuple[int, dict[str, Any], str] | None = None  # name whose value begins with the next line
    for line in text.split("\n"):
        if not line or line.startswith("#"):
            continue
        match = _PLAIN_LINE.fullmatch(line)
        if match is None or len(inner) > MAX_NESTING:
            return None
        indent, dash, (name, value) = len(match[1]), match[2], match.group(3, 4)
        if waiting is not None:
            if indent <= waiting[0] and not (dash and indent == waiting[0]):
                return None
            inner.append((indent, [] if dash else {}))
            waiting[1][waiting[2]] = inner[-1][1]
        while inner and (
            inner[-1][0] > indent or (inner[-1][0] == indent and isinstance(inner[-1][1], list) != bool(dash))
        ):
            inner.pop()
        if not inner or inner[-1][0] != indent or name.lower() in _NOT_TEXT or (value or "").lower() in _NOT_TEXT:
            return None
        if dash:
            indent += 2
            inner[-1][1].append({})
            inner.append((indent, inner[-1][1][-1]))
        mapping = inner[-1][1]
        waiting = None if value else (indent, mapping, name)
        mapping[name] = int(value) if value and value.isdecimal() else value
    return root if waiting is None else None


def _refuse_costly(events: Iterable[Any]) -> None:
    """Read the text as a flat stream, before anything is built of it.

    Aliases multiply the size of the value. The library builds a tree by recursion in C, where unlimited nesting ends
    the whole process.
    """
    depth = 0
    for event in events:
        name = type(event).__name__
        depth += name in ("SequenceStartEvent", "MappingStartEvent")
        depth -= name in ("SequenceEndEvent", "MappingEndEvent")
        line = event.start_mark.line + 1
        if depth > MAX_NESTING:
            raise YamlRefused("nested too deeply", line=line)
        if getattr(event, "anchor", None) is not None:
            raise YamlRefused(
                f"anchors (&{event.anchor}) and aliases (*{event.anchor}) are not allowed",
                line=line,
                hint="Write the value out in each place; nothing was changed.",
            )
        if name == "ScalarEvent" and len(event.value) > MAX_DIGITS and re.fullmatch(_NUMBER, event.value):
            raise YamlRefused(f"a number of more than {MAX_DIGITS:,} digits", line=line)
