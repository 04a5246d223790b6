"""NO_REPLY: the model's way to send nothing. It is removed from streamed and recorded replies."""

from __future__ import annotations

from kept.llm.base import NO_REPLY

_WRAPPING = "`'\"*_. "
_EMPTY_ANSWERS = ("", "no_reply", "no reply", "none", "nothing", "n/a")


class NoReplyFilter:
    """Passes streamed text through, holding back the last line while it could still be NO_REPLY."""

    def __init__(self) -> None:
        self._buffer = ""

    def feed(self, piece: str) -> str:
        """Return the text that can be shown now."""
        self._buffer += piece
        text = self._buffer.rstrip()
        start = text.rfind("\n") + 1
        # Hold back blank lines before it too: if it is NO_REPLY, they would end the reply.
        end = len(text[:start].rstrip()) if _may_become_no_reply(text[start:]) else len(text)
        ready, self._buffer = self._buffer[:end], self._buffer[end:]
        return ready

    def finish(self) -> str:
        """Return the rest at the end of the stream."""
        rest, self._buffer = strip_no_reply(self._buffer), ""
        return rest


def _may_become_no_reply(line: str) -> bool:
    bare = line.strip(_WRAPPING)
    return NO_REPLY.startswith(bare) if bare else True


def strip_no_reply(text: str) -> str:
    """Return a text without a last line that is NO_REPLY."""
    before, _, last = text.rstrip().rpartition("\n")
    return before.rstrip() if last.strip(_WRAPPING) == NO_REPLY else text


def is_no_reply(text: str) -> bool:
    """Return whether a reply has nothing to send."""
    return not strip_no_reply(text).strip()


def is_empty_answer(text: str) -> bool:
    """Return whether the answer to a flush or summary prompt is empty, in any of the words that models use for it."""
    return text.strip().strip("`'\"*_.!()[]- \n").casefold() in _EMPTY_ANSWERS
