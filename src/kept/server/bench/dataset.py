"""Reads a set: documents, queries, and the documents that answer each query.

A set is a folder of `corpus.jsonl`, `queries.jsonl` and `qrels.tsv`. Everything in it is checked, and a mistake is
reported with file and line, because most sets are edited by hand.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeVar

from kept.base.values import frozen
from kept.errors import BenchSetInvalid

CORPUS, QUERIES, QRELS = "corpus.jsonl", "queries.jsonl", "qrels.tsv"
LONG_FILES = "corpora"
"""Folder of long files, one for each group. The answers of queries are ``spans`` of characters in them."""

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
    spans: tuple[tuple[int, int], ...] = ()

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
    files: dict[str, str] = field(default_factory=dict)
    """Long texts by group. Each replaces the documents of its group."""


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
    documents = _read_rows(os.path.join(folder, CORPUS), _make_document)
    queries = _read_rows(os.path.join(folder, QUERIES), _make_query)
    _check_groups(folder, documents, queries)
    files = _read_long_files(folder, queries)
    query_ids = {query.id for query in queries}
    document_ids = {document.id for document in documents}
    relevant = _read_qrels(os.path.join(folder, QRELS), query_ids, document_ids)
    return BenchSet(
        name=os.path.basename(os.path.abspath(folder)),
        documents=documents,
        queries=queries,
        relevant=_span_relevance(folder, queries, files) if files else relevant,
        files=files,
    )


# documents and queries


def _read_rows(path: str, make: Callable[[dict[str, Any]], Row]) -> tuple[Row, ...]:
    by_id: dict[str, Row] = {}
    for number, line in _lines(path):
        try:
            tree = json.loads(line)
            if not isinstance(tree, dict):
                raise ValueError("not an object with 'id' and 'text'")
            row = make(tree)
            if row.id in by_id:
                raise ValueError(f"the id '{row.id}' is used twice")
        except json.JSONDecodeError as exc:
            raise BenchSetInvalid(f"{path}, line {number}: not JSON ({exc}).") from None
        except (ValueError, RecursionError) as exc:
            raise BenchSetInvalid(f"{path}, line {number}: {exc}.") from None
        by_id[row.id] = row
    if not by_id:
        raise BenchSetInvalid(f"{path}: empty.")
    return tuple(by_id.values())


def _make_document(tree: dict[str, Any]) -> BenchDocument:
    return BenchDocument(
        id=_text(tree, "id"),
        text=_text(tree, "text", may_be_empty=True),
        group=_optional(tree, "group") or "",
        session=_optional(tree, "session"),
        speaker=_optional(tree, "speaker"),
        timestamp=_time(tree, "timestamp"),
    )


def _make_query(tree: dict[str, Any]) -> BenchQuery:
    return BenchQuery(
        id=_text(tree, "id"),
        text=_text(tree, "text"),
        category=_optional(tree, "category") or "",
        group=_optional(tree, "group") or "",
        date=_time(tree, "date"),
        spans=_spans(tree.get("spans") or []),
    )


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


def _text(tree: Mapping[str, Any], name: str, *, may_be_empty: bool = False) -> str:
    text = _optional(tree, name)
    if text is None and not (may_be_empty and tree.get(name) == ""):
        raise ValueError(f"'{name}' is missing or not a text")
    return text or ""


def _optional(tree: Mapping[str, Any], name: str) -> str | None:
    value = tree.get(name)
    if value is not None and not isinstance(value, str | int):
        raise ValueError(f"'{name}' is not a text")
    return None if value is None or not str(value).strip() else str(value)


def _time(tree: Mapping[str, Any], name: str) -> dt.datetime | None:
    value = _optional(tree, name)
    try:
        return None if value is None else dt.datetime.fromisoformat(value).astimezone()
    except (ValueError, OverflowError):
        raise ValueError(f"'{name}' is not a time such as 2026-03-14T15:09:00") from None


def _spans(value: Any) -> tuple[tuple[int, int], ...]:
    try:
        spans = tuple((int(start), int(end)) for start, end in value)
    except (TypeError, ValueError):
        raise ValueError("'spans' is not a list of [start, end]") from None
    if any(start < 0 or end <= start for start, end in spans):
        raise ValueError("a span ends before it begins")
    return spans


def _check_groups(folder: str, documents: tuple[BenchDocument, ...], queries: tuple[BenchQuery, ...]) -> None:
    groups = {document.group for document in documents}
    for query in queries:
        if query.group not in groups:
            reason = f"names the group '{query.group}', which has no documents" if query.group else "names no group"
            raise BenchSetInvalid(f"{os.path.join(folder, QUERIES)}: query '{query.id}' {reason}.")


# relevance


def _read_qrels(path: str, queries: set[str], documents: set[str]) -> Relevance:
    relevance: Relevance = {}
    for number, line in _lines(path):
        if number == 1:  # the header
            continue
        query, document, grade = _parse_judgement(line, f"{path}, line {number}")
        if query not in queries:
            raise BenchSetInvalid(f"{path}, line {number}: there is no query '{query}'.")
        if document not in documents:
            raise BenchSetInvalid(f"{path}, line {number}: there is no document '{document}'.")
        if grade > 0:
            relevance.setdefault(query, {})[document] = grade
    return relevance


def _parse_judgement(line: str, where: str) -> tuple[str, str, float]:
    try:
        query, document, grade = line.split("\t")
        return query, document, float(grade)
    except ValueError:
        raise BenchSetInvalid(f"{where}: expected a query, a document and a number, separated by tabs.") from None


def _read_long_files(folder: str, queries: tuple[BenchQuery, ...]) -> dict[str, str]:
    """Return the long files by group, if every query has spans in one."""
    if not os.path.isdir(os.path.join(folder, LONG_FILES)) or not all(query.spans for query in queries):
        return {}
    files: dict[str, str] = {}
    for group in sorted({query.group for query in queries}):
        path = os.path.join(folder, LONG_FILES, f"{os.path.basename(group)}.md")
        try:
            with open(path, encoding="utf-8", newline="") as file:
                files[group] = file.read()
        except (OSError, UnicodeDecodeError):
            raise BenchSetInvalid(f"{path}: cannot be read, but queries have spans in it.") from None
    return files


def span_id(group: str, span: tuple[int, int]) -> str:
    return f"{group}:{span[0]}-{span[1]}"


def _span_relevance(folder: str, queries: tuple[BenchQuery, ...], files: Mapping[str, str]) -> Relevance:
    for query in queries:
        if any(end > len(files[query.group]) for _, end in query.spans):
            where = os.path.join(folder, QUERIES)
            raise BenchSetInvalid(f"{where}: query '{query.id}' has a span after the end of its file.")
    return {query.id: {span_id(query.group, span): 1.0 for span in query.spans} for query in queries}
