"""Guesses the language of a question, by its script or by its stopwords."""

from __future__ import annotations

from kept.words.segment import fold, normalise
from kept.words.stopwords import find_language

_SCRIPTS = (
    ("th", "\u0e00", "\u0e7f"),
    ("ja", "\u3040", "\u30ff"),
    ("ko", "\uac00", "\ud7af"),
    ("zh", "\u4e00", "\u9fff"),  # after Japanese, which has Chinese characters too
    ("ru", "\u0400", "\u04ff"),
    ("ar", "\u0600", "\u06ff"),
)
"""Languages by a script that is mostly theirs, among those that the multilingual models know."""
_MIN_LETTERS = 0.5


def guess_language(text: str) -> str | None:
    """Return the language of a text by its two letters, or None for English and where it cannot be told."""
    letters = [character for character in text if character.isalpha()]
    for language, first, last in _SCRIPTS:
        count = sum(first <= character <= last for character in letters)
        if count and (language == "ja" or count >= _MIN_LETTERS * len(letters)):
            return language
    return find_language(fold(normalise(text)).lower().replace("?", " ").split())
