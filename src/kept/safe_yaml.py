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
    import yaml

    loader: Any = _loader("BaseLoader" if as_text else "SafeLoader")
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


def _loader(name: str) -> Any:
    """Return a loader in C, or the same in Python where PyYAML was built without C."""
    import yaml

    return getattr(yaml, f"C{name}", None) or getattr(yaml, name)


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
