"""Sets: documents, queries, and the documents that answer each query. Reads them, and writes them out to be searched.

A set is a folder of `corpus.jsonl`, `queries.jsonl` and `qrels.tsv`. Everything in it is checked, and a mistake is
reported with file and line, because most sets are edited by hand.

To be searched, a document with a session becomes an utterance in a transcript, any other a Markdown note. A group is an
agent with a home of its own. Ids of a set often give the answer away, so names on disk hide them and do not sort like
them: only a document's text, its speaker and its time are indexed.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from kept.base.digest import digest_bytes
from kept.base.durable import make_private_folder
from kept.base.limits import estimate_tokens
from kept.base.records import Grade, Hit
from kept.base.values import frozen
from kept.config import Config
from kept.errors import BenchSetInvalid
from kept.notes.workspace import MEMORY_FOLDER
from kept.search.scores import PARTS_OUTSIDE_THRESHOLD
from kept.sessions.entries import ROLES, Entry, Message, SessionStart
from kept.sessions.session_key import SessionKey
from kept.sessions.store import SessionStore

CORPUS, QUERIES, QRELS = "corpus.jsonl", "queries.jsonl", "qrels.tsv"
_UNANSWERABLE = ("adversarial", "unanswerable")
_UNANSWERABLE_ENDING = "_abs"

Item = TypeVar("Item")
Row = TypeVar("Row", "BenchDocument", "BenchQuery")

Relevance = dict[str, dict[str, float]]
"""Grade by query, then by document. Documents that are not relevant are left out."""


@frozen
class BenchDocument:
    id: str
    text: str
    group: str = ""
    session: str | None = None
    speaker: str | None = None
    timestamp: dt.datetime | None = None


@frozen
class BenchQuery:
    id: str
    text: str
    category: str = ""
    group: str = ""
    date: dt.datetime | None = None
    """Date at which it is asked, for the boost of recent hits."""

    @property
    def answerable(self) -> bool:
        """True if it should be answered, by the name of its category.

        Relevance marks do not decide it: an adversarial question often marks the very passage that it misquotes.
        """
        return self.category not in _UNANSWERABLE and not self.category.endswith(_UNANSWERABLE_ENDING)


@frozen
class BenchSet:
    name: str
    documents: tuple[BenchDocument, ...]
    queries: tuple[BenchQuery, ...]
    relevant: Relevance


def sample(items: Sequence[Item], size: int | None) -> Sequence[Item]:
    """Return at most ``size`` of the items, evenly spread, so that every part has its share."""
    if size is None or size >= len(items):
        return items
    return [items[number * len(items) // size] for number in range(size)]


def read_set(folder: str) -> BenchSet:
    """Read and check a set. Raise BenchSetInvalid."""
    for name in (CORPUS, QUERIES, QRELS):
        if not os.path.isfile(os.path.join(folder, name)):
            raise BenchSetInvalid(f"{folder}: not a set of documents and queries: it has no {name}.")
    documents = _read_rows(os.path.join(folder, CORPUS), BenchDocument)
    queries = _read_rows(os.path.join(folder, QUERIES), BenchQuery)
    groups = {document.group for document in documents.values()}
    for query in queries.values():
        if query.group not in groups:
            reason = f"names the group '{query.group}', which has no documents" if query.group else "names no group"
            raise BenchSetInvalid(f"{os.path.join(folder, QUERIES)}: query '{query.id}' {reason}.")
    relevant = _read_qrels(os.path.join(folder, QRELS), queries, documents)
    name = os.path.basename(os.path.abspath(folder))
    return BenchSet(name, tuple(documents.values()), tuple(queries.values()), relevant)


# documents and queries

_TIMES = {"timestamp", "date"}


def _read_rows(path: str, kind: type[Row]) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for number, line in _lines(path):
        try:
            row = _make_row(kind, json.loads(line))
            if row.id in rows:
                raise ValueError(f"the id '{row.id}' is used twice")
        except (ValueError, RecursionError) as exc:
            reason = f"not JSON ({exc})" if isinstance(exc, json.JSONDecodeError) else exc
            raise BenchSetInvalid(f"{path}, line {number}: {reason}.") from None
        rows[row.id] = row
    if not rows:
        raise BenchSetInvalid(f"{path}: empty.")
    return rows


def _make_row(kind: type[Row], tree: Any) -> Row:
    if not isinstance(tree, dict):
        raise ValueError("not an object with 'id' and 'text'")
    values: dict[str, Any] = {"text": ""} if kind is BenchDocument and tree.get("text") == "" else {}
    for name in kind.__annotations__:
        value = tree.get(name)
        if value is not None and not isinstance(value, str | int):
            raise ValueError(f"'{name}' is not a text")
        if value is not None and str(value).strip():
            values[name] = str(value)
    for name in _TIMES & values.keys():
        try:
            values[name] = dt.datetime.fromisoformat(values[name]).astimezone()
        except (ValueError, OverflowError):
            raise ValueError(f"'{name}' is not a time such as 2026-03-14T15:09:00") from None
    for name in ("id", "text"):
        if name not in values:
            raise ValueError(f"'{name}' is missing or not a text")
    return kind(**values)


def _lines(path: str) -> Iterator[tuple[int, str]]:
    """Yield lines that are not blank, with their numbers. Only a newline ends one: JSON may hold other separators."""
    try:
        with open(path, encoding="utf-8-sig", newline="\n") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line.rstrip("\r\n")
    except UnicodeDecodeError:
        raise BenchSetInvalid(f"{path}: not UTF-8.") from None
    except OSError as exc:
        raise BenchSetInvalid(f"{path}: cannot be read ({exc.strerror}).") from None


# relevance


def _read_qrels(path: str, queries: Container[str], documents: Container[str]) -> Relevance:
    relevance: Relevance = {}
    for number, line in _lines(path):
        if number == 1:  # the header
            continue
        try:
            query, document, text = line.split("\t")
            grade = float(text)
        except ValueError:
            reason = "expected a query, a document and a number, separated by tabs"
            raise BenchSetInvalid(f"{path}, line {number}: {reason}.") from None
        if query not in queries:
            raise BenchSetInvalid(f"{path}, line {number}: there is no query '{query}'.")
        if document not in documents:
            raise BenchSetInvalid(f"{path}, line {number}: there is no document '{document}'.")
        if grade > 0:
            relevance.setdefault(query, {})[document] = grade
    return relevance


# on disk

_CHANNEL, _PERSON = "chat", "1"
"""Key of the one conversation that all sessions belong to. Its name is indexed, so it is the same for all."""
_BEGINNING = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
"""Time of an utterance without a timestamp."""


@frozen
class ReturnedHit:
    """Parts of a hit that the figures need."""

    documents: frozenset[str]
    """Documents that its cited lines cover."""
    tokens: int = 0
    """Tokens of its snippet, without those of further passages."""
    score: float = 0.0
    """Score that ``min_score`` is compared with."""
    grade: Grade = "strong"
    further: tuple[ReturnedHit, ...] = ()
    """Further passages that are shown under it."""


@frozen
class AnswerUnit:
    """A document that can answer a query, and its lines in a file."""

    document: str
    lines: tuple[int, int] | None = None
    """First and last line; None if the file is the document and a hit anywhere in it counts."""


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
            documents=frozenset(
                unit.document
                for unit in units
                if unit.lines is None or hit.start_line <= unit.lines[0] <= unit.lines[1] <= hit.end_line
            ),
            tokens=estimate_tokens(hit.snippet),
            score=threshold_score(hit),
            grade=hit.grade,
            further=tuple(map(self.returned_hit, hit.further)),
        )


def threshold_score(hit: Hit) -> float:
    """Return the score that ``min_score`` is compared with. Boosts for recent hits and for a period do not count."""
    score = hit.score - sum(part.value for part in hit.parts if part.name in PARTS_OUTSIDE_THRESHOLD)
    return round(score, 9)  # the order of summation must not decide


def lay_out(bench: BenchSet, config: Config, folder: str) -> dict[str, BenchGroup]:
    """Write every group below a temporary folder. Nothing is synced to disk: it need not survive a crash."""
    by_group: dict[str, list[BenchDocument]] = {}
    for document in bench.documents:
        by_group.setdefault(document.group, []).append(document)
    groups = {}
    for number, (name, documents) in enumerate(by_group.items(), start=1):
        own = _group_config(config, os.path.join(folder, str(number)))
        make_private_folder(os.path.join(own.workspace, MEMORY_FOLDER))
        notes = [document for document in documents if not document.session]
        spoken = [document for document in documents if document.session]
        units = {
            **{_write_note(own, note): (AnswerUnit(note.id),) for note in notes},
            **_write_transcripts(own, spoken),
        }
        times = [document.timestamp for document in documents if document.timestamp]
        groups[name] = BenchGroup(own, units, max(times, default=None))
    return groups


def _group_config(config: Config, folder: str) -> Config:
    """Return the user's settings with an empty home and workspace."""
    store = replace(config.memory_search.store, path=None)
    search = replace(config.memory_search, enabled=True, sources=("memory", "sessions"), extra_paths=(), store=store)
    workspace = os.path.join(folder, "workspace")
    agent = replace(config.agent, memory_search=search, workspace=workspace, workspace_layout="kept")
    return replace(config, home=os.path.join(folder, "home"), workspace=workspace, agent_id="main", agent=agent)


