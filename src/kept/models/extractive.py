"""Extractive model: picks the sentences worth keeping, verbatim and with their dates. Deterministic.

Flushes and compactions fall back to it without a language model, or if it fails.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator
from dataclasses import replace
from itertools import islice

from kept.base.limits import CHARS_PER_TOKEN, estimate_tokens, weigh
from kept.base.values import frozen
from kept.base.words.stopwords import content_words
from kept.models.base import (
    NO_REPLY,
    ChatRequest,
    Finished,
    ModelEvent,
    ModelUsage,
    TextDelta,
    TextPart,
    ToolOutput,
    ToolUse,
    count_tokens,
)
from kept.sessions.spoken import Utterance

_MIN_FACT_SCORE = 2.0
_HEADING_CHARS = len("\n2026-03-14:\n")
_MIN_LINE_CHARS = 30
_SEARCH = "memory_search"
_RECENCY = 0.2
"""Breaks ties in favour of later lines, and no more."""


def salient_facts(conversation: Iterable[Utterance], *, limit: int = 20) -> list[Utterance]:
    """Return the sentences worth remembering, in the order of the conversation."""
    best = islice(_pick(_score(conversation), min_score=_MIN_FACT_SCORE), limit)
    return [sentence.said for sentence in sorted(best, key=lambda sentence: sentence.order)]


def extract_summary(conversation: Iterable[Utterance], budget_tokens: int) -> str:
    """Return the best sentences that fit the budget, in order and grouped by day. Empty if none fits."""
    sentences = _score(conversation)
    # Small talk, which scores below zero, is used only if there is nothing else.
    least = min(0.0, max((sentence.score for sentence in sentences), default=0.0))
    left = budget_tokens * CHARS_PER_TOKEN
    chosen: dict[int, Utterance] = {}
    for sentence in _pick(sentences, min_score=least):
        # Count a heading for every line, so that the sum can only be too high.
        weight = weigh(_shown(sentence.said)) + 1 + _HEADING_CHARS
        if weight <= left:
            chosen[sentence.order] = sentence.said
            left -= weight
        elif left < _MIN_LINE_CHARS:
            break
    lines: list[str] = []
    day = ""
    for order in sorted(chosen):
        sentence_day = str(chosen[order].day)
        if sentence_day != day:
            day = sentence_day
            lines += ["", f"{day}:"] if lines else [f"{day}:"]
        lines.append(_shown(chosen[order]))
    return "\n".join(lines)


def _shown(sentence: Utterance) -> str:
    return f"- {sentence.when.partition(' ')[2]} {sentence.with_speaker} [L{sentence.line}]"


class ExtractiveChat:
    """Chat model without a language model, which answers with search results. Flushes and compactions do without it."""

    provider = "extractive"
    name = "extractive"
    runs_tools = True
    writes = False

    def __init__(self, *, context_window: int = 200_000) -> None:
        self.context_window = context_window

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ModelEvent, None]:
        input_tokens = count_tokens(request)
        answer = _reply(request)
        if isinstance(answer, ToolUse):
            yield answer
            yield Finished("tools", ModelUsage(input_tokens))
        else:
            yield TextDelta(answer)
            yield Finished("end", ModelUsage(input_tokens, estimate_tokens(answer)))

    async def close(self) -> None:
        """Do nothing: nothing is open."""


def _reply(request: ChatRequest) -> str | ToolUse:
    parts = request.turns[-1].parts if request.turns else ()
    results = [part.text for part in parts if isinstance(part, ToolOutput)]
    if results:
        return "\n\n".join(results)
    question = "\n".join(part.text for part in parts if isinstance(part, TextPart)).strip()
    if question and any(tool.name == _SEARCH for tool in request.tools):
        return ToolUse(f"search-{len(request.turns)}", _SEARCH, {"query": question})
    return NO_REPLY


# scoring sentences

MAX_SENTENCE_CHARS = 400
_MIN_LETTERS = 8
_SAME_OVERLAP = 0.7
"""Share of common words from which two sentences count as the same."""


@frozen
class Sentence:
    said: Utterance
    words: frozenset[str]
    """Those by which it is compared."""
    line: int
    """Index of the message that it is from."""
    order: int
    """Index among all sentences."""
    score: float


# Weights for and against keeping a sentence. The words are English; numbers, names, addresses and code work anywhere.
_CUES = (
    (r"(?i)\b(?:remember|don'?t forget|note that|for the record|important(?:ly)?|keep in mind)\b", 3.0),
    (r"(?i)\b(?:decid\w+|agree[ds]?|chose\w*|settled on|going with|plan(?:s|ned)? to|conclu\w+|resolved)\b", 2.5),
    (r"(?i)\bmy (?!god|goodness|bad\b)\w+(?:\s\w+){0,3} (?:is|are|was|were|has|lives?|works?)\b", 2.5),
    (r"(?i)\bI(?:'m| am| live| work| moved| was born| have| own| use| prefer| like| love| hate| need| want)\b", 1.5),
    (r"(?i)\b(?:always|never|must|should|prefer\w*|favou?rite|allerg\w+|birthday|anniversary|deadline|due)\b", 1.5),
    (r"(?i)\b(?:because|instead|no longer|from now on|changed?|moved?|switch\w+|renamed?|fixed|root cause)\b", 1.0),
    (r"(?i)\b(?:called|named|address|phone|port|version|password|server|account|budget|costs?|price)\b", 1.0),
    (r"\d", 1.0),
    (r"\b\d{4}-\d\d-\d\d\b|\b\d{1,2}[:.]\d\d\b|(?i:\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b)", 1.0),
    (r"https?://|[\w.+-]+@[\w-]+\.\w|(?:^|\s)[~./]?\w+/[\w./-]+|\b\w+_\w+\b|`[^`]+`", 1.0),
    (r"(?<=[\w,;] )[A-Z][a-z]+", 1.0),
    (r"""["“«「][^"”»」]{3,}["”»」]""", 0.5),
    (r"[?？]\s*$", -2.0),
    (r"(?i)^\W*(?:hi|hello|hey|thanks?|thank you|ok(?:ay)?|sure|great|yes|no|bye|good (?:morning|night)|lol)\b", -2.0),
    (r"(?i)\bI(?:'m| am) (?:fine|good|well|glad|happy|sorry|afraid|not sure|ready|here)\b", -3.0),
    (r"(?i)\b(?:let me know|happy to help|feel free|would you like|can i help|you'?re welcome|as an ai)\b", -3.0),
)

