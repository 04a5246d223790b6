"""NO_REPLY: how a model says that nothing is to be said. It is kept out of what is streamed, wherever it stands."""

from __future__ import annotations

from kept.agent.asking import NO_REPLY

_WRAPPING = "`'\"*_. "


class NoReplyFilter:
    """Gives on what may be shown, and holds back a last line as long as it may still become NO_REPLY."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        self._held += piece
        text = self._held.rstrip()
        start = text.rfind("\n") + 1
        # Blank lines are held back with it: before a NO_REPLY they would stand alone.
        end = len(text[:start].rstrip()) if may_become_quiet(text[start:]) else len(text)
        shown, self._held = self._held[:end], self._held[end:]
        return shown

    def finish(self) -> str:
        shown, self._held = without_quiet(self._held), ""
        return shown


def may_become_quiet(line: str) -> bool:
    bare = line.strip(_WRAPPING)
    return NO_REPLY.startswith(bare) if bare else True


def without_quiet(text: str) -> str:
    """The text without a last line that is NO_REPLY."""
    before, _, last = text.rstrip().rpartition("\n")
    return before.rstrip() if last.strip(_WRAPPING) == NO_REPLY else text


def is_quiet(text: str) -> bool:
    return not without_quiet(text).strip()
