"""kept demo"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import click

from kept.base.wording import plural
from kept.cli.output import echo, style
from kept.cli.search import hit_text, parts_text
from kept.config import load_config
from kept.gateway.app import open_memory
from kept.memory import Memory
from kept.search.hit_display import query_words

SAMPLE = os.path.join(os.path.dirname(__file__), "sample")
QUESTIONS = (
    ("who must keep away from nuts?", "a question in plain words"),
    ("why did nobody notice that backups were broken", "the note says 'failing' and 'had been full'"),
    ("ref-0200-3", "an exact identifier"),
    ("抹茶", "a word inside a sentence without spaces"),
    ("zebra migration patterns of the Serengeti", "something that no note mentions"),
)
NEXT_STEPS = (
    ("kept init", "create your own workspace"),
    ("kept add 'We moved the database to port 5433'", "write something down"),
    ("kept search 'which port is the database on'", "find it again"),
    ("kept status", "show the state of the memory"),
)


@click.command("demo")
def command() -> None:
    """Index a small sample workspace and search it. Leaves nothing behind."""
    with _sample_memory() as memory:
        report = memory.sync()
        echo(
            f"\nIndexed {plural(report.files, 'note')} as {plural(report.chunks, 'chunk')}"
            f" in {report.took_ms / 1000:.2f} s, offline.\n"
        )
        for question, remark in QUESTIONS:
            _search(memory, question, remark)
    echo(style("Next", bold=True))
    for line, purpose in NEXT_STEPS:
        echo(f"  {style(f'{line:<48}', fg='cyan')} {style(purpose, dim=True)}")


@contextmanager
def _sample_memory() -> Iterator[Memory]:
    """Yield a memory of the sample notes in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="kept-demo-") as folder:
        workspace = os.path.join(folder, "workspace")
        shutil.copytree(SAMPLE, workspace)
        # Ignore the user's settings: they could name the user's own index.
        loaded = load_config(workspace=workspace, home=os.path.join(folder, "home"), environ={})
        with open_memory(loaded) as memory:
            yield memory


def _search(memory: Memory, question: str, remark: str) -> None:
    echo(f"{style('kept search', dim=True)} {style(repr(question), bold=True)}  {style(remark, dim=True)}")
    result = memory.search(question, max_results=1)
    for hit in result.hits:
        echo(hit_text(hit, query_words(question)))
        echo(parts_text(hit))
    if not result.hits:
        echo("      Nothing found.")
    echo()
