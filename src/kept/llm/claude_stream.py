"""What `claude --print --output-format stream-json` writes, understood line by line. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

from kept.errors import ContextOverflow, ModelError, ModelFailed, ModelRefused, ModelUnavailable
from kept.llm.account import OVERFLOW
from kept.llm.base import ModelUsage
from kept.llm.listen import clean, count_told
from kept.net.text import Redactor, one_line, shorten

LABEL = "Claude Code"
_NO_ACCESS = re.compile(
    r"invalid api key|/login|not logged in|authenticat|oauth|credit balance|billing|selected model", re.IGNORECASE
)
_PASSING = re.compile(r"overloaded|rate.?limit|usage limit|timed? ?out|connection|50\d|529|429|temporar", re.IGNORECASE)
_say = Redactor([])


class ClaudeStream:
    """Put together from its lines: ``text`` returns what is new of the answer, ``error`` and ``finish`` its end."""

    def __init__(self) -> None:
        self.usage = ModelUsage()
        self.finish: str | None = None
        """The reason of the last message, in Anthropic's words; None until the program says that it is done."""
        self.error: ModelError | None = None
        self._message_has_streamed = False
        self._said = False
        self._gap = False

    def take(self, line: bytes) -> str:
        """New text of the answer. A line that is not of this format says nothing: later versions may add more."""
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            return ""
        if not isinstance(event, dict) or event.get("parent_tool_use_id"):
            return ""
        match event.get("type"):
            case "stream_event":
                return self._take_part(_mapping(event.get("event")))
            case "assistant":
                return self._take_message(event)
            case "result":
                return self._take_result(event)
        return ""

    def _take_part(self, part: dict[str, Any]) -> str:
        if part.get("type") == "message_start":
            self._message_has_streamed = False
            self._gap = self._said
        delta = _mapping(part.get("delta"))
        if part.get("type") != "content_block_delta" or delta.get("type") != "text_delta":
            return ""
        self._message_has_streamed = True
        return self._say(str(delta.get("text") or ""))

    def _take_message(self, event: dict[str, Any]) -> str:
        """A whole message: news only where its pieces were not streamed. The program's own words are no answer."""
        message = _mapping(event.get("message"))
        if message.get("model") == "<synthetic>" or event.get("error") or self._message_has_streamed:
            return ""
        self._gap = self._said
        blocks = message.get("content")
        texts = [_mapping(block).get("text") for block in blocks] if isinstance(blocks, list) else []
        return self._say("\n\n".join(text for text in texts if isinstance(text, str) and text))

    def _take_result(self, event: dict[str, Any]) -> str:
        result = event.get("result")
        text = result if isinstance(result, str) else ""
        self.usage = _usage(_mapping(event.get("usage")))
        self.finish = str(event.get("stop_reason") or "end_turn")
        if self.finish == "refusal":
            return ""
        if event.get("is_error") or event.get("subtype") not in (None, "success"):
            reason = str(event.get("terminal_reason") or event.get("subtype") or "")
            self.error = explain(text or reason, status=event.get("api_error_status"), reason=reason)
            return ""
        return "" if self._said else self._say(text)

    def _say(self, text: str) -> str:
        """Messages before and after a tool are paragraphs of one answer."""
        if not text:
            return ""
        lead = "\n\n" if self._gap else ""
        self._gap, self._said = False, True
        return lead + clean(text)


def explain(said: str, *, status: object = None, reason: str = "") -> ModelError:
    """What the words of the program mean."""
    line = shorten(one_line(_say(said))) or "it did not say why"
    if reason == "prompt_too_long" or OVERFLOW.search(said):
        return ContextOverflow(f"{LABEL}: the request is longer than the model takes ({line}).")
    if status in (401, 402, 403, 404) or _NO_ACCESS.search(said):
        return ModelUnavailable(
            f"{LABEL} cannot be used: {line}.", hint="Run 'claude' once to log in; check model.name."
        )
    if "unknown option" in said:
        return ModelUnavailable(f"{LABEL} is too old ({line}).", hint="Update it: claude update")
    if isinstance(status, int) and status < 500 and status not in (408, 409, 429) and not _PASSING.search(said):
        return ModelRefused(f"{LABEL} does not accept the request ({line}).", hint="Check model.name.")
    return ModelFailed(f"{LABEL} failed ({line}).", hint="Try again in a moment.")


def _usage(told: dict[str, Any]) -> ModelUsage:
    def count(name: str) -> int:
        return count_told(told.get(name))

    cached = count("cache_read_input_tokens")
    return ModelUsage(
        count("input_tokens") + cached + count("cache_creation_input_tokens"), count("output_tokens"), cached
    )


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
