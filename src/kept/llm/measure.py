"""How long a request is, for whoever cannot ask the model."""

from __future__ import annotations

import json

from kept.llm.base import ChatRequest, Part, TextPart, ToolOutput, ToolUse
from kept.tokens import estimate_tokens


def count_tokens(request: ChatRequest) -> int:
    """About how much of the window a request fills."""
    texts = [request.system]
    texts += [_text_of(part) for turn in request.turns for part in turn.parts]
    texts += [f"{tool.name} {tool.description} {json.dumps(dict(tool.parameters))}" for tool in request.tools]
    return sum(map(estimate_tokens, texts))


def _text_of(part: Part) -> str:
    match part:
        case TextPart(text) | ToolOutput(text=text):
            return text
        case ToolUse():
            return f"{part.name} {json.dumps(dict(part.arguments), default=str)}"
