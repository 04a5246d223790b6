"""Answers of the model: one as it arrives, what of it to show and to record, and those to calls outside of a reply.

Some models write their reasoning in a <think> block before the answer. It is recorded and never shown. NO_REPLY is the
model's way to send nothing, in any case: at the beginning it silences the whole answer, elsewhere it is removed.

A call outside of a reply waits for the whole answer, is retried, and reads a long conversation in pieces.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeVar

from kept.agent.fence import make_fence
from kept.agent.session_log import LoggedMessage
from kept.base.clock import Backoff
from kept.base.limits import estimate_tokens, shorten
from kept.base.remote_errors import ContextOverflow
from kept.base.values import frozen
from kept.errors import KeptError
from kept.models.base import (
    NO_REPLY,
    ChatRequest,
    Finished,
    ModelEvent,
    ModelUsage,
    TextDelta,
    Thought,
    ToolUse,
    Turn,
    get_prompt,
)
from kept.sessions.entries import TokenUsage
from kept.sessions.spoken import Utterance, find_utterance

if TYPE_CHECKING:
    from kept.agent.agent import AgentServices

ATTEMPTS = 3
MAX_RETRY_WAIT_S = 30.0
_HALVINGS = 3

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

T = TypeVar("T")


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


# calls outside of a reply


async def ask_about(
    services: AgentServices,
    purpose: Literal["flush", "summary"],
    path: str,
    piece: TranscriptPiece,
    *,
    before: str = "",
    max_tokens: int,
    **slots: str,
) -> ModelAnswer:
    """Return the whole answer to a prompt about a piece of a conversation, and a summary of what came before. Raise the
    last error if every attempt fails."""
    fence = make_fence(services.secret, f"{purpose}:{path}", [piece.text, before])
    blocks = [fence.block("summary", before, of="what came before")] if before.strip() else []
    turn = Turn.of("user", "\n".join([*blocks, fence.block("conversation", piece.text, source=path)]))
    system = get_prompt(purpose).fill(marker=fence.marker, **slots)
    request = ChatRequest(system, (turn,), max_tokens=max_tokens, purpose=purpose)

    async def ask() -> ModelAnswer:
        answer = ModelAnswer()
        async with aclosing(services.model.stream(request)) as stream:
            async for event in stream:
                answer.read(event)
        return answer

    return await retry(ask, services.retry_wait_s)


async def retry(action: Callable[[], Awaitable[T]], wait_s: float) -> T:
    """Run an action until it succeeds, fails for good, or has failed `ATTEMPTS` times."""
    backoff = Backoff(wait_s, MAX_RETRY_WAIT_S)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return await action()
        except KeptError as exc:
            if not exc.retryable or attempt == ATTEMPTS:
                raise
        await asyncio.sleep(backoff.next_s())
    raise AssertionError("the last attempt returns or raises")


async def read_in_pieces(
    messages: Sequence[LoggedMessage],
    budget_tokens: int,
    read: Callable[[TranscriptPiece], Awaitable[None]],
    *,
    halvings: int = _HALVINGS,
) -> None:
    """Call ``read`` with one piece of a conversation after the other.

    A piece that the model refuses as too long is split again. If a later piece fails, the earlier ones have been read.
    """
    for piece in split_transcript(messages, budget_tokens):
        try:
            await read(piece)
        except ContextOverflow:
            if halvings == 0:
                raise
            inside = [logged for logged in messages if piece.first_line <= logged.line <= piece.last_line]
            await read_in_pieces(inside, budget_tokens // 2, read, halvings=halvings - 1)


@frozen
class TranscriptPiece:
    """Consecutive messages of a transcript as text, with their line numbers."""

    first_line: int
    last_line: int
    text: str


def split_transcript(messages: Sequence[LoggedMessage], budget_tokens: int) -> list[TranscriptPiece]:
    """Return a conversation as text, in as few pieces as fit the budget. A message that does not fit is shown in
    part."""
    pieces: list[list[tuple[int, str]]] = []
    left = 0
    for logged in messages:
        utterance = find_utterance(logged.line, logged.entry)
        if utterance is None:
            continue
        # "L12 [2026-03-14 15:09] Ann: …". Further lines are indented.
        line = "\n  ".join(f"L{logged.line} {utterance.shown}".splitlines())
        text = shorten(line, budget_tokens, "the rest is in the transcript")
        tokens = estimate_tokens(text) + 1
        if tokens > left or not pieces:
            pieces.append([])
            left = budget_tokens
        pieces[-1].append((logged.line, text))
        left -= tokens
    return [TranscriptPiece(piece[0][0], piece[-1][0], "\n".join(text for _, text in piece)) for piece in pieces]


def spoken(messages: Sequence[LoggedMessage]) -> list[Utterance]:
    """Return what people and the agent said, for the extractive model."""
    talk = (logged for logged in messages if logged.message.role in ("user", "assistant"))
    return list(filter(None, (find_utterance(logged.line, logged.entry) for logged in talk)))


def usage_fields(usage: ModelUsage | TokenUsage) -> dict[str, int]:
    """Return usage as it is recorded in entries."""
    return {"input": usage.input, "output": usage.output}
