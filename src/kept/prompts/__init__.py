"""Prompts, as Markdown files with slots.

The first line of each file declares its slots. Entries that result from a prompt record its name and hash, so that the
instructions which the model had can be identified later.
"""

from __future__ import annotations

import hashlib
import os
import re
from functools import cache

from kept.values import frozen

_FOLDER = os.path.dirname(__file__)
_HEAD = re.compile(r"<!-- slots:(?P<slots>[a-z_, ]*) -->\n")
_SLOT = re.compile(r"\{\{([a-z_]+)\}\}")


@frozen
class Prompt:
    name: str
    text: str
    slots: tuple[str, ...]
    digest: str

    @property
    def label(self) -> str:
        """Reference to this prompt in an entry."""
        return f"{self.name}@{self.digest[:12]}"

    def fill(self, **values: str) -> str:
        """Return the prompt with its slots filled. Values are inserted verbatim, even if they contain braces."""
        if set(values) != set(self.slots):
            raise ValueError(f"prompt {self.name} has the slots {self.slots}, not {tuple(values)}")
        return _SLOT.sub(lambda match: values[match[1]], self.text)


@cache
def get_prompt(name: str) -> Prompt:
    """Return the prompt of a name. Raise ValueError if its declared slots are not those in its text."""
    with open(os.path.join(_FOLDER, f"{name}.md"), encoding="utf-8") as file:
        raw = file.read()
    head = _HEAD.match(raw)
    if head is None:
        raise ValueError(f"prompt {name} does not begin with its slots")
    slots = tuple(slot.strip() for slot in head["slots"].split(",") if slot.strip())
    text = raw[head.end() :].strip()
    if set(slots) != set(_SLOT.findall(text)):
        raise ValueError(f"prompt {name} declares other slots than it has")
    return Prompt(name, text, slots, hashlib.sha256(raw.encode()).hexdigest())
