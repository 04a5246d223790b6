"""One answer of the model as it arrives: what to show, what to record, and whether it says anything.

Some models write their reasoning in a <think> block before the answer. It is recorded and never shown. NO_REPLY is the
model's way to send nothing, in any case: at the beginning it silences the whole answer, elsewhere it is removed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from kept.models.base import NO_REPLY, Finished, ModelEvent, ModelUsage, TextDelta, Thought, ToolUse

_OPENING, _CLOSING = "<think>", "</think>"
_WRAPPING = "`'\"*_. "
_NO_REPLY_FIRST = re.compile(rf"[\s`'\"*_.([]*{NO_REPLY}(?![0-9A-Za-z])", re.IGNORECASE)
_NO_REPLY_LINE = re.compile(rf"^[`'\"*_. ]*{NO_REPLY}[`'\"*_. ]*$\n?", re.IGNORECASE | re.MULTILINE)
_NO_REPLY_LAST = re.compile(rf"\s*[`'\"*_]*\b{NO_REPLY}\b[`'\"*_.\s]*\Z")
_NOTHING = (
    "no_reply|no reply|none|nothing|n/a|nothing new|no facts|no new facts|no lasting facts|null|[]|{}"
    "|nichts|nichts neues|rien|rien à noter|nada|niente|niets|inget|ingenting|ничего"
    "|なし|特になし|无|没有|无新信息|ไม่มี|없음"
)
_NOTHING_WORDS = re.compile(
    r"(?:there (?:is|are|was|were) |i (?:have|found|see) |contains? |has )?"
    r"(?:nothing|no (?:new |lasting |durable |important |notable |further |additional )*"
    r"(?:facts?|information|memor(?:y|ies)|details?|decisions?|preferences?))\b"
    r"[^.;:]{0,60}?\b(?:to (?:remember|record|save|store|note|keep|flush|write|extract|add)|worth|said|new|noteworthy"
    r"|notable|lasting|were|was|here|in this|found|emerged|mentioned)\b",
    re.IGNORECASE,
)


@dataclass
class ModelAnswer:
    """One answer of the model, as far as it has arrived."""

    text: str = ""
    """The answer without its reasoning."""
    uses: list[ToolUse] = field(default_factory=list)
    thoughts: list[Thought] = field(default_factory=list)
    """Reasoning that the provider sends apart from the answer."""
    end: Finished = Finished("end", ModelUsage())
    was_shown: bool = False
    """True once text has been shown. The call can then not be repeated unnoticed."""
    reasoning: str = ""
    """Text of a <think> block at the beginning. A tag in the middle of an answer is text."""
    _buffer: str = ""
    """Beginning of the answer, as long as it may be part of such a block or of its tags."""
    _is_thinking: bool = False
    _has_begun: bool = False
    """True once the answer itself has begun."""
    _held_back: str = ""
    """End of the text, which could still become NO_REPLY."""

    def read(self, event: ModelEvent) -> str:
        """Take in an event, and return the text to show now."""
        shown = ""
        match event:
            case TextDelta(text):
                shown = self._show(self._take_reasoning(text))
            case ToolUse():
                self.uses.append(event)
            case Thought():
                self.thoughts.append(event)
            case Finished():
                self.end = event
                rest, self._buffer = self._buffer, ""
                if self._is_thinking:  # a block that was never closed is reasoning
                    self.reasoning, rest = self.reasoning + rest, ""
                shown = self._show(rest)
                shown += strip_no_reply(self._held_back)
                self._held_back = ""
        self.was_shown = self.was_shown or bool(shown)
        return shown

    def _show(self, text: str) -> str:
        """Return as much of the text as is certain to be part of the reply."""
        if not text:
            return ""
        self.text += text
        text = self._held_back + text
        if not self.was_shown and _NO_REPLY_FIRST.match(text):
            self._held_back = text
            return ""
        # Hold back a last word that could still become NO_REPLY, with the space before it: if it does, that would end
        # the reply.
        visible = text.rstrip()
        start = max(visible.rfind(" "), visible.rfind("\n")) + 1
        may_become_no_reply = NO_REPLY.casefold().startswith(visible[start:].strip(_WRAPPING).casefold())
        end = len(visible[:start].rstrip()) if may_become_no_reply else len(visible)
        shown, self._held_back = text[:end], text[end:]
        return _NO_REPLY_LINE.sub("", shown)

    def _take_reasoning(self, text: str) -> str:
        """Take in text, and return what of it belongs to the answer."""
        if self._has_begun:
            return text
        self._buffer += text
        while True:
            if self._is_thinking:
                end = self._buffer.lower().find(_CLOSING)
                if end < 0:
                    cut = max(0, len(self._buffer) - len(_CLOSING) + 1)
                    self.reasoning += self._buffer[:cut]
                    self._buffer = self._buffer[cut:]
                    return ""
                self.reasoning += self._buffer[:end]
                self._buffer, self._is_thinking = self._buffer[end + len(_CLOSING) :], False
            begin = self._buffer.lstrip()
            if begin.lower().startswith(_OPENING):
                self._buffer, self._is_thinking = begin[len(_OPENING) :], True
            elif _OPENING.startswith(begin.lower()):
                return ""  # blank so far, or it may still become a tag
            else:
                rest, self._buffer, self._has_begun = self._buffer, "", True
                return begin if self.reasoning else rest


def strip_no_reply(text: str) -> str:
    """Return a text as it is sent: empty if NO_REPLY comes first, else without NO_REPLY on a line or at the end."""
    if _NO_REPLY_FIRST.match(text):
        return ""
    if NO_REPLY.casefold() not in text.casefold():
        return text
    return _NO_REPLY_LAST.sub("", _NO_REPLY_LINE.sub("", text)).rstrip()


def is_no_reply(text: str) -> bool:
    """Return whether a text says NO_REPLY and nothing else that is sent."""
    return NO_REPLY.casefold() in text.casefold() and not strip_no_reply(text).strip()


def is_empty_answer(text: str) -> bool:
    """Return whether the answer to a flush or summary prompt is empty, in any of the words that models use for it."""
    plain = text.strip().strip("`'\"*_.!()[]- \n")
    if plain.casefold() in ("", *_NOTHING.split("|")) or _NO_REPLY_FIRST.match(text):
        return True
    return "\n" not in plain and _NOTHING_WORDS.match(plain) is not None
