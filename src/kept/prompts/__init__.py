"""What models are told, as Markdown files with slots.

The first line of each names its slots. An entry that came of a prompt records its name and hash, so that one can tell
later what the model had been told.
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
        """How an entry names the prompt it came of."""
        return f"{self.name}@{self.digest[:12]}"

    def fill(self, **given: str) -> str:
        """The prompt with its slots filled. What is filled in is not looked at again: it may hold braces."""
        if set(given) != set(self.slots):
            raise ValueError(f"prompt {self.name} has the slots {self.slots}, not {tuple(given)}")
        return _SLOT.sub(lambda found: given[found[1]], self.text)


@cache
def get_prompt(name: str) -> Prompt:
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
