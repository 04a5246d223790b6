"""Folding: one spelling for words that people write in several ways.

SQLite's tokenizer lowers case and removes accents from Latin letters, and does nothing else. The rest is done here, for
notes and for queries: ß becomes ss, ł becomes l, the dotless ı becomes i, ё becomes е, Greek loses its accents, Arabic
and Hebrew lose their vowel marks, and the variants of an Arabic letter become one. A letter that merely resembles
another letter with a mark stays: й is not и.
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
    (0x0300, 0x036F),  # combining accents
    (0x0591, 0x05BD),  # Hebrew points
    (0x05BF, 0x05C7),
    (0x0610, 0x061A),  # Arabic vowels and marks
    (0x064B, 0x065F),
    (0x0670, 0x0670),
    (0x06D6, 0x06ED),
    (0x0640, 0x0640),  # tatweel, which stretches an Arabic word
)
_ACCENTED = ((0x00C0, 0x024F), (0x0370, 0x03FF), (0x1E00, 0x1FFF))
"""Latin and Greek letters with accents. In other scripts a mark may make a different letter."""


@cache
def _table() -> dict[int, str]:
    """Return the translation table. It is built on first use, because ASCII text does not need it."""
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
    """Return the text with every letter in its plainest form. Case is preserved."""
    return text if text.isascii() else text.translate(_table())
