"""No model at all: the sentences that matter, as they were said, with their dates. The same talk gives the same text.

What a flush and a compaction fall back to when no model is there or it fails.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice

from kept.llm.base import (
    ChatRequest,
    Finished,
    ModelEvent,
    ModelUsage,
    TextDelta,
    TextPart,
    ToolOutput,
    ToolUse,
    Turn,
)
from kept.llm.measure import count_tokens
from kept.llm.salience import Sentence, pick, score_sentences
from kept.redact import redact
from kept.tokens import CHARS_PER_TOKEN, estimate_tokens, weigh
from kept.values import frozen

SUMMARY_TOKENS = 2_000
NO_REPLY = "NO_REPLY"
_MIN_FACT_SCORE = 2.0
_HEADING_CHARS = len("\n2026-03-14:\n")
_SMALLEST_LINE = 30
_SEARCH = "memory_search"


@frozen
class SpokenLine:
    """Something that was said, with what is known about it."""

    text: str
    speaker: str = ""
    when: dt.datetime | None = None
    source: str = ""
    """Where it stands, in whatever way the caller cites."""


@frozen
class ExtractedFact:
    text: str
    speaker: str
    when: dt.datetime | None
    source: str

    def __str__(self) -> str:
        time = f"{self.when:%H:%M} " if self.when else ""
        who = f"{self.speaker}: " if self.speaker else ""
        where = f" [{self.source}]" if self.source else ""
        return f"- {time}{who}{self.text}{where}"


Talk = Iterable[SpokenLine | Turn | str]


def salient_facts(talk: Talk, *, limit: int = 20, min_score: float = _MIN_FACT_SCORE) -> list[ExtractedFact]:
    """The sentences that are worth remembering, in the order they were said; none when there are none.

    Secrets are taken out of them, because notes are indexed as they are.
    """
    said = said_of(talk)
    best = islice(pick(score_sentences([one.text for one in said]), min_score=min_score), limit)
    return [_fact(said, one) for one in sorted(best, key=lambda one: one.order)]


def summarise(talk: Talk, budget_tokens: int) -> str:
    """The best sentences that fit into so many tokens, in order, by day. Empty when there are none, or none fits."""
    said = said_of(talk)
    left = budget_tokens * CHARS_PER_TOKEN
    chosen: dict[int, ExtractedFact] = {}
    for sentence in _worth_a_line(score_sentences([one.text for one in said])):
        fact = _fact(said, sentence)
        # A heading is counted for every line, so that the sum can only be too high.
        weight = weigh(str(fact)) + 1 + (_HEADING_CHARS if fact.when else 0)
        if weight <= left:
            chosen[sentence.order] = fact
            left -= weight
        elif left < _SMALLEST_LINE:
            break
    return render(chosen[order] for order in sorted(chosen))


def _worth_a_line(sentences: list[Sentence]) -> Iterator[Sentence]:
    """Small talk only where there was nothing else."""
    best = max((one.score for one in sentences), default=0.0)
    return pick(sentences, min_score=min(0.0, best))


def _fact(said: list[SpokenLine], sentence: Sentence) -> ExtractedFact:
    one = said[sentence.at]
    return ExtractedFact(sentence.text, _one_line(one.speaker), one.when, _one_line(one.source))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def render(facts: Iterable[ExtractedFact]) -> str:
    """A list under a heading for each day."""
    lines: list[str] = []
    day = ""
    for fact in facts:
        if fact.when and f"{fact.when:%Y-%m-%d}" != day:
            day = f"{fact.when:%Y-%m-%d}"
            lines += ["", f"{day}:"] if lines else [f"{day}:"]
        lines.append(str(fact))
    return "\n".join(lines)


def said_of(talk: Talk) -> list[SpokenLine]:
    """Tool calls and results are left out: what they brought is in the answers that were made of it."""
    found: list[SpokenLine] = []
    for one in talk:
        match one:
            case SpokenLine():
                found.append(SpokenLine(redact(one.text), one.speaker, one.when, one.source))
            case Turn():
                text = "\n\n".join(part.text for part in one.parts if isinstance(part, TextPart))
                found.append(SpokenLine(redact(text), one.role))
            case str():
                found.append(SpokenLine(redact(one)))
    return found


class ExtractiveChat:
    """The same as a model: it summarises, notes facts down, and answers a question with what the search finds."""

    provider = "extractive"
    name = "extractive"
    runs_tools = True

    def __init__(self, *, context_window: int = 200_000) -> None:
        self.context_window = context_window

    async def stream(self, request: ChatRequest) -> AsyncIterator[ModelEvent]:
        read = count_tokens(request)
        answer = _answer(request)
        if isinstance(answer, ToolUse):
            yield answer
            yield Finished("tools", ModelUsage(read))
        else:
            yield TextDelta(answer)
            yield Finished("end", ModelUsage(read, estimate_tokens(answer)))

    async def close(self) -> None:
        """Nothing is open."""


def _answer(request: ChatRequest) -> str | ToolUse:
    match request.purpose:
        case "summary":
            return summarise(request.turns, request.max_tokens or SUMMARY_TOKENS) or NO_REPLY
        case "flush":
            return "\n".join(map(str, salient_facts(request.turns))) or NO_REPLY
        case "reply":
            return _reply(request)


def _reply(request: ChatRequest) -> str | ToolUse:
    parts = request.turns[-1].parts if request.turns else ()
    found = [part.text for part in parts if isinstance(part, ToolOutput)]
    if found:
        return "\n\n".join(found)
    question = "\n".join(part.text for part in parts if isinstance(part, TextPart)).strip()
    if question and any(tool.name == _SEARCH for tool in request.tools):
        return ToolUse(f"search-{len(request.turns)}", _SEARCH, {"query": question})
    return summarise(request.turns[:-1], request.max_tokens or SUMMARY_TOKENS) or NO_REPLY
