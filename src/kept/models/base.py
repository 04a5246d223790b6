"""Requests and events of a chat model, the protocol that every model implements, the size of a request, and prompts."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Literal, Protocol

from kept.base.digest import digest_bytes
from kept.base.limits import estimate_tokens, utf8_safe, utf8_safe_tree
from kept.base.values import frozen
from kept.config.schema import ThinkingLevel

NO_REPLY = "NO_REPLY"
"""An answer with this text alone means that there is nothing to send or to write down."""

Purpose = Literal["reply", "flush", "summary"]
"""Reason for a call. When the day's budget runs low, flushes and summaries are refused before replies."""


@frozen
class TextPart:
    text: str


MALFORMED = "malformed_arguments"
"""Name of the only argument of a `ToolUse` whose arguments were not JSON; its value is the raw text.

No tool accepts it, so each refuses the call and the model learns why.
"""


@frozen
class ToolUse:
    """Tool call by the model. Also an event: it is streamed once its arguments are complete."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@frozen
class ToolOutput:
    """Result or error of a tool."""

    call_id: str
    text: str
    is_error: bool = False


@frozen
class Thought:
    """Reasoning before an answer. Also an event: it is streamed once it is complete.

    A provider that signs it wants it back, unchanged, together with the tool calls that followed it.
    """

    text: str
    signature: str = ""
    """The provider's signature; with `REDACTED` before it, all that there is of an encrypted thought."""


REDACTED = "redacted:"


@frozen
class FilePart:
    """Picture or document."""

    media_type: str
    data: bytes
    name: str = ""

    @property
    def tokens(self) -> int:
        """Estimated: a picture takes about this much, and a page of a document about 50 kB."""
        pages = 1 if self.media_type.startswith("image/") else max(1, len(self.data) // 50_000)
        return 1_600 * pages


Part = FilePart | TextPart | ToolUse | ToolOutput | Thought


@frozen
class Turn:
    role: Literal["user", "assistant"]
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, role: Literal["user", "assistant"], text: str) -> Turn:
        return cls(role, (TextPart(text),))


@frozen
class ToolSpec:
    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON Schema of its arguments."""


@frozen
class ChatRequest:
    system: str
    turns: tuple[Turn, ...]
    """Such as `tidy_turns` returns."""
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int | None = None
    purpose: Purpose = "reply"
    conversation: str = ""
    """Key of the private conversation that is answered. A model that runs Kept's tools itself runs them for it."""
    thinking: ThinkingLevel | None = None
    """How much to think before the answer; None is the model's default."""
    stable_turns: int = 0
    """Number of leading turns that the next request of the conversation repeats, so that a provider can cache them."""


@frozen
class TextDelta:
    text: str


@frozen
class ModelUsage:
    input: int = 0
    output: int = 0
    cached: int = 0
    """Tokens of the input that the provider had cached."""

    def __add__(self, other: ModelUsage) -> ModelUsage:
        return ModelUsage(self.input + other.input, self.output + other.output, self.cached + other.cached)


EndReason = Literal["end", "tools", "length", "refused"]


@frozen
class Finished:
    """Last event of every stream."""

    reason: EndReason
    usage: ModelUsage


ModelEvent = TextDelta | ToolUse | ToolOutput | Thought | Finished
"""A ToolOutput comes from a model that runs tools itself, as does the ToolUse before it: they are not to be run."""


PICTURES = frozenset(("image/jpeg", "image/png", "image/gif", "image/webp"))
DOCUMENTS = frozenset(("application/pdf",))


class ModelWrapper:
    """A chat model around another one, whose description it takes over."""

    def __init__(self, model: ChatModel) -> None:
        self.provider = model.provider
        self.name = model.name
        self.context_window = model.context_window
        self.runs_tools = model.runs_tools
        self.writes = model.writes
        self.media = media_of(model)


def media_of(model: object) -> frozenset[str]:
    """Return the types of files that a model takes. One that does not say takes none."""
    media: frozenset[str] = getattr(model, "media", frozenset())
    return media


