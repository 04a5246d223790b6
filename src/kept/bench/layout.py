"""Writing the documents of a set as what they are, and finding them again in hits.

A document with a session is a turn of a transcript, any other a Markdown note. A group is an agent with a home of its
own. Ids of a set often give the answer away, so no name on disk is made of one in a way that could be read or sorted
by: whatever is indexed is a document's text, who said it and when.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace

from kept.bench.dataset import BenchSet, Document, span_id
from kept.bench.metrics import Returned
from kept.config import Config
from kept.durable import make_private_folder
from kept.indexing.scan import CITED_FOLDER
from kept.records import Hit
from kept.search.confidence import BESIDES
from kept.sessions.entries import ROLES, Entry, Message, Role, SessionStart
from kept.sessions.keys import SessionKey
from kept.sessions.store import SessionStore
from kept.tokens import estimate_tokens
from kept.values import frozen
from kept.workspace.paths import MEMORY_FOLDER

_CHANNEL, _PERSON = "chat", "1"
"""One conversation that is taken up again and again. Its name is indexed, so it is the same for every session."""
_BEGINNING = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
"""When something was said that has no timestamp."""


@frozen
class Unit:
    """Something that a query can be answered by, at its place in a file."""

    document: str
    lines: tuple[int, int] | None = None
    """The first and the last; None where the file is the document, and a hit anywhere in it counts."""
    text: str = ""
    """Set where lines do not say enough: a hit may be a piece of a long line."""


@frozen
class Group:
    """The documents of one group on disk, with the configuration of the agent whose they are."""

    config: Config
    units: dict[str, tuple[Unit, ...]]
    """By cited path."""
    sessions: dict[str, str]
    """By cited path: the session that a transcript is of."""
    newest: dt.datetime | None
    """When its last document was written, where they say so."""

    def returned(self, hit: Hit) -> Returned:
        units = self.units.get(hit.path, ())
        return Returned(
            documents=frozenset(unit.document for unit in units if _covers(hit, unit)),
            tokens=estimate_tokens(hit.snippet),
            score=threshold_score(hit),
            session=self.sessions.get(hit.path),
        )


def threshold_score(hit: Hit) -> float:
    """What ``min_score`` is compared with: being recent, or from the time that was asked for, never saves a hit."""
    worth = hit.score - sum(part.value for part in hit.parts if part.name in BESIDES)
    return round(worth, 9)  # adding up in another order must not decide


def _covers(hit: Hit, unit: Unit) -> bool:
    if unit.lines is None:
        return True
    if not (hit.start_line <= unit.lines[0] and unit.lines[1] <= hit.end_line):
        return False
    # Pieces of a long line all cite that line; what is shown tells which piece it is.
    return not unit.text or hit.start_line < hit.end_line or _share_shown(unit.text, hit.snippet) >= 0.5


def _share_shown(text: str, snippet: str) -> float:
    """How much of a text stands in a snippet, which may begin or end inside it."""
    shown = snippet.removeprefix("…").removesuffix("…").strip()
    if text in shown or shown in text:
        return min(1.0, len(shown) / len(text))
    for size in range(len(text) - 1, 0, -1):
        if shown.startswith(text[-size:]) or shown.endswith(text[:size]):
            return size / len(text)
    return 0.0


def lay_out(bench: BenchSet, config: Config, folder: str) -> dict[str, Group]:
    """Writes every group below a folder that is thrown away afterwards; nothing of it needs to outlast a crash."""
    by_group: dict[str, list[Document]] = {}
    for document in bench.documents:
        by_group.setdefault(document.group, []).append(document)
    groups = {}
    for number, (name, documents) in enumerate(by_group.items(), start=1):
        own = _own_config(config, os.path.join(folder, str(number)))
        make_private_folder(os.path.join(own.workspace, MEMORY_FOLDER))
        if name in bench.files:
            spans = {span for query in bench.queries if query.group == name for span in query.spans}
            units = _write_long_file(own, name, bench.files[name], spans)
            groups[name] = Group(own, units, {}, None)
        else:
            groups[name] = _write_group(own, documents)
    return groups


def _own_config(config: Config, folder: str) -> Config:
    """The user's settings, on a home and a workspace that hold nothing of the user's."""
    search = replace(
        config.memory_search,
        enabled=True,
        sources=("memory", "sessions"),
        extra_paths=(),
        store=replace(config.memory_search.store, path=None),
    )
    workspace = os.path.join(folder, "workspace")
    agent = replace(config.agent, memory_search=search, workspace=workspace)
    return replace(config, home=os.path.join(folder, "home"), workspace=workspace, agent_id="main", agent=agent)


def _write_group(config: Config, documents: Sequence[Document]) -> Group:
    said = [document for document in documents if document.session]
    units = {_write_note(config, one): (Unit(one.id),) for one in documents if not one.session}
    transcripts, sessions = _write_transcripts(config, said)
    times = [document.timestamp for document in documents if document.timestamp]
    return Group(config, {**units, **transcripts}, sessions, max(times, default=None))


# notes


def _write_note(config: Config, document: Document) -> str:
    """Named by a hash, so that notes are not even indexed in the order of the set: in one of them the answers come
    first, and the first wins a tie."""
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
) -> dict[str, tuple[Unit, ...]]:
    cited = f"{MEMORY_FOLDER}/{_opaque(name)}.md"
    _write(os.path.join(config.workspace, cited), text)
    units = []
    for start, end in sorted(spans):
        answer = text[start:end].strip()
        first = text.count("\n", 0, text.index(answer, start)) + 1
        units.append(Unit(span_id(name, (start, end)), (first, first + answer.count("\n")), answer))
    return {cited: tuple(units)}


# transcripts


def _write_transcripts(
    config: Config, documents: Sequence[Document]
) -> tuple[dict[str, tuple[Unit, ...]], dict[str, str]]:
    by_session: dict[str, list[Document]] = {}
    for document in documents:
        by_session.setdefault(document.session or "", []).append(document)
    opener = next((one.speaker for one in documents if one.speaker), None)
    units: dict[str, tuple[Unit, ...]] = {}
    sessions: dict[str, str] = {}
    with SessionStore(config) as store:
        for number, (session, turns) in enumerate(by_session.items(), start=1):
            cited = _write_session(store, turns, number, opener)
            # The first line says whose conversation it is, so the first turn is on the second.
            units[cited] = tuple(Unit(turn.id, (line, line)) for line, turn in enumerate(turns, start=2))
            sessions[cited] = session
    return units, sessions


def _write_session(store: SessionStore, turns: Sequence[Document], number: int, opener: str | None) -> str:
    start = SessionStart(str(SessionKey(store.agent_id, _CHANNEL, "default", "direct", _PERSON)))
    session_id = f"{number:08d}"
    entries: list[Entry] = []
    when, parent = turns[0].timestamp or _BEGINNING, session_id
    created = when
    for at, turn in enumerate(turns, start=1):
        when = turn.timestamp or when
        entries.append(Entry(f"{at:08d}", parent, when, _message(turn, opener)))
        parent = entries[-1].id
    record = store.adopt(start, entries, session_id=session_id, created=created)
    return CITED_FOLDER + os.path.basename(record.transcript_path)


def _message(turn: Document, opener: str | None) -> Message:
    """Named roles are what they say. Of people, the one who opens the conversation is the user and the others answer:
    a chunk is then something that was said with the reply to it, and a hit covers a few turns, not a page of them."""
    role = _role(turn.speaker)
    if role is not None:
        return Message.of(role, turn.text)
    return Message.of("user" if turn.speaker in (opener, None) else "assistant", turn.text, sender=turn.speaker)


def _role(speaker: str | None) -> Role | None:
    return next((role for role in ROLES if speaker and speaker.lower() == role), None)
