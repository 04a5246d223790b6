"""Sets of long notes, made from sets of short ones.

`SET:split` has the same notes, in passages of a hundred tokens: the words of a question are then in several passages.
`SET:join` joins ten notes to one, those of one folder if ids have folders. `SET:articles` cuts long files beside a set,
`corpora/GROUP.md`, into articles of 8,000 characters; each question of such a set has ``spans``, the characters of the
group's file that answer it. A question is answered by the note that has the answer.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain, groupby
from pathlib import Path

from kept.config import Config
from kept.server.bench.sets import (
    QUERIES,
    AnswerUnit,
    BenchDocument,
    BenchGroup,
    BenchQuery,
    BenchSet,
    Relevance,
    lay_out,
    read_set,
    sample,
)

JOINED_NOTES, ARTICLE_CHARS, SPLIT_TOKENS = 10, 8_000, 100
_SEED = 5


def read_long_set(text: str, *, notes: int, questions: int) -> tuple[BenchSet, dict[str, int]]:
    """Read `FOLDER:split`, `FOLDER:join` or `FOLDER:articles`, and return the set with its chunking settings.

    The set has up to this number of notes of the original, among them all that answer its questions.
    """
    folder, _, kind = text.rpartition(":")
    bench = read_set(folder)
    if kind == "articles":
        return _name(cut_into_articles(bench, folder, questions), kind), {}
    bench = _shrink(bench, notes, questions)
    if kind == "join":
        return _name(join(bench), kind), {}
    return _name(bench, kind), {"tokens": SPLIT_TOKENS, "overlap": SPLIT_TOKENS // 5}


def _name(bench: BenchSet, kind: str) -> BenchSet:
    return replace(bench, name=f"{bench.name}:{kind}")


def _answerable(bench: BenchSet, questions: int) -> tuple[BenchQuery, ...]:
    queries = (query for query in bench.queries if query.answerable and query.id in bench.relevant)
    return tuple(replace(query, group="") for query in sample(tuple(queries), questions))


def _shrink(bench: BenchSet, notes: int, questions: int) -> BenchSet:
    queries = _answerable(bench, questions)
    relevant = Relevance({query.id: bench.relevant[query.id] for query in queries})
    needed = {note for answers in relevant.values() for note in answers}
    others = [document for document in bench.documents if document.id not in needed]
    random.Random(_SEED).shuffle(others)
    chosen = needed.union(document.id for document in others[: max(0, notes - len(needed))])
    documents = (replace(document, group="") for document in bench.documents if document.id in chosen)
    return replace(bench, documents=tuple(documents), queries=queries, relevant=relevant)


def join(bench: BenchSet) -> BenchSet:
    """Return a set in which ten notes are one."""
    documents, note_of = [], {}
    for folder, group in groupby(bench.documents, key=lambda document: document.id.rpartition("/")[0]):
        members = [*group]
        for at in range(0, len(members), JOINED_NOTES):
            part = members[at : at + JOINED_NOTES]
            documents.append(BenchDocument(f"{folder}#{at}", "\n\n".join(document.text for document in part)))
            note_of |= {document.id: documents[-1].id for document in part}
    return replace(bench, documents=tuple(documents), relevant=_follow(bench.relevant, note_of))


def _follow(relevant: Relevance, note_of: dict[str, str]) -> Relevance:
    return Relevance(
        {query: {note_of[note]: grade for note, grade in answers.items()} for query, answers in relevant.items()}
    )


Spans = dict[str, list[tuple[int, int]]]
"""First and last character of each answer, by question."""


def read_files(folder: str) -> tuple[dict[str, str], Spans]:
    """Return the long files beside a set by group, and where in them each question is answered."""
    files = {path.stem: path.read_bytes().decode() for path in sorted(Path(folder, "corpora").glob("*.md"))}
    with open(os.path.join(folder, QUERIES), encoding="utf-8") as queries:
        rows = [json.loads(line) for line in queries if line.strip()]
    return files, {row["id"]: [(start, end) for start, end in row["spans"]] for row in rows}


def cut_into_articles(bench: BenchSet, folder: str, questions: int) -> BenchSet:
    files, spans = read_files(folder)
    documents = [
        BenchDocument(_article(name, at), text[at : at + ARTICLE_CHARS])
        for name, text in files.items()
        for at in range(0, len(text), ARTICLE_CHARS)
    ]
    queries = _answerable(bench, questions)
    groups = {query.id: query.group for query in bench.queries}
    relevant = {query.id: dict.fromkeys(_articles(groups[query.id], spans[query.id]), 1.0) for query in queries}
    return replace(bench, documents=tuple(documents), queries=queries, relevant=Relevance(relevant))


def lay_out_files(bench: BenchSet, folder: str, config: Config, place: str) -> tuple[dict[str, BenchGroup], Relevance]:
    """Write each long file as a note, and return the groups with the lines of the answers, and what is relevant."""
    files, spans = read_files(folder)
    notes = replace(bench, documents=tuple(BenchDocument(name, text, name) for name, text in files.items()))
    groups, relevant = {}, Relevance({})
    for name, group in lay_out(notes, config, place).items():
        asked = {query.id: spans[query.id] for query in bench.queries if query.group == name}
        units = {span: AnswerUnit(f"{name}:{span}", _lines(files[name], *span)) for span in chain(*asked.values())}
        groups[name] = replace(group, units={path: tuple(units.values()) for path in group.units})
        relevant |= {query: {units[span].document: 1.0 for span in wanted} for query, wanted in asked.items()}
    return groups, relevant


def _lines(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the first and last line of an answer."""
    answer = text[start:end].strip()
    first = text.count("\n", 0, text.index(answer, start)) + 1
    return first, first + answer.count("\n")


def _articles(name: str, spans: Iterable[tuple[int, int]]) -> set[str]:
    return {_article(name, start) for start, _ in spans}


def _article(name: str, at: int) -> str:
    return f"{name}:{at // ARTICLE_CHARS}"
