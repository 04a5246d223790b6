"""Material of a turn from outside its conversation: workspace files, and memories that are relevant to the message.

The request of the turn is built from it.

Notes of today and yesterday go before the first message of a day. Like memories that were recalled, they are sent with
that message only: the answer has drawn on them, and a search finds them again.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from kept.agent.context import RecalledPassage, TurnMaterial, choose_shown, read_context
from kept.agent.events import Inbound
from kept.agent.session_log import ConversationView, SessionLog
from kept.base.limits import CHARS_PER_TOKEN, clip, weigh
from kept.base.records import Hit, SeenTail, cite, parse_citation
from kept.base.words.stopwords import content_words
from kept.errors import EmptyQuery, KeptError
from kept.memory import Memory
from kept.models.base import media_of
from kept.notes.daily import DailyNotes, find_daily
from kept.notes.workspace import INFORMING, INSTRUCTING
from kept.search.memory_view import MOST_RESULTS, show_problems
from kept.sessions.attachments import load_attachment
from kept.sessions.session_key import DEFAULT_CHAT_TYPE
from kept.sessions.title import is_greeting

if TYPE_CHECKING:
    from kept.agent.agent import AgentServices

QUERY_CHARS = 1_000
_SPARE_HITS = 8
"""Additional hits to search for, since some of the best are in the conversation already."""
_FOLLOW_UP_WORDS = 3
"""A message with at most this many content words may refer to the one before it."""
_REFERRING_WORDS = 8
"""The same for a message with a word that refers to something. A longer one says what it is about."""
_REFERRING = re.compile(
    r"\b(?:it|its|that|this|they|them|their|he|him|his|she|her|there|those|these|one|ones)\b"
    r"|^\W*(?:and|but|so|or|then|what about|how about)\b",
    re.IGNORECASE,
)
_CARRIED, _CARRIED_CHARS = 2, 700
"""Memories recalled for the previous message that a follow-up gets again, and the size of each."""
_SOURCE = re.compile(r"\(from (sessions/[^()\s]+#L\d+(?:-L\d+)?)\)")
UNTRUSTED = (
    "{names} of {workspace} are data for the model, not instructions: only --workspace or KEPT_WORKSPACE "
    "names that workspace. Name it in config.yaml to make them instructions."
)

KnownLines = tuple[str, int, float]
"""A note with the first and last of its lines that are in the context without being recalled."""


def gather_material(services: AgentServices, log: SessionLog, messages: Sequence[Inbound]) -> TurnMaterial:
    """Return what the requests of a turn are made of, for the conversation as it is now."""
    memory, view, model = services.memory, log.view(), services.model
    problems: list[str] = []
    is_first = len(view.inbound) <= len(messages)
    if is_first and memory.settings.sync.on_session_start:  # index changes since the last session, before a search
        try:
            problems += show_problems(memory.viewer, memory.sync().failures)
        except KeptError as exc:
            problems.append(f"The index could not be updated: {exc.message}")
    files, unread = read_files(memory)
    ids = [message.id for message in messages]
    days = read_day_notes(services, view, ids)
    shown = choose_shown(files, services.budget)
    known: list[KnownLines] = [(file.name, 1, file.cut_from - 1 if file.cut_from else math.inf) for file in shown]
    known += filter(None, (parse_citation(day.citation) for day in days))
    question = "\n".join(message.text for message in messages)
    # The last message before these that has content words and is not a greeting.
    earlier = (logged.message.text for logged in reversed(view.inbound) if logged.inbound_id not in ids)
    previous = next((text for text in earlier if len(content_words(text)) > 1 and not is_greeting(text)), "")
    recalled: list[RecalledPassage] = []
    unsearched: list[str] = []
    # The extractive model searches for the question itself and answers with the results.
    if model.writes and (limit := memory.config.gateway.auto_responder.memory_search_max_results):
        seen = SeenTail(log.path, view.messages[0].line if view.messages else 0)
        queries = plan_queries(question, previous)
        recalled, unsearched = recall(memory, queries, known, seen=seen, limit=limit)
        if len(queries) > 1:
            recalled += _carry_over(memory, view, {passage.citation for passage in recalled})
    mode = memory.settings.citations
    return TurnMaterial(
        view=view,
        path=log.path,
        agent=memory.config.agent_id,
        now=memory.clock.now(),
        files=files,
        days=tuple(days),
        recalled=tuple(recalled),
        problems=(*problems, *unread, *unsearched),
        # Whether replies name their sources. A private conversation is left to the model.
        cites=mode == "on" if mode != "auto" else None if log.record.chat_type == DEFAULT_CHAT_TYPE else False,
        thinker=model.name,
        thinking=memory.config.agent.model.thinking,
        conversation="" if memory.viewer is None else log.key,
        media=media_of(model),
        load_file=partial(load_attachment, log.transcript.storage),
        tools=services.tool_specs(),
        trusts_files=memory.config.trusts_workspace,
        fenced=model.writes,
    )


def read_files(memory: Memory) -> tuple[dict[str, str], list[str]]:
    """Return the texts of the workspace files that are part of every prompt, and notices. A file that cannot be read is
    reported and left out."""
    files: dict[str, str] = {}
    problems: list[str] = []
    workspace, most = memory.workspace, memory.settings.max_file_bytes
    own = [f"{folder}/MEMORY.md" for folder in memory.visible.own_folders] if memory.viewer else []
    for name in (*INSTRUCTING, *INFORMING, *own):
        if name == "memory.md" and "MEMORY.md" in files:
            continue
        if name == "HEARTBEAT.md" and not memory.config.agent.heartbeat.every:
            continue
        try:
            if workspace.find(name):
                files[name] = workspace.read(workspace.locate(name), max_bytes=most).text
        except KeptError as exc:
            problems.append(f"{name} is left out: {exc.message}")
    instructing = [name for name in files if name in INSTRUCTING]
    if instructing and not memory.config.trusts_workspace:
        problems.append(UNTRUSTED.format(names=" and ".join(instructing), workspace=workspace.root))
    return files, problems


def read_checklist(memory: Memory) -> str:
    """Return what HEARTBEAT.md says, or an empty text."""
    try:
        return memory.read("HEARTBEAT.md").text
    except KeptError:
        return ""


def plan_queries(question: str, previous: str) -> list[str]:
    """Return what to search for. A message that refers to the previous one ("And when does it ship?") is searched
    together with it, and by itself, because it may also begin something new."""
    own = question[:QUERY_CHARS]
    words = len(content_words(question))
    refers = words <= _FOLLOW_UP_WORDS or (words <= _REFERRING_WORDS and _REFERRING.search(question))
    if not previous or not refers:
        return [own]
    return [f"{previous[: max(0, QUERY_CHARS - len(own) - 1)]}\n{own}"[:QUERY_CHARS], own]


def recall(
    memory: Memory, queries: Sequence[str], known: Sequence[KnownLines], *, seen: SeenTail, limit: int
) -> tuple[list[RecalledPassage], list[str]]:
    """Search for memories that are relevant and not in the context already. Hits of several queries take turns. Return
    also notices about what failed."""
    if not memory.settings.enabled:
        return [], []
    results = []
    try:
        for query in queries:
            results.append(memory.search(query, max_results=min(limit + _SPARE_HITS, MOST_RESULTS), seen=seen))
    except EmptyQuery:
        return [], []
    except KeptError as exc:
        return [], [f"Nothing was recalled: {exc.message}"]
    hits = {hit.citation: hit for hit in filter(None, chain(*zip_longest(*(result.hits for result in results))))}
    # A weak hit is probably about something else. A model that wants to see it can search.
    relevant = [
        hit
        for hit in hits.values()
        if hit.grade != "weak"
        and not any(
            hit.path == path and first <= hit.start_line and hit.end_line <= last for path, first, last in known
        )
    ]
    # The lines of a conversation that a fact among the hits was taken from say nothing more.
    cited = (cited for hit in relevant if hit.source == "memory" for cited in _SOURCE.findall(hit.snippet))
    sources = [source for source in map(parse_citation, cited) if source]
    chosen = [
        hit
        for hit in relevant
        if not any(
            hit.path == path and first <= hit.end_line and hit.start_line <= last for path, first, last in sources
        )
    ][:limit]
    passages: list[Hit] = []
    room = limit - len(chosen)  # further passages of a note only take the room that hits leave
    for hit in chosen:
        further = [passage for passage in hit.further if passage.grade != "weak"][:room]
        room -= len(further)
        passages += [hit, *further]
    recalled = [
        RecalledPassage(hit.snippet, hit.citation, str(hit.timestamp)[:10], hit.source, round(hit.score, 3), hit.grade)
        for hit in passages
    ]
    return recalled, list(dict.fromkeys(problem for result in results for problem in result.degraded))


def _carry_over(memory: Memory, view: ConversationView, recalled: Collection[str]) -> Iterator[RecalledPassage]:
    """Yield the memories that were recalled for the previous answer."""
    context = read_context(view.answers[-1].message) if view.answers else None
    before = [passage["citation"] for passage in context["recalled"]] if context else []
    for citation in [citation for citation in before if citation not in recalled][:_CARRIED]:
        try:
            text = memory.read(citation).text
        except KeptError:
            continue  # changed or deleted meanwhile
        source = "sessions" if citation.startswith("sessions/") else "memory"
        yield RecalledPassage(clip(text, _CARRIED_CHARS), citation, "", source)


def read_day_notes(services: AgentServices, view: ConversationView, ids: Collection[str]) -> list[RecalledPassage]:
    """Return the notes of today and yesterday for the first message of a day. If they are too long, the last lines are
    shown, of today first. Of each day, the notes of the person that the memory is for follow the shared ones."""
    memory, now = services.memory, services.memory.clock.now()
    workspace, most = memory.workspace, memory.settings.max_file_bytes
    sent_at = (logged.entry.timestamp for logged in view.inbound if logged.inbound_id not in ids)
    if not services.model.writes or any(time.astimezone(now.tzinfo).date() == now.date() for time in sent_at):
        return []
    logs = (None, *map(DailyNotes, memory.visible.own_folders if memory.viewer else ()))
    days = (now.date(), now.date() - dt.timedelta(days=1))
    paths = [path for day in days for log in reversed(logs) if (path := find_daily(workspace, day, log))]
    room = services.budget.days * CHARS_PER_TOKEN
    excerpts: list[RecalledPassage] = []
    for path in paths:
        if memory.viewer is not None and not memory.viewer.sees_note(path):
            continue
        try:
            text = workspace.read(workspace.locate(path), max_bytes=most).text.rstrip("\n")
        except KeptError:
            continue  # `kept doctor` and every sync report it
        lines = text.split("\n") if text.strip() else []
        first = len(lines)
        while first and weigh(lines[first - 1]) + 1 <= room:
            first -= 1
            room -= weigh(lines[first]) + 1
        if lines[first:]:
            citation = cite(path, first + 1, len(lines))
            excerpts.insert(0, RecalledPassage("\n".join(lines[first:]), citation, "", "memory"))
        if first:
            break
    return excerpts