_ENDS = re.compile(r"(?:(?<=[.!?…])|(?<=[.!?…][\"'”’)\]]))\s+(?=[^a-z\s])|(?<=[。！？])|\n+")
_ABBREVIATION = re.compile(r"(?i)(?:^|[\s(])(?:dr|mr|mrs|ms|prof|st|vs|etc|e\.g|i\.e|no|approx|[a-z])\.$")
_FENCE = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_MARKUP = re.compile(r"^\s*(?:[-*+>]\s+|#{1,6}\s+|\d+[.)]\s+)+")


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text, each on one line. Code blocks are dropped: they do not belong in a summary."""
    parts: list[list[str]] = [[]]
    for part in _ENDS.split(_FENCE.sub("\n", text)):
        parts[-1].append(part)
        if not _ABBREVIATION.search(part[-12:]):
            parts.append([])
    tidy = (" ".join(_MARKUP.sub("", " ".join(part)).split()) for part in parts)
    # Of a script without spaces, four characters can be a sentence.
    return [_cut(part) for part in tidy if len(part) >= (_MIN_LETTERS if part.isascii() else _MIN_LETTERS // 2)]


def _cut(sentence: str) -> str:
    if len(sentence) <= MAX_SENTENCE_CHARS:
        return sentence
    start = sentence[: MAX_SENTENCE_CHARS - 1]
    return (start.rpartition(" ")[0] or start) + "…"


def _score(conversation: Iterable[Utterance]) -> list[Sentence]:
    """Return every sentence in order, scored by its cues, by how often its words recur, and by recency."""
    lines = list(conversation)
    sentence_words = [
        (at, replace(line, text=text), frozenset(content_words(text)))
        for at, line in enumerate(lines)
        for text in split_sentences(line.text)
        if not text.startswith("→")  # a tool call
    ]
    counts = Counter(word for _, _, words in sentence_words for word in words)
    sentences = []
    for order, (at, fact, words) in enumerate(sentence_words):
        cues = sum(weight for pattern, weight in _CUES if re.search(pattern, fact.text))
        # The logarithm keeps a word that is in every line from dominating.
        weights = [math.log1p(counts[word] - 1) for word in words]
        score = cues + sum(weights) / (3 + len(weights)) + _RECENCY * at / len(lines)
        sentences.append(Sentence(fact, words, at, order, score))
    return sentences


def _pick(sentences: Iterable[Sentence], *, min_score: float) -> Iterator[Sentence]:
    """Yield the best sentences first, without repetitions. Lazy: the cost depends on how many are taken."""
    picked: list[frozenset[str]] = []
    for sentence in sorted(sentences, key=lambda sentence: (-sentence.score, -sentence.line, sentence.said.text)):
        if sentence.score < min_score:
            return
        if not any(_is_same(sentence.words, other) for other in picked):
            picked.append(sentence.words)
            yield sentence


def _is_same(left: frozenset[str], right: frozenset[str]) -> bool:
    """Compare two sentences by their words. Different numbers mean different facts: port 5432 is not port 5433."""
    is_near = len(left & right) >= _SAME_OVERLAP * len(left | right)
    return is_near and not any(word.isdigit() for word in left ^ right)
