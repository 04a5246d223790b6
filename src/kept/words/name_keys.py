"""Keys of names: two names that a person would call the same have the same key."""

from __future__ import annotations

import unicodedata


def name_key(name: str) -> str:
    """Return the key of a note's name, a title or an alias: case, composition and white space do not count."""
    if not name.isascii():
        name = unicodedata.normalize("NFC", name)
    return " ".join(name.casefold().split())


def tag_key(tag: str) -> str:
    """Return the key of a tag: without '#', without empty levels. "" if nothing is left."""
    levels = (name_key(level) for level in tag.strip().lstrip("#").split("/"))
    return "/".join(level for level in levels if level)


def tag_levels(tag: str) -> list[str]:
    """Return a tag and the tags above it: area/home and area for area/home."""
    levels = [level for level in tag.split("/") if level]
    return ["/".join(levels[:count]) for count in range(len(levels), 0, -1)]
