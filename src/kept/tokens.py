"""Estimated length of a text in tokens, without a tokenizer: four characters each, one in dense scripts."""

from __future__ import annotations

import re
from functools import cache

CHARS_PER_TOKEN = 4


@cache
def _dense_script() -> re.Pattern[str]:
    """Return the compiled pattern. Compiling such wide ranges takes milliseconds, and a search needs none of them.

    These are nearly the ranges of `words.segment.UNSPACED`. They must not change with it: the cutting of notes depends
    on them, and is versioned by `CHUNKER_VERSION`.
    """
    return re.compile(
        "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
        "\uf900-\ufaff\U00020000-\U0003ffff]"
    )


def weigh(text: str) -> int:
    """Return the length in quarter tokens. They add up exactly, which tokens rounded for each part would not."""
    if text.isascii():
        return len(text)
    dense = len(_dense_script().findall(text))
    return len(text) + dense * (CHARS_PER_TOKEN - 1)


def estimate_tokens(text: str) -> int:
    """Return the length in tokens, rounded up."""
    return -(-weigh(text) // CHARS_PER_TOKEN)
