"""Flush: before messages leave the context, lasting facts are written to today's note.

The model reads the messages as data and names facts. Whatever it answers, the only effect is one append to the daily
note, dated when it is written. Facts that a note has already are not written again.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import logging
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from kept.agent.answer import (
    TranscriptPiece,
    ask_about,
    is_empty_answer,
    read_in_pieces,
    retry,
    split_transcript,
    spoken,
    usage_fields,
)
from kept.agent.fence import clean_line
from kept.agent.session_log import ConversationView, LoggedMessage, SessionLog, run_to_end
from kept.base.limits import estimate_tokens
from kept.base.records import Written, cite
from kept.base.redact import REDACTED, redact
from kept.base.remote_errors import ModelError
from kept.base.values import frozen
from kept.base.visibility import private_folder_of
from kept.errors import KeptError
from kept.index.near_facts import find_notes
from kept.memory import Memory
from kept.models.base import ModelUsage, get_prompt
from kept.notes.daily import DailyNotes, find_daily
from kept.notes.history.note_history import Author
from kept.sessions.entries import FLUSH, StateEntry
from kept.sessions.forgotten_text import ForgottenText
from kept.sessions.transcript_paths import parse_transcript_name
from kept.storage.open import open_agent

if TYPE_CHECKING:
    from kept.agent.agent import AgentServices

_EXTRACTED_FACTS = 12
_COMPARED_NOTES = 8
"""Passages with the most words of a fact whose notes are compared with it."""
_PROVENANCE = re.compile(r"(?:\s*\(said \d{4}-\d\d-\d\d\))?\s*\(from sessions/[^()\s]*\)\s*$")
_MAX_ANSWER_TOKENS = 4_000
_MIN_ENDED_TOKENS = 200
"""A session with less that is new to a flush is not flushed at its end: a greeting has no facts."""

Outcome = Literal["written", "nothing", "failed"]

log = logging.getLogger(__name__)


async def flush_and_record(
    services: AgentServices, log: SessionLog, view: ConversationView, messages: Sequence[LoggedMessage]
) -> Outcome:
    """Flush messages that no earlier flush has read, and record the result in the transcript."""
    new = [logged for logged in messages if logged.line > view.flushed_line]
    through_line = max((logged.line for logged in messages), default=view.flushed_line)
    outcome, details = await _flush(services, log.path, new) if new else ("nothing", {})
    fields = {"outcome": outcome, "throughLine": through_line, "facts": 0}
    details = {name: value for name, value in details.items() if value}
    await run_to_end(log.add, StateEntry(FLUSH, fields | details))
    return outcome


async def _flush(
    services: AgentServices, path: str, messages: Sequence[LoggedMessage]
) -> tuple[Outcome, dict[str, Any]]:
    """Write lasting facts of these messages to today's note. A failure of the model or the disk is an outcome.

    Return also where the facts are, who wrote them, and why it failed. Empty values are not recorded.
    """
    if reason := services.memory.workspace.why_read_only():  # known before the model is paid for
        return "failed", {"reason": reason}
    facts: list[Fact] = []
    usage = ModelUsage()
    failure = fallback = None
    if services.model.writes:
        facts, usage, failure = await _ask_for_facts(services, path, messages)
    if failure is not None or not services.model.writes:
        fallback = "extractive"
        from kept.models.extractive import salient_facts

        sentences = salient_facts(spoken(messages), limit=_EXTRACTED_FACTS)
        facts += [Fact(sentence.with_speaker, sentence.line, sentence.line) for sentence in sentences]
    try:
        zone = services.memory.clock.now().tzinfo
        days = {logged.line: logged.entry.timestamp.astimezone(zone).date() for logged in messages}
        written, lines, proposed = await _write_new_facts(services, path, facts, days)
    except KeptError as exc:
        return "failed", {"reason": exc.message, "fallback": fallback}
    details = {
        "facts": len(written),
        "duplicates": len(facts) - len(written),
        "note": None if lines is None or lines.is_proposed else lines.citation,
        "review": None if lines is None else lines.review,
        "proposed": proposed,
        "reason": failure,
        "fallback": fallback,
        "usage": usage_fields(usage) if usage != ModelUsage() else None,
    }
    if services.model.writes:
        details |= {"model": services.model.name, "prompt": get_prompt("flush").label}
    return "failed" if failure is not None else "written" if written else "nothing", details


async def _ask_for_facts(
    services: AgentServices, path: str, messages: Sequence[LoggedMessage]
) -> tuple[list[Fact], ModelUsage, str | None]:
    """Return the facts that the model names, what that took, and why it failed. If a later piece of the conversation
    fails, the facts of earlier ones are kept."""
    facts: list[Fact] = []
    usage = ModelUsage()

    async def read(piece: TranscriptPiece) -> None:
        nonlocal usage
        today = f"{services.memory.clock.now():%A, %Y-%m-%d}"
        answer = await ask_about(services, "flush", path, piece, max_tokens=_MAX_ANSWER_TOKENS, date=today)
        usage += answer.end.usage
        facts.extend(parse_facts(answer.text, piece))

    try:
        await read_in_pieces(messages, services.budget.window // 2, read)
    except ModelError as exc:
        return facts, usage, exc.message
    return facts, usage, None


# writing


async def _write_new_facts(
    services: AgentServices, path: str, facts: Sequence[Fact], days: Mapping[int, dt.date]
) -> tuple[list[Fact], Written | None, int]:
    """Write the facts that are not in a note yet. Return them, where they are, and how many are proposed for MEMORY.md.
    A busy lock or a full disk is tried again."""
    new = await asyncio.to_thread(select_new_facts, services.memory, facts)
    if not new:
        return [], None, 0
    memory, today = services.memory, services.memory.clock.now().date()
    # The note is that of today; what was said on another day has its date.
    lines = [_fact_line(path, fact, day if (day := days.get(fact.first_line)) != today else None) for fact in new]
    author = Author(memory.config.agent_id, parse_transcript_name(os.path.basename(path))[0], "flush")

    # ``again``: they have been compared with the notes already, without their sources.
    written = await retry(
        lambda: run_to_end(memory.add, "\n".join(lines), again=True, by_tool=True, author=author),
        services.retry_wait_s,
    )
    lasting = [_fact_line(path, fact, days.get(fact.first_line)) for fact in new if fact.is_lasting]
    return new, written, await asyncio.to_thread(_propose, memory, lasting, author) if lasting else 0


def _fact_line(path: str, fact: Fact, said_on: dt.date | None) -> str:
    date = f" (said {said_on})" if said_on else ""
    return f"- {fact.text}{date} (from {cite(path, fact.first_line, fact.last_line)})"


def _propose(memory: Memory, lines: Iterable[str], author: Author) -> int:
    """Propose facts for MEMORY.md, which is part of every prompt, each by itself. Return how many.

    They are in the day's note already, so a proposal that fails loses nothing.
    """
    count = 0
    for line in lines:
        try:
            count += memory.add(line, to="memory", by_tool=True, only_propose=True, author=author).is_proposed
        except KeptError as exc:
            log.warning("a lasting fact could not be proposed (%s)", exc.code)
            break
    return count


def select_new_facts(memory: Memory, facts: Iterable[Fact]) -> list[Fact]:
    """Return the facts that neither a note nor an earlier fact states and that the user has not forgotten."""
    forgotten = ForgottenText(open_agent(memory.config))
    new: dict[str, Fact] = {}
    for fact in facts:
        normal = normalise_fact(fact.text)
        if not normal or normal in new or forgotten.matches(fact.text, memory.view.folder):
            continue
        if not any(normal in map(normalise_fact, note.splitlines()) for note in _iter_similar(memory, fact)):
            new[normal] = fact
    return list(new.values())


def _iter_similar(memory: Memory, fact: Fact) -> Iterator[str]:
    """Yield the notes that may have a fact: today's log, long-term memory, and those with its words. The index knows
    these as of its last sync. A private note of somebody does not tell it to everybody."""
    workspace, folder = memory.workspace, memory.view.folder
    log = find_daily(workspace, memory.clock.now().date(), DailyNotes(folder) if folder else None)
    paths = [log or "", f"{folder}/MEMORY.md".lstrip("/")]
    paths += find_notes(memory.config, fact.text, memory.visible, limit=_COMPARED_NOTES)
    is_shared = memory.viewer is None or memory.viewer.writes_shared
    for path in dict.fromkeys(filter(None, paths)):
        if not is_shared or private_folder_of(path) is None:
            with suppress(KeptError):
                yield workspace.read(workspace.locate(path), max_bytes=memory.settings.max_file_bytes).text


def normalise_fact(text: str) -> str:
    """Return a sentence without its source and without differences of case, width, punctuation and spacing."""
    plain = unicodedata.normalize("NFKC", _PROVENANCE.sub("", text)).casefold()
    return " ".join("".join(char if char.isalnum() else " " for char in plain).split())


async def flush_ended(services: AgentServices, log: SessionLog) -> None:
    """Flush what no flush has read, at the end of a session. Only the last part of a very long rest is read."""
    if not services.flushes or not services.memory.config.agent.compaction.memory_flush.at_session_end:
        return
    view = await asyncio.to_thread(log.view)
    new = [logged for logged in view.messages if logged.line > view.flushed_line]
    texts = [logged.message.text for logged in new if logged.message.role in ("user", "assistant")]
    if not services.model.writes or sum(map(estimate_tokens, texts)) < _MIN_ENDED_TOKENS:
        return
    pieces = split_transcript(new, services.budget.window // 2)[-2:]
    messages = [logged for logged in new if logged.line >= pieces[0].first_line]
    await flush_and_record(services, log, view, messages)


# Facts in an answer. Models answer in many ways: with a list, nested lists, JSON, or in words that there is nothing.
# Each fact becomes one line that makes sense without the others.

_LISTED_FACT_CHARS = 600
_MAX_FACTS = 100
_ITEM = re.compile(r"^(?P<indent>\s{0,12})(?:[-*+•–]|\d{1,3}[.)]|\(\d{1,3}\))\s+(?:\[[ xX]\]\s+)?(?P<text>.*)$")
_LINES = re.compile(r"\s*[\[(]?\bL(?P<first>\d{1,9})(?:\s*[-–]\s*L?(?P<last>\d{1,9}))?[\])]?\.?\s*$")
_LABEL = re.compile(r"\s*(?:#{1,6}\s.*|\*\*[^*]{1,80}\*\*:?|[^.!?|]{1,80}:)\s*$")
"""Line that names what follows: a heading, a line in bold, or words that end with a colon."""
_COURTESY = re.compile(
    r"\s*(?:let me know|i(?:'ve| have| will|'ll| hope| can)\b|is there anything|sure\b|okay\b|ok[,.]|certainly"
    r"|of course|as requested|done\b|noted\b|here (?:are|is)\b|these (?:facts|are)\b|the following\b)",
    re.IGNORECASE,
)
_LASTING = re.compile(r"^\s*[*_\[(]*lasting[*_\])]*\s*[:：-]\s*|\s*[\[(]lasting[\])]", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_FENCED_JSON = re.compile(r"^\s*```(?:json)?\s*\n(?P<body>.*?)\n```\s*$", re.DOTALL)


@frozen
class Fact:
    text: str
    first_line: int
    last_line: int
    is_lasting: bool = False
    """True if it will hold for months, and so belongs into long-term memory."""


def parse_facts(text: str, piece: TranscriptPiece) -> list[Fact]:
    """Return the facts in an answer: its list items, or each line if it has no list."""
    if is_empty_answer(text):
        return []
    entries = _read_json(text)
    if entries is None:
        entries = list(_iter_entries(text))
    facts = (_parse_fact(entry, piece) for entry in entries[:_MAX_FACTS])
    return [fact for fact in facts if fact]


def _read_json(text: str) -> list[str] | None:
    """Return the texts of an answer in JSON, or None if it is not JSON."""
    fenced = _FENCED_JSON.match(text)
    try:
        tree = json.loads(fenced["body"] if fenced else text)
    except (ValueError, RecursionError):
        return None
    return list(_iter_json_texts(tree)) if isinstance(tree, list | dict) else None


def _iter_json_texts(tree: Any) -> Iterator[str]:
    """Yield the sentences of a list of texts, or of objects that have them as ``fact``, ``text`` or ``content``."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, dict) and (own := tree.get("fact") or tree.get("text") or tree.get("content")):
        yield f"{own} [{tree['lines']}]" if "lines" in tree else str(own)
    elif isinstance(tree, list | dict):
        for item in tree if isinstance(tree, list) else tree.values():
            yield from _iter_json_texts(item)


