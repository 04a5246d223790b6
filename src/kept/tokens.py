"""How long a text is, in tokens, without a tokenizer: four characters each, one for scripts that are dense."""

from __future__ import annotations

import re
from functools import cache

CHARS_PER_TOKEN = 4


@cache
def _dense() -> re.Pattern[str]:
    """Compiled when it is first needed: such wide ranges take milliseconds, and a search needs none of them."""
    return re.compile(
        "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
        "\uf900-\ufaff\U00020000-\U0003ffff]"
    )


def weigh(text: str) -> int:
    """The length in quarter tokens, which adds up exactly where rounding each part would not."""
    if text.isascii():
        return len(text)
    dense = len(_dense().findall(text))
    return len(text) + dense * (CHARS_PER_TOKEN - 1)


def estimate_tokens(text: str) -> int:
    return -(-weigh(text) // CHARS_PER_TOKEN)
