"""One spelling for words that people write in several ways.

SQLite's tokenizer lowers case and takes the accents off Latin letters, and does no more. Here the rest is done, on both
sides: ß is ss, ł is l, the dotless ı is i, ё is е, Greek loses its accents, Arabic and Hebrew their vowel marks, and
Arabic its variants of one letter. Letters that only look like others with a mark stay what they are: й is not и.
"""

from __future__ import annotations

import unicodedata
from functools import cache

_LETTERS = {
    "ß": "ss", "ẞ": "SS", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O", "đ": "d", "Đ": "D",
    "ð": "d", "Ð": "D", "þ": "th", "Þ": "Th", "ł": "l", "Ł": "L", "ħ": "h", "Ħ": "H", "ı": "i", "İ": "I", "ŋ": "n",
    "ё": "е", "Ё": "Е", "ς": "σ",
    "أ": "ا", "إ": "ا", "آ": "ا", "ٱ": "ا", "ى": "ي", "ی": "ي", "ک": "ك", "ة": "ه",
}  # fmt: skip
_MARKS = (
    (0x0300, 0x036F),  # accents that stand by themselves
    (0x0591, 0x05BD),  # Hebrew points
    (0x05BF, 0x05C7),
    (0x0610, 0x061A),  # Arabic vowels and signs
    (0x064B, 0x065F),
    (0x0670, 0x0670),
    (0x06D6, 0x06ED),
    (0x0640, 0x0640),  # what stretches an Arabic word
)
_ACCENTED = ((0x00C0, 0x024F), (0x0370, 0x03FF), (0x1E00, 0x1FFF))
"""Latin and Greek letters with accents. Of other scripts, a mark may make another letter."""


@cache
def _table() -> dict[int, str]:
    """Made when the first text needs it: ASCII does not."""
    table: dict[int, str] = {}
    for first, last in _ACCENTED:
        for code in range(first, last + 1):
            base = unicodedata.normalize("NFD", chr(code))[0]
            if base != chr(code):
                table[code] = base
    for first, last in _MARKS:
        table.update(dict.fromkeys(range(first, last + 1), ""))
    table.update((ord(letter), plain) for letter, plain in _LETTERS.items())
    return table


def fold(text: str) -> str:
    """The text with every letter in its plainest form. Case stays."""
    return text if text.isascii() else text.translate(_table())
