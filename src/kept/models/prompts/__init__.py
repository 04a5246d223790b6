"""Prompts, as Markdown files with slots.

Entries that result from a prompt record its name and hash, so that the instructions which the model had can be
identified later.
"""

from __future__ import annotations

import hashlib
import os
import re
from functools import cache

from kept.base.values import frozen

_FOLDER = os.path.dirname(__file__)
_SLOT = re.compile(r"\{\{([a-z_]+)\}\}")


@frozen
class Prompt:
    text: str
    label: str
    """Reference to this prompt in an entry."""

    def fill(self, **values: str) -> str:
        """Return the prompt with its slots filled. Values are inserted verbatim, even if they contain braces."""
        return _SLOT.sub(lambda match: values[match[1]], self.text)


@cache
def get_prompt(name: str) -> Prompt:
    with open(os.path.join(_FOLDER, f"{name}.md"), encoding="utf-8") as file:
        raw = file.read()
    return Prompt(raw.strip(), f"{name}@{hashlib.sha256(raw.encode()).hexdigest()[:12]}")
