"""Words that begin the marks of a line, and a quick test for marks. A search runs it on every candidate."""

from __future__ import annotations

SINCE = "valid since|valid from|valid as of|since|from|as of|starting|seit|ab|von|depuis|desde"
UNTIL = "valid until|valid till|until|till|ended|bis|jusqu'au|hasta"
WAS = "was|formerly|previously|replaces|replaced|before|war|vorher|était|era"
_FIRST_WORDS = frozenset(phrase.split()[0] for words in (SINCE, UNTIL, WAS) for phrase in words.split("|"))
_LONGEST = max(map(len, _FIRST_WORDS)) + 3


def may_be_marked(text: str) -> bool:
    """Return whether a text may have marks. False is certain."""
    # A single character is found much faster than a longer text, and most notes have none of these.
    if "~" in text and "~~" in text:
        return True
    at = text.find("(")
    while at >= 0:
        words = text[at + 1 : at + _LONGEST].split(None, 1)
        if words and words[0].lower() in _FIRST_WORDS:
            return True
        at = text.find("(", at + 1)
    return False
