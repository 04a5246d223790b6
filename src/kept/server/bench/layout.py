"""Writes the documents of a set as notes and transcripts, and maps hits back to documents.

A document with a session is an utterance in a transcript, any other a Markdown note. A group is an agent with a home of
its own. Ids of a set often give the answer away, so names on disk hide them and do not sort like them: only a
document's text, its speaker and its time are indexed.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace

from kept.base.durable import make_private_folder
from kept.base.limits import estimate_tokens
from kept.base.records import Hit
from kept.base.values import frozen
from kept.config import Config
from kept.notes.workspace import MEMORY_FOLDER
from kept.search.scores import PARTS_OUTSIDE_THRESHOLD
from kept.server.bench.dataset import BenchDocument, BenchSet, span_id
from kept.server.bench.metrics import ReturnedHit
from kept.sessions.entries import ROLES, Entry, Message, Role, SessionStart
from kept.sessions.session_key import SessionKey
from kept.sessions.store import SessionStore

_CHANNEL, _PERSON = "chat", "1"
"""Key of the one conversation that all sessions belong to. Its name is indexed, so it is the same for all."""
_BEGINNING = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
"""Time of an utterance without a timestamp."""


@frozen
class AnswerUnit:
    """A document or a span that can answer a query, and its lines in a file."""

    document: str
    lines: tuple[int, int] | None = None
    """First and last line; None if the file is the document and a hit anywhere in it counts."""
    text: str = ""
    """Set if lines are not enough: a hit may be a piece of a long line."""


@frozen
class BenchGroup:
    """Documents of one group on disk, with the configuration of their agent."""

    config: Config
    units: dict[str, tuple[AnswerUnit, ...]]
    """Units by cited path."""
    newest: dt.datetime | None
    """Time of its newest document, if the documents have times."""

    def returned_hit(self, hit: Hit) -> ReturnedHit:
        units = self.units.get(hit.path, ())
        return ReturnedHit(
            documents=frozenset(unit.document for unit in units if _covers(hit, unit)),
            tokens=estimate_tokens(hit.snippet),
            score=threshold_score(hit),
            grade=hit.grade,
            further=tuple(map(self.returned_hit, hit.further)),
        )


def threshold_score(hit: Hit) -> float:
    """Return the score that ``min_score`` is compared with. Boosts for recent hits and for a period do not count."""
    score = hit.score - sum(part.value for part in hit.parts if part.name in PARTS_OUTSIDE_THRESHOLD)
    return round(score, 9)  # the order of summation must not decide


def _covers(hit: Hit, unit: AnswerUnit) -> bool:
    if unit.lines is None:
        return True
    if not (hit.start_line <= unit.lines[0] and unit.lines[1] <= hit.end_line):
        return False
    # Pieces of a long line all cite that line; the snippet shows which piece a hit is.
    return not unit.text or hit.start_line < hit.end_line or _share_shown(unit.text, hit.snippet) >= 0.5


def _share_shown(text: str, snippet: str) -> float:
    """Return the share of a text that is in a snippet, which may start or end inside the text."""
    shown = snippet.removeprefix("…").removesuffix("…").strip()
    if text in shown or shown in text:
        return min(1.0, len(shown) / len(text))
    for size in range(len(text) - 1, 0, -1):
        if shown.startswith(text[-size:]) or shown.endswith(text[:size]):
            return size / len(text)
    return 0.0


def lay_out(bench: BenchSet, config: Config, folder: str) -> dict[str, BenchGroup]:
    """Write every group below a temporary folder. Nothing is synced to disk: it need not survive a crash."""
    by_group: dict[str, list[BenchDocument]] = {}
    for document in bench.documents:
        by_group.setdefault(document.group, []).append(document)
    groups = {}
    for number, (name, documents) in enumerate(by_group.items(), start=1):
        group_config = _group_config(config, os.path.join(folder, str(number)))
        make_private_folder(os.path.join(group_config.workspace, MEMORY_FOLDER))
        if name in bench.files:
            spans = {span for query in bench.queries if query.group == name for span in query.spans}
            units = _write_long_file(group_config, name, bench.files[name], spans)
            groups[name] = BenchGroup(group_config, units, None)
        else:
            groups[name] = _write_group(group_config, documents)
    return groups


def _group_config(config: Config, folder: str) -> Config:
    """Return the user's settings with an empty home and workspace."""
    search = replace(
        config.memory_search,
        enabled=True,
        sources=("memory", "sessions"),
        extra_paths=(),
        store=replace(config.memory_search.store, path=None),
    )
    workspace = os.path.join(folder, "workspace")
    agent = replace(config.agent, memory_search=search, workspace=workspace, workspace_layout="kept")
    return replace(config, home=os.path.join(folder, "home"), workspace=workspace, agent_id="main", agent=agent)


