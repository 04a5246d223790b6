"""Asks a model what to do about pairs of facts. Its answer only chooses among proposals, which a person accepts."""

from __future__ import annotations

import datetime as dt
import re
import secrets
from collections.abc import Sequence
from contextlib import aclosing

from kept.agent.answer import ModelAnswer
from kept.context.fence import clean_line, make_fence
from kept.llm.base import ChatModel, ChatRequest, Turn
from kept.prompts import get_prompt
from kept.redact import redact
from kept.workspace.fact_match import MAX_FACT_CHARS
from kept.workspace.fact_pairs import FactPair, propose, propose_merge, propose_replacement
from kept.workspace.proposal import Proposal

PAIRS_PER_REQUEST = 20
_ANSWER = r"\s*(\d{1,4})\s*[:.)]\s*(same|replaced|merge|different)\b\s*:?\s*(.*)"


async def review_pairs(model: ChatModel, pairs: Sequence[FactPair], now: dt.datetime) -> list[Proposal]:
    """Return the proposals that a model makes. Raise ModelError if it fails.

    Lines that are the same word for word need no model.
    """
    certain = [pair for pair in pairs if pair.relation == "repeats"]
    open_pairs = [pair for pair in pairs if pair.relation != "repeats"]
    proposals = [propose(pair, now.date()) for pair in certain]
    for at in range(0, len(open_pairs), PAIRS_PER_REQUEST):
        batch = open_pairs[at : at + PAIRS_PER_REQUEST]
        answer = await _ask(model, batch, now)
        proposals += read_answer(answer, batch, now.date(), model.name)
    return proposals


async def _ask(model: ChatModel, pairs: Sequence[FactPair], now: dt.datetime) -> str:
    text = "\n\n".join(_pair_text(number, pair) for number, pair in enumerate(pairs, 1))
    fence = make_fence(secrets.token_bytes(16), "tidy", [text])
    system = get_prompt("tidy").fill(marker=fence.marker, date=f"{now:%A}, {now:%Y-%m-%d}")
    request = ChatRequest(system, (Turn.of("user", fence.block("pairs of lines", text)),), (), purpose="tidy")
    answer = ModelAnswer()
    async with aclosing(model.stream(request)) as stream:
        async for event in stream:
            answer.read(event)
    return answer.text


def _pair_text(number: int, pair: FactPair) -> str:
    lines = ((name, fact.day, fact.raw) for name, fact in (("A", pair.old), ("B", pair.new)))
    shown = (f"{name}{f' ({day})' if day else ''}: {' '.join(redact(raw).split())}" for name, day, raw in lines)
    return f"Pair {number}\n" + "\n".join(shown)


def read_answer(answer: str, pairs: Sequence[FactPair], today: dt.date, source: str) -> list[Proposal]:
    """Return the proposals in a model's answer. Lines that are not of the form that was asked for are ignored."""
    proposals: dict[int, Proposal] = {}
    for line in answer.splitlines():
        match = re.match(_ANSWER, line, re.IGNORECASE)
        number = int(match[1]) if match else 0
        if match is None or not 1 <= number <= len(pairs) or number in proposals:
            continue
        pair, verdict = pairs[number - 1], match[2].lower()
        if verdict == "same":
            reason = f"{pair.new.citation} says the same as {pair.old.citation}."
            proposals[number] = Proposal("duplicate", (pair.new.edit(""),), reason, source)
        elif verdict == "replaced":
            proposals[number] = propose_replacement(pair.old, pair.new, today, source)
        elif verdict == "merge" and (text := clean_line(redact(match[3]), MAX_FACT_CHARS).lstrip("#>-*+ ")):
            proposals[number] = propose_merge(pair.old, pair.new, text, source)
    return list(proposals.values())