class ChatModel(Protocol):
    provider: str
    name: str
    """Name of the model at its provider."""
    context_window: int
    runs_tools: bool
    """True if it calls the tools that a request offers. A model that does not gets recalled memories only."""
    writes: bool
    """True for a language model. False for one that only picks sentences and needs no prompt."""

    def stream(self, request: ChatRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the events of one answer. Close the generator to abort the request.

        Raise ModelUnavailable, ModelFailed, ContextOverflow or BudgetExhausted, possibly after some events. A stream
        that ends without an error has ended with Finished.
        """
        ...

    async def close(self) -> None: ...


# tidying and measuring


def tidy_turns(turns: Iterable[Turn]) -> tuple[Turn, ...]:
    """Return turns that every provider accepts: the user comes first, roles alternate, and no text is blank.

    Lone surrogates are replaced: a transcript may hold them, they have no UTF-8, and one would end its conversation.
    """
    tidy: list[Turn] = []
    for turn in turns:
        parts: list[Part] = []
        for part in turn.parts:
            match part:
                case TextPart(text):
                    parts += [TextPart(utf8_safe(text))] if text.strip() else []
                case ToolUse():
                    arguments = utf8_safe_tree(dict(part.arguments))
                    parts.append(ToolUse(utf8_safe(part.id), utf8_safe(part.name), arguments))
                case Thought() | FilePart():
                    parts.append(part)
                case ToolOutput():
                    parts.append(replace(part, call_id=utf8_safe(part.call_id), text=utf8_safe(part.text)))
        if parts and tidy and tidy[-1].role == turn.role:
            tidy[-1] = Turn(turn.role, (*tidy[-1].parts, *parts))
        elif parts:
            tidy.append(Turn(turn.role, tuple(parts)))
    if tidy and tidy[0].role == "assistant":
        tidy.insert(0, Turn.of("user", "(The conversation began before this.)"))
    return tuple(tidy)


def count_tokens(request: ChatRequest) -> int:
    """Estimate how many tokens of the model's window a request fills."""
    texts = [request.system]
    texts += [part_text(part) for turn in request.turns for part in turn.parts]
    files = sum(part.tokens for turn in request.turns for part in turn.parts if isinstance(part, FilePart))
    texts += [f"{tool.name} {tool.description} {json.dumps(dict(tool.parameters))}" for tool in request.tools]
    return sum(map(estimate_tokens, texts)) + files


def part_text(part: Part) -> str:
    match part:
        case TextPart(text) | ToolOutput(text=text) | Thought(text=text):
            return text
        case FilePart():
            return part.name
        case ToolUse():
            return f"{part.name} {json.dumps(dict(part.arguments), ensure_ascii=False, default=str)}"


def usage_or_estimate(usage: ModelUsage, request: ChatRequest, answer: str) -> ModelUsage:
    """Return the provider's token counts, with estimates for those it did not report or that cannot be true."""
    if usage.input and (usage.output or not answer):
        return usage
    return ModelUsage(usage.input or count_tokens(request), usage.output or estimate_tokens(answer), usage.cached)


DEFAULT_CHOICE = "default"


class ModelFamily(ModelWrapper):
    """Chat model that replies, with its alternatives. A choice is opened when it is first used."""

    def __init__(
        self,
        main: ChatModel,
        choices: Mapping[str, Callable[[], ChatModel]],
        *,
        background: ChatModel | None = None,
    ) -> None:
        super().__init__(main)
        self.main = main
        self.background = background
        self.choices = tuple(choices)
        self._open_choice = choices
        self._opened: dict[str, ChatModel] = {}
        self._lock = threading.Lock()

    def find(self, choice: str | None) -> ChatModel | None:
        """Return the model of a choice, or None if the settings have no such choice. May raise ModelUnavailable."""
        if choice is None or choice not in self._open_choice:
            return None
        with self._lock:
            if choice not in self._opened:
                self._opened[choice] = self._open_choice[choice]()
            return self._opened[choice]

    def stream(self, request: ChatRequest) -> AsyncGenerator[ModelEvent, None]:
        return self.main.stream(request)

    async def close(self) -> None:
        for model in (self.main, self.background, *self._opened.values()):
            if model is not None:
                await model.close()


# prompts: Markdown files with slots

_PROMPTS = os.path.join(os.path.dirname(__file__), "prompts")
_SLOT = re.compile(r"\{\{([a-z_]+)\}\}")


@frozen
class Prompt:
    text: str
    label: str
    """Name and hash. Entries that result from a prompt record it, so that the instructions can be identified later."""

    def fill(self, **values: str) -> str:
        """Return the prompt with its slots filled. Values are inserted verbatim, even if they contain braces."""
        return _SLOT.sub(lambda match: values[match[1]], self.text)


@cache
def get_prompt(name: str) -> Prompt:
    with open(os.path.join(_PROMPTS, f"{name}.md"), encoding="utf-8") as file:
        raw = file.read()
    return Prompt(raw.strip(), f"{name}@{digest_bytes(raw.encode())[:12]}")