def _write_group(config: Config, documents: Sequence[BenchDocument]) -> BenchGroup:
    notes = [document for document in documents if not document.session]
    units = {_write_note(config, note): (AnswerUnit(note.id),) for note in notes}
    transcripts = _write_transcripts(config, [document for document in documents if document.session])
    times = [document.timestamp for document in documents if document.timestamp]
    return BenchGroup(config, {**units, **transcripts}, max(times, default=None))


# notes


def _write_note(config: Config, document: BenchDocument) -> str:
    """Write a note and return its path.

    It is named by a hash, so that notes are not indexed in the order of the set: in one public set the answers come
    first, and the first note wins a tie.
    """
    cited = f"{MEMORY_FOLDER}/{_opaque(document.id)}.md"
    path = os.path.join(config.workspace, cited)
    _write(path, document.text)
    if document.timestamp:
        os.utime(path, (document.timestamp.timestamp(),) * 2)
    return cited


def _opaque(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:16]


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8", errors="replace", newline="") as file:
        file.write(text)


def _write_long_file(
    config: Config, name: str, text: str, spans: Iterable[tuple[int, int]]
) -> dict[str, tuple[AnswerUnit, ...]]:
    cited = f"{MEMORY_FOLDER}/{_opaque(name)}.md"
    _write(os.path.join(config.workspace, cited), text)
    units = []
    for start, end in sorted(spans):
        answer = text[start:end].strip()
        first = text.count("\n", 0, text.index(answer, start)) + 1
        units.append(AnswerUnit(span_id(name, (start, end)), (first, first + answer.count("\n")), answer))
    return {cited: tuple(units)}


# transcripts


def _write_transcripts(config: Config, documents: Sequence[BenchDocument]) -> dict[str, tuple[AnswerUnit, ...]]:
    by_session: dict[str, list[BenchDocument]] = {}
    for document in documents:
        by_session.setdefault(document.session or "", []).append(document)
    opener = next((document.speaker for document in documents if document.speaker), None)
    units: dict[str, tuple[AnswerUnit, ...]] = {}
    with SessionStore(config) as store:
        for number, utterances in enumerate(by_session.values(), start=1):
            cited = _write_session(store, utterances, number, opener)
            # The first line of a transcript is its header, so the first utterance is on the second.
            units[cited] = tuple(
                AnswerUnit(utterance.id, (line, line)) for line, utterance in enumerate(utterances, start=2)
            )
    return units


def _write_session(store: SessionStore, utterances: Sequence[BenchDocument], number: int, opener: str | None) -> str:
    start = SessionStart(str(SessionKey(store.agent_id, _CHANNEL, "default", "direct", _PERSON)))
    session_id = f"{number:08d}"
    entries: list[Entry] = []
    time, parent = utterances[0].timestamp or _BEGINNING, session_id
    created = time
    for entry_number, utterance in enumerate(utterances, start=1):
        time = utterance.timestamp or time
        entries.append(Entry(f"{entry_number:08d}", parent, time, _message(utterance, opener)))
        parent = entries[-1].id
    record = store.adopt(start, entries, session_id=session_id, created=created)
    return record.citation


def _message(utterance: BenchDocument, opener: str | None) -> Message:
    """Return the message of an utterance. A speaker named like a role has that role.

    Among people, the one who opens the conversation is the user and the others answer, as in a chat with an agent.
    """
    role, speaker = _role(utterance.speaker), utterance.speaker
    if role is not None:
        return Message.of(role, utterance.text)
    return Message.of("user" if speaker in (opener, None) else "assistant", utterance.text, sender=speaker)


def _role(speaker: str | None) -> Role | None:
    return next((role for role in ROLES if speaker and speaker.lower() == role), None)
