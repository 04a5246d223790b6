"""A starter set made of the user's own notes: passages, and queries from their headings and sentences.

No model is asked, so the queries are plain: they use the words of the notes. The same notes always give the same set.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from typing import Any

from kept.base.durable import make_private_folder, write_atomic
from kept.base.records import Chunk, cite
from kept.base.values import frozen
from kept.base.words.stopwords import ENGLISH
from kept.config import Config
from kept.errors import UsageError, WorkspaceError
from kept.index.chunking.markdown import HEADING_JOIN, ChunkSize, chunk_markdown
from kept.notes.opened import OpenWorkspace
from kept.notes.scan import scan_workspace
from kept.notes.workspace import Workspace
from kept.server.bench.dataset import CORPUS, QRELS, QUERIES, sample

MAX_QUERIES = 200
_SEED = 20260314
_FEWEST_WORDS, _MOST_WORDS = 3, 6
_SENTENCE = re.compile(r"[^.!?。！？\n]{20,}")
_WORD = re.compile(r"\w[\w'-]+")

FOREIGN = (
    "How long should sourdough proof in a cold kitchen?",
    "Which clamp holds a mitred corner while the glue sets?",
    "What gear ratio suits a touring bicycle in the Alps?",
    "When do barn swallows leave for the south?",
    "How is the tension of a loom's warp kept even?",
    "Why does a harpsichord not play louder when struck harder?",
    "What was the toll for a barge on the upper canal in 1820?",
    "How deep must a fence post stand in sandy soil?",
    "Which lichen tells that the air is clean?",
    "What does a referee do when both sails touch the buoy?",
)
"""Questions that few memories can answer."""


@frozen
class StarterSet:
    folder: str
    documents: int
    queries: int


@frozen
class SampledPassage:
    id: str
    text: str
    heading: str
    """Nearest heading above it."""


def write_starter(config: Config, folder: str) -> StarterSet:
    """Write a set. Raise UsageError if the folder is not new or empty."""
    folder = os.path.abspath(os.path.expanduser(folder))
    if os.path.lexists(folder) and not (os.path.isdir(folder) and not os.listdir(folder)):
        raise UsageError(f"{folder} is not empty.", hint="Name a folder that is new or empty.")
    passages = [*iter_passages(config)]
    if not passages:
        raise UsageError(f"There are no notes in {config.workspace} to make a set from.", hint="See 'kept add --help'.")
    queries = [*iter_queries(passages)]
    files = {
        "README.md": resources.files("kept.server.bench").joinpath("starter.md").read_text(encoding="utf-8"),
        CORPUS: _jsonl({"id": passage.id, "text": passage.text} for passage in passages),
        QUERIES: _jsonl({name: query[name] for name in ("id", "text", "category")} for query in queries),
        QRELS: "query-id\tcorpus-id\trel\n"
        + "".join(f"{query['id']}\t{query['answer']}\t1\n" for query in queries if query["answer"]),
    }
    make_private_folder(folder)
    for name, text in files.items():
        write_atomic(os.path.join(folder, name), text.encode("utf-8", "replace"))
    return StarterSet(folder, len(passages), len(queries))


def _jsonl(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


# passages


def iter_passages(config: Config) -> Iterator[SampledPassage]:
    settings = config.memory_search
    workspace = Workspace.of(config)
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


def _passages_of(path: str, text: str, size: ChunkSize) -> Iterator[SampledPassage]:
    seen: set[str] = set()
    for chunk in chunk_markdown(text, name=path, size=size):
        name = cite(path, chunk.start_line, chunk.end_line).replace("\t", " ").replace("\n", " ")
        if name not in seen:  # pieces of one long line have one name
            seen.add(name)
            yield SampledPassage(name, _with_headings(chunk), chunk.heading.split(HEADING_JOIN)[-1])


def _with_headings(chunk: Chunk) -> str:
    """Return a chunk with the headings above it: it becomes a separate note."""
    titles = [title for title in chunk.heading.split(HEADING_JOIN) if title]
    above = [f"{'#' * level} {title}" for level, title in enumerate(titles, 1) if title not in chunk.text]
    return "\n\n".join((*above, chunk.text))


# queries


def iter_queries(passages: list[SampledPassage]) -> Iterator[dict[str, str]]:
    """Yield queries from evenly spread passages, of the categories in turn: the heading, if no other passage has the
    same, and words of one sentence."""
    rng = random.Random(_SEED)
    headings = Counter(passage.heading for passage in passages)
    number = 0
    for passage in sample(passages, MAX_QUERIES - len(FOREIGN)):
        has_own_heading = len(passage.heading.split()) > 1 and headings[passage.heading] == 1
        words = _some_words(_pick_sentence(passage.text, rng), rng)
        texts = {"heading": passage.heading if has_own_heading else "", "words": words}
        turn = number % len(texts)
        category = next((name for name in [*texts][turn:] + [*texts][:turn] if texts[name]), None)
        if category:
            number += 1
            yield {"id": f"q{number}", "text": texts[category], "category": category, "answer": passage.id}
    for foreign_number, text in enumerate(FOREIGN, start=1):
        yield {"id": f"a{foreign_number}", "text": text, "category": "adversarial", "answer": ""}


def _pick_sentence(text: str, rng: random.Random) -> list[str]:
    """Return the words of one sentence, without common ones; none if no sentence has enough."""
    candidates = []
    for sentence in _SENTENCE.findall(text):
        words = [word for word in _WORD.findall(sentence) if word.lower() not in ENGLISH]
        if len(words) >= _FEWEST_WORDS:
            candidates.append(words)
    return rng.choice(candidates) if candidates else []


def _some_words(words: list[str], rng: random.Random) -> str:
    """Return some words of a sentence in their order, as a person might remember it."""
    if not words:
        return ""
    sampled = sorted(rng.sample(range(len(words)), min(_MOST_WORDS, max(_FEWEST_WORDS, len(words) // 2))))
    return " ".join(words[position] for position in sampled)
