"""Estimated length of a text in tokens, without a tokenizer: four characters each, one in dense scripts."""

from __future__ import annotations

import re
from functools import cache

CHARS_PER_TOKEN = 4


@cache
def _dense_script() -> re.Pattern[str]:
    """Return the pattern, compiled on first use: that takes milliseconds, and a search does not need it.

    These are nearly the ranges of `words.segment.UNSPACED`. They must not change with it: chunking depends on them,
    and has its own `CHUNKER_VERSION`.
    """
    return re.compile(
        "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
        "\uf900-\ufaff\U00020000-\U0003ffff]"
    )


def weigh(text: str) -> int:
    """Return the length in quarter tokens. These add up exactly, unlike tokens rounded for each part."""
    if text.isascii():
        return len(text)
    dense = len(_dense_script().findall(text))
    return len(text) + dense * (CHARS_PER_TOKEN - 1)


def estimate_tokens(text: str) -> int:
    """Return the length in tokens, rounded up."""
    return -(-weigh(text) // CHARS_PER_TOKEN)
