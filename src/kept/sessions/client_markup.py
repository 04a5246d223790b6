"""Markup that chat clients put into a user's messages: reminders, commands and their output, the editor's state.

It is part of the transcript, and not what the person said:

    <command-name>/review</command-name><command-args>the login page</command-args>    →  /review the login page
    <command-name>/exit</command-name>                                                →
    Which port?<system-reminder>The date is…</system-reminder>                        →  Which port?
"""

from __future__ import annotations

import re

from kept.sessions.entries import Message

_REMINDER, _REMINDER_END = "<system-reminder>", "</system-reminder>"
_DROPPED = (
    "command-message|command-contents|local-command-stdout|local-command-stderr|local-command-caveat|bash-stdout|"
    "bash-stderr|task-notification|user-prompt-submit-hook|ide_opened_file|ide_selection|ide_diagnostics|"
    "environment_context|user_instructions"
)
_KEPT = "command-name|command-args|bash-input|user-memory-input"
_ELEMENT = rf"\s*<({_DROPPED}|{_KEPT})>(.*?)</\1>\s*"
_MAX_ELEMENTS = 50
_CODEX_REQUEST = "## My request for Codex:"
"""Codex's editor extension puts open files and the selection above this line."""


_HIDDEN = "isMeta"
"""Metadata of messages that Claude Code wrote for the model and does not show."""


def is_hidden(message: Message) -> bool:
    """Return whether a client wrote a message for the model and does not show it to the person."""
    return message.role == "system" and bool(message.metadata.get(_HIDDEN))


def strip_markup(text: str) -> str:
    """Return what the person said in a message. Empty if it is only a command without arguments, or its output.

    Only complete elements are removed: reminders anywhere, all others at the start, where clients put them. A person
    who writes about such a tag in the middle of a sentence is quoted as they wrote it.
    """
    if _CODEX_REQUEST in text:
        text = text.partition(_CODEX_REQUEST)[2].strip() or text
    if "<" not in text:
        return text
    bare = _without_reminders(text) if _REMINDER in text else text
    command, parts = "", []
    for _ in range(_MAX_ELEMENTS):
        match = re.match(_ELEMENT, bare, flags=re.DOTALL)
        if match is None:
            break
        bare = bare[match.end() :]
        name, content = match[1], match[2].strip()
        if name == "command-name":
            command = content
        elif name == "command-args":
            parts.append(f"{command} {content}".strip() if content else "")
        elif name in ("bash-input", "user-memory-input") and content:
            parts.append(f"{'!' if name == 'bash-input' else '#'} {content}")
    return "\n".join(part for part in (*parts, bare) if part.strip())


def _without_reminders(text: str) -> str:
    """Return a text without its reminders, in one pass over it: a regular expression would start again at every tag
    that is never closed."""
    parts, at = [], 0
    while (start := text.find(_REMINDER, at)) >= 0 and (end := text.find(_REMINDER_END, start)) >= 0:
        parts.append(text[at:start])
        at = end + len(_REMINDER_END)
    return "".join((*parts, text[at:])).strip()