def _iter_entries(text: str) -> Iterator[str]:
    lines = text.split("\n")
    if any(map(_ITEM.match, lines)):
        yield from _iter_items(lines)
        return
    sentences = [part for line in lines for part in _SENTENCE_END.split(line) if part.strip()]
    if any(map(is_empty_answer, sentences)) and not any(map(_LINES.search, lines)):
        return  # "It was small talk. There is nothing to remember."
    for line in lines:
        if line.strip() and not _LABEL.match(line) and not _COURTESY.match(line):
            yield line


def _iter_items(lines: Iterable[str]) -> Iterator[str]:
    """Yield the items of a list. An item that only names those below it is put before each of them."""
    labels: list[tuple[int, str]] = []
    for line in lines:
        match = _ITEM.match(line)
        if match is None:
            continue
        indent, text = len(match["indent"].expandtabs(4)), match["text"].strip()
        labels = [label for label in labels if label[0] < indent]
        if text.rstrip("*_ ").endswith(":") and len(text) <= _LISTED_FACT_CHARS:
            labels.append((indent, text.strip("*_ ").rstrip(":").strip("*_ ")))
            continue
        lead = "".join(f"{label}: " for _, label in labels)
        yield f"{lead}{text}"


def _parse_fact(text: str, piece: TranscriptPiece) -> Fact | None:
    """Return a fact, with the lines that are named at the end of its text."""
    match = _LINES.search(text)
    if match:
        text = text[: match.start()]
    is_lasting = _LASTING.search(text) is not None
    text = clean_line(redact(_LASTING.sub("", text)), _LISTED_FACT_CHARS).lstrip("#>-*+ ")
    is_said = not text.endswith(("?", "？")) and not text.startswith(("→", "←")) and not _COURTESY.match(text)
    is_secret = text.rstrip(" .`*_\"')").endswith(REDACTED)  # "The API key is [redacted]" tells nothing
    if is_empty_answer(text) or not is_said or is_secret:
        return None
    first, last = piece.first_line, piece.last_line
    if match:
        named = int(match["first"]), int(match["last"] or match["first"])
        if first <= named[0] <= named[1] <= last:  # the model has seen them
            first, last = named
    return Fact(text, first, last, is_lasting=is_lasting)
