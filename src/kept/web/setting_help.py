"""Explanations of settings, read from the tables of the settings reference, which is part of the package."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from pathlib import Path

import kept
from kept.values import frozen

_IN_WHEEL = "settings.md"
_ROW = re.compile(r"^\| `([a-z_.]+)` \| (.*?) \| (.*) \|$")
_HEADING = re.compile(r"^#{2,3} (.+)$")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")

HelpPiece = tuple[str, bool]
"""A piece of an explanation, and whether it is code."""


@frozen
class SettingHelp:
    section: str
    default: tuple[HelpPiece, ...]
    meaning: tuple[HelpPiece, ...]

    @property
    def text(self) -> str:
        return "".join(piece for piece, _ in self.meaning)


@cache
def load_setting_help() -> dict[str, SettingHelp]:
    """Return the explanation of each setting by its name, in the order of the reference."""
    section, explained = "", {}
    for line in _reference().splitlines():
        if heading := _HEADING.match(line):
            section = heading[1]
        elif row := _ROW.match(line):
            explained[row[1]] = SettingHelp(section, _pieces(row[2]), _pieces(row[3]))
    return explained


def _reference() -> str:
    """Return the page: of the wheel, or of the repository that an editable install runs from."""
    packaged = files("kept.web").joinpath(_IN_WHEEL)
    if packaged.is_file():
        return packaged.read_text(encoding="utf-8")
    repository = Path(kept.__file__).parents[2] / "docs" / "reference" / "config.md"
    return repository.read_text(encoding="utf-8") if repository.is_file() else ""


def _pieces(text: str) -> tuple[HelpPiece, ...]:
    """Return a cell without links, in pieces of text and code."""
    plain = _LINK.sub(r"\1", text.replace("\\|", "|"))
    return tuple((piece, at % 2 == 1) for at, piece in enumerate(plain.split("`")) if piece)
