"""A set to begin with, made of somebody's own notes: passages, and queries from their headings and sentences.

No model is asked, so the queries are plain. The same notes always give the same set.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kept.bench.calibration import FOREIGN
from kept.bench.dataset import CORPUS, QRELS, QUERIES
from kept.chunking.markdown import HEADING_JOIN, ChunkSize, chunk_markdown
from kept.config import Config
from kept.durable import make_private_folder, write_atomic
from kept.errors import UsageError, WorkspaceError, WriteFailed
from kept.records import Chunk, cite
from kept.search.stopwords import ENGLISH
from kept.values import frozen
from kept.workspace.opened import OpenWorkspace
from kept.workspace.paths import Workspace
from kept.workspace.scan import scan_workspace

MAX_QUERIES = 200
UNANSWERED = 10
_SEED = 20260314
_FEWEST_WORDS, _MOST_WORDS = 3, 6
_SENTENCE = re.compile(r"[^.!?。！？\n]{20,}")
_WORD = re.compile(r"\w[\w'-]+")
_README = os.path.join(os.path.dirname(__file__), "starter.md")


@frozen
class Starter:
    folder: str
    documents: int
    queries: int


@frozen
class Passage:
    id: str
    text: str
    heading: str
    """The last of the headings above it."""


def write_starter(config: Config, folder: str) -> Starter:
    """All of it or nothing, and never over something that is there."""
    folder = os.path.abspath(os.path.expanduser(folder))
    if os.path.lexists(folder) and not (os.path.isdir(folder) and not os.listdir(folder)):
        raise UsageError(f"{folder}: there is something already.", hint="Name a folder that is new or empty.")
    passages = [*iter_passages(config)]
    if not passages:
        raise UsageError(f"There are no notes in {config.workspace} to make a set of.", hint="See 'kept add --help'.")
    queries = [*iter_queries(passages)]
    with open(_README, encoding="utf-8") as file:
        readme = file.read()
    _write_together(
        folder,
        {
            "README.md": readme,
            CORPUS: _jsonl({"id": one.id, "text": one.text} for one in passages),
            QUERIES: _jsonl({name: one[name] for name in ("id", "text", "category")} for one in queries),
            QRELS: "query-id\tcorpus-id\trel\n"
            + "".join(f"{one['id']}\t{one['answer']}\t1\n" for one in queries if one["answer"]),
        },
    )
    return Starter(folder, len(passages), len(queries))


def _write_together(folder: str, files: Mapping[str, str]) -> None:
    parent = os.path.dirname(folder)
    try:
        make_private_folder(parent)
        unfinished = tempfile.mkdtemp(prefix=".kept-bench-", dir=parent)
    except OSError as exc:
        raise WriteFailed(f"{folder}: could not be made ({exc.strerror}).") from exc
    try:
        for name, text in files.items():
            write_atomic(os.path.join(unfinished, name), text.encode("utf-8", "replace"))
        os.rename(unfinished, folder)
    except OSError as exc:
        raise WriteFailed(f"{folder}: could not be made ({exc.strerror}).") from exc
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _jsonl(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


# passages


def iter_passages(config: Config) -> Iterator[Passage]:
    settings = config.memory_search
    workspace = Workspace.at(config.workspace, settings.extra_paths)
    workspace.require()
    size = ChunkSize(settings.chunking.tokens, 0)  # passages that overlap would answer for each other
    limit = settings.max_file_bytes
    with OpenWorkspace(workspace) as opened:
        for file in scan_workspace(workspace, max_bytes=limit).files:
            try:
                note = opened.read_found(file.absolute, max_bytes=limit)
            except WorkspaceError:
                continue  # gone or unreadable: the set is of what is there
            yield from _passages_of(file.path, note.text, size)


def _passages_of(path: str, text: str, size: ChunkSize) -> Iterator[Passage]:
    seen: set[str] = set()
    for chunk in chunk_markdown(text, name=path, size=size):
        name = cite(path, chunk.start_line, chunk.end_line).replace("\t", " ").replace("\n", " ")
        if name not in seen:  # pieces of one long line have one name
            seen.add(name)
            yield Passage(name, _with_headings(chunk), chunk.heading.split(HEADING_JOIN)[-1])


def _with_headings(chunk: Chunk) -> str:
    """A passage will be a note of its own, so the headings above it come with it."""
    titles = [title for title in chunk.heading.split(HEADING_JOIN) if title]
    above = [f"{'#' * level} {title}" for level, title in enumerate(titles, 1) if title not in chunk.text]
    return "\n\n".join((*above, chunk.text))


# queries


def iter_queries(passages: list[Passage]) -> Iterator[dict[str, str]]:
    """Of passages that are evenly spread: the heading, where no other has the same, or words."""
    chance = random.Random(_SEED)
    headings = [one.heading for one in passages]
    number = 0
    for passage in _spread(passages, MAX_QUERIES - UNANSWERED):
        own_heading = len(passage.heading.split()) > 1 and headings.count(passage.heading) == 1
        texts = {"heading": passage.heading if own_heading else "", "words": _some_words(passage.text, chance)}
        wanted = "heading" if own_heading and (number % 2 == 0 or not texts["words"]) else "words"
        if texts[wanted]:
            number += 1
            yield {"id": f"q{number}", "text": texts[wanted], "category": wanted, "answer": passage.id}
    for at, text in enumerate(FOREIGN[:UNANSWERED], start=1):
        yield {"id": f"a{at}", "text": text, "category": "adversarial", "answer": ""}


def _spread(passages: list[Passage], most: int) -> list[Passage]:
    if len(passages) <= most:
        return passages
    return [passages[at * len(passages) // most] for at in range(most)]


def _some_words(text: str, chance: random.Random) -> str:
    """Words of one sentence in their order, the common ones left out: what somebody may remember of it."""
    candidates = []
    for sentence in _SENTENCE.findall(text):
        words = [word for word in _WORD.findall(sentence) if word.lower() not in ENGLISH]
        if len(words) >= _FEWEST_WORDS:
            candidates.append(words)
    if not candidates:
        return ""
    words = chance.choice(candidates)
    kept = sorted(chance.sample(range(len(words)), min(_MOST_WORDS, max(_FEWEST_WORDS, len(words) // 2))))
    return " ".join(words[at] for at in kept)
