"""Sets of other sizes: the same notes in many small memories, half of them, or all among thousands of others."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from kept.server.bench.sets import BenchDocument, BenchSet, Relevance, read_set

_SEED = 3
_MOST_GROUPS, _NOTES, _QUESTIONS = 40, 200, 6
_ADJACENT = 5
"""Notes next to each other are often about the same subject, such as the paragraphs of an article."""


def read_sized_set(text: str, padding: Sequence[str]) -> BenchSet:
    """Read `FOLDER`, `FOLDER@5` (memories of five notes), `FOLDER+3000` (with 3,000 notes of ``padding``) or `FOLDER%2`
    (half of the notes)."""
    if text.endswith("%2"):
        return halve(read_set(text.removesuffix("%2")))
    folder, at, notes = text.partition("@")
    if at:
        return replace(split(read_set(folder), int(notes)), name=f"{read_set(folder).name}@{notes}")
    folder, plus, others = text.partition("+")
    bench = read_set(folder)
    if not plus:
        return bench
    documents = [document for name in padding if name != folder for document in read_set(name).documents]
    random.Random(_SEED).shuffle(documents)
    added = (BenchDocument(f"padding{at}", document.text) for at, document in enumerate(documents[: int(others)]))
    return replace(bench, name=f"{bench.name}+{others}", documents=(*bench.documents, *added))


def halve(bench: BenchSet) -> BenchSet:
    """Return every other five notes. Questions that only the rest answers are unanswerable."""
    documents = tuple(document for at, document in enumerate(bench.documents) if at // _ADJACENT % 2 == 0)
    ids = {document.id for document in documents}
    relevance = Relevance()
    for query, relevant in bench.relevant.items():
        if inside := {note: grade for note, grade in relevant.items() if note in ids}:
            relevance[query] = inside
    queries = (
        query if query.id in relevance else replace(query, category="unanswerable")
        for query in bench.queries
        if query.id in bench.relevant
    )
    return BenchSet(f"{bench.name}%2", documents, tuple(queries), relevance)


def split(bench: BenchSet, notes: int) -> BenchSet:
    """Return some of the notes that answer questions in groups of this size, with up to six questions each."""
    rng = random.Random(_SEED)
    queries = {query.id: query for query in bench.queries if query.answerable}
    asked: dict[str, list[str]] = {}
    for query, relevant in bench.relevant.items():
        for document in relevant if query in queries else ():
            asked.setdefault(document, []).append(query)
    answers = [document for document in bench.documents if document.id in asked]
    rng.shuffle(answers)
    documents, grouped, relevance = [], [], Relevance()
    for number in range(min(_MOST_GROUPS, max(8, _NOTES // notes), len(answers) // notes)):
        group = {document.id: document for document in answers[number * notes : (number + 1) * notes]}
        documents += [replace(note, id=f"{number}:{note.id}", group=str(number)) for note in group.values()]
        questions = list(dict.fromkeys(query for note in group for query in asked[note]))
        for query in rng.sample(questions, min(_QUESTIONS, len(questions))):
            grouped.append(replace(queries[query], id=f"{number}:{query}", group=str(number)))
            inside = {note: grade for note, grade in bench.relevant[query].items() if note in group}
            relevance[f"{number}:{query}"] = {f"{number}:{note}": grade for note, grade in inside.items()}
    return BenchSet(bench.name, tuple(documents), tuple(grouped), relevance)
