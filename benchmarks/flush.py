"""Flush real conversations with models that answer in every manner, and print what the notes then say.

python -m benchmarks.flush claude-code DIR        # also codex, pi, openclaw
python -m benchmarks.flush claude-code DIR --notes

Each manner gets a fresh home. Its model picks the same sentences of a conversation and puts them as a list, a nested
list, numbers, JSON, or says in its own words that there is nothing. What is written must be those
sentences, one a line with its source, and nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import json
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from kept import Memory
from kept.agent.agent import Agent
from kept.agent.flush import flush_and_record
from kept.agent.session_log import SessionLog
from kept.models.base import ChatRequest, part_text
from kept.models.extractive import salient_facts
from kept.sessions.importers.import_run import import_sessions
from kept.sessions.spoken import Utterance
from kept.sessions.store import SessionStore
from kept.testing import FakeEmbedder, ScriptedChat

Picked = Sequence[tuple[str, str]]
"""Sentences with their lines."""
_LINE = re.compile(r"^\| L(\d+) \[[^\]]*\] [^:]*: (.*)$", re.MULTILINE)
_FACTS = 6
_EMPTY = (
    "NO_REPLY", "There is nothing worth remembering in this conversation.", "Nothing new was said.", "NONE", "[]",
    "It was small talk. There are no lasting facts.", "## Facts\n\nNo new facts were mentioned.", "- None.",
    "<think>\n- The person asks about a file.\n</think>\nNothing.", "Sure! Here are the facts:",
)  # fmt: skip


def shown(request: ChatRequest) -> str:
    return "\n".join(part_text(part) for turn in request.turns for part in turn.parts)


def pick(request: ChatRequest) -> Picked:
    """Return the sentences of the conversation in a request that matter most, each with its line."""
    lines = [
        Utterance(int(match[1]), "user", "", dt.date.min, "", 0, match[2])
        for match in _LINE.finditer(shown(request))
        if not match[2].startswith(("→", "←"))  # tools
    ]
    return [(f"{fact.text.rstrip('.?!: ')}.", f"L{fact.line}") for fact in salient_facts(lines, limit=_FACTS)]


def as_list(request: ChatRequest) -> str:
    return "Here are the facts:\n" + "\n".join(f"- {text} [{line}]" for text, line in pick(request))


def as_nested_list(request: ChatRequest) -> str:
    return "## Facts\n\n- **Learned:**\n" + "\n".join(f"  - {text} [{line}]" for text, line in pick(request))


def as_numbers(request: ChatRequest) -> str:
    return "\n".join(f"{number}. {text} [{line}]" for number, (text, line) in enumerate(pick(request), 1))


def as_json(request: ChatRequest) -> str:
    return f"```json\n{json.dumps([{'fact': text, 'lines': line} for text, line in pick(request)])}\n```"


MANNERS: dict[str, Callable[[ChatRequest], object]] = {
    "list": as_list,
    "nested list": as_nested_list,
    "numbers": as_numbers,
    "JSON": as_json,
    "nothing, in ten wordings": lambda request: _EMPTY[len(shown(request)) % len(_EMPTY)],
}


def run(manner: str, kind: str, source: Path, home: Path) -> tuple[str, list[str]]:
    """Flush every conversation once. Return the figures, and the lines of the notes."""
    model = ScriptedChat(MANNERS[manner], context_window=60_000)  # type: ignore[arg-type]
    with (
        Memory.open(home / "workspace", home=home / "home", embedder=FakeEmbedder(), create=True) as memory,
        SessionStore(memory.config) as sessions,
    ):
        import_sessions(sessions, kind, source)  # type: ignore[arg-type]
        agent = Agent(memory, sessions, model, retry_wait_s=0.0)
        outcomes = []
        for record in sessions.recent():
            log = SessionLog(sessions, record.id)
            view = log.view()
            outcomes.append(asyncio.run(flush_and_record(agent.services, log, view, view.messages)))
        notes = [line for path in (home / "workspace/memory").glob("*.md") for line in path.read_text().splitlines()]
        proposed = memory.review.count()
    facts = [line for line in notes if line.startswith("- ")]
    wrong = [line for line in facts if not re.search(r"\(from sessions/\S+#L\d+(?:-L\d+)?\)$", line)]
    failed = outcomes.count("failed")
    asked = len(model.requests)
    return (
        f"{manner}: {len(outcomes)} conversations, {asked} requests, {len(facts)} facts written, {proposed} proposed "
        f"for MEMORY.md, {len(wrong)} without a source, {failed} failed",
        facts,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["claude-code", "codex", "pi", "openclaw"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--notes", action="store_true", help="print every fact")
    options = parser.parse_args()
    for manner in MANNERS:
        with tempfile.TemporaryDirectory() as folder:
            figures, facts = run(manner, options.kind, options.folder, Path(folder))
        print(figures)
        for line in facts if options.notes else facts[:4]:
            print(f"    {line[:180]}")


if __name__ == "__main__":
    main()
