"""The notes that `kept init` creates in an empty workspace."""

from __future__ import annotations

TEMPLATES = {
    "MEMORY.md": "# Memory\n",
    "USER.md": "# User\n",
}


def is_untouched_template(name: str, raw: bytes) -> bool:
    """Return whether a note holds nothing but the template of its name, or nothing at all."""
    text = raw.strip()
    template = TEMPLATES.get("MEMORY.md" if name == "memory.md" else name)
    return template is not None and (not text or text == template.strip().encode())
