"""The notes that `kept init` creates in an empty workspace, and those of `kept init --full`: the files of `new_notes`,
which do not have their names there, so that no agent that works in this folder takes them for its own."""

from __future__ import annotations

import os

TEMPLATES = {"MEMORY.md": "# Memory\n", "USER.md": "# User\n"}
_FOLDER = os.path.join(os.path.dirname(__file__), "new_notes")


def full_templates() -> dict[str, str]:
    """Return the name and the text of each note of `kept init --full`."""
    texts = {}
    for name in sorted(os.listdir(_FOLDER)):
        with open(os.path.join(_FOLDER, name), encoding="utf-8") as file:
            texts[f"{name.removesuffix('.txt')}.md"] = file.read()
    return texts


def is_untouched_template(name: str, raw: bytes) -> bool:
    """Return whether a note holds nothing but a template of its name, or nothing at all."""
    name = "MEMORY.md" if name == "memory.md" else name
    texts = [templates[name].strip().encode() for templates in (TEMPLATES, full_templates()) if name in templates]
    return bool(texts) and raw.strip() in (b"", *texts)