# notes


def _write_note(config: Config, document: BenchDocument) -> str:
    """Write a note and return its path.

    It is named by a hash, so that notes are not indexed in the order of the set: in one public set the answers come
    first, and the first note wins a tie.
    """
    digest = digest_bytes(document.id.encode("utf-8", "replace"))
    cited = f"{MEMORY_FOLDER}/{digest[:16]}.md"
    path = os.path.join(config.workspace, cited)
    with open(path, "w", encoding="utf-8", errors="replace", newline="") as file:
        file.write(document.text)
    if document.timestamp:
        os.utime(path, (document.timestamp.timestamp(),) * 2)
    return cited


# transcripts


def _write_transcripts(config: Config, documents: Sequence[BenchDocument]) -> dict[str, tuple[AnswerUnit, ...]]:
    by_session: dict[str, list[BenchDocument]] = {}
    for document in documents:
        by_session.setdefault(document.session or "", []).append(document)
    opener = next((document.speaker for document in documents if document.speaker), None)
    units: dict[str, tuple[AnswerUnit, ...]] = {}
    start = SessionStart(str(SessionKey(config.agent_id, _CHANNEL, "default", "direct", _PERSON)))
    with SessionStore(config) as store:
        for number, utterances in enumerate(by_session.values(), start=1):
            entries: list[Entry] = []
            created = time = utterances[0].timestamp or _BEGINNING
            parent = session_id = f"{number:08d}"
            for at, utterance in enumerate(utterances, start=1):
                time = utterance.timestamp or time
                entries.append(Entry(f"{at:08d}", parent, time, _message(utterance, opener)))
                parent = entries[-1].id
            record = store.adopt(start, entries, session_id=session_id, created=created)
            # The first line of a transcript is its header, so the first utterance is on the second.
            units[record.citation] = tuple(AnswerUnit(each.id, (line, line)) for line, each in enumerate(utterances, 2))
    return units


def _message(utterance: BenchDocument, opener: str | None) -> Message:
    """Return the message of an utterance. A speaker named like a role has that role.

    Among people, the one who opens the conversation is the user and the others answer, as in a chat with an agent.
    """
    speaker = utterance.speaker
    role = next((role for role in ROLES if (speaker or "").lower() == role), None)
    if role is not None:
        return Message.of(role, utterance.text)
    return Message.of("user" if speaker in (opener, None) else "assistant", utterance.text, sender=speaker)
