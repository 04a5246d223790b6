"""Text made fit to be stored or shown: valid UTF-8, one line, a limited length."""

from __future__ import annotations

from typing import Any


def one_line(text: str) -> str:
    """Return a text as one line, each run of white space as a single space."""
    return " ".join(text.split())


def printable_line(text: str) -> str:
    """Return a text as one line without control characters, such as those a terminal would obey."""
    return one_line("".join(char if char.isprintable() else " " for char in text))


def clip(text: str, max_chars: int) -> str:
    """Return a text of at most ``max_chars`` characters, with an ellipsis where it was cut."""
    return text if len(text) <= max_chars else text[: max_chars - 1].rstrip() + "…"


def is_utf8(text: str) -> bool:
    """Return whether a text can be encoded. A lone surrogate, which JSON and argv can hold, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def utf8_safe(text: str) -> str:
    """Return a text with its surrogate pairs joined and U+FFFD in place of each lone surrogate."""
    return text if is_utf8(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def utf8_safe_tree(value: Any) -> Any:
    """Return a JSON value whose texts and names are all `utf8_safe`."""
    match value:
        case str():
            return utf8_safe(value)
        case dict():
            return {utf8_safe_tree(name): utf8_safe_tree(inner) for name, inner in value.items()}
        case list():
            return [utf8_safe_tree(inner) for inner in value]
        case _:
            return value
