"""Speed cases and their targets."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from benchmarks.mcp_start import first_answer
from benchmarks.measure import Cost, median_cost, run_once

QUESTION = "{a question that the notes answer}"
CHOSEN_NOTE = os.path.join("memory", "005", "note-00500.md")
NO_EMBEDDER = {"KEPT_MEMORY_SEARCH__PROVIDER": "none"}


@dataclass(frozen=True, slots=True)
class Target:
    """Upper limits of CPU time and peak memory."""

    cpu_s: float | None = None
    peak_mb: float | None = None


NO_TARGET = Target()


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    what: str
    cost: Cost
    target: Target = NO_TARGET

    @property
    def ok(self) -> bool | None:
        """Whether the cost is within the target; None without a target."""
        limits = [(self.cost.cpu_s, self.target.cpu_s), (self.cost.peak_mb, self.target.peak_mb)]
        given = [(value, limit) for value, limit in limits if limit is not None]
        return all(value <= limit for value, limit in given) if given else None


@dataclass(frozen=True, slots=True)
class Place:
    """Scratch folder with workspaces, and a home for each configuration."""

    scratch: str
    say: Callable[[str], None]
    filled: set[str] = field(default_factory=set)

    def workspace(self, *, notes: int, sections: int = 1) -> str:
        path = os.path.join(self.scratch, f"notes-{notes}x{sections}")
        if path not in self.filled:
            self.say(f"writing {notes:,} notes")
            size = ["--notes", str(notes), "--sections", str(sections)]
            run_once([sys.executable, "-m", "benchmarks.corpus", path, *size], self.environment(path, "unused"))
            self.filled.add(path)
        return path

    def question(self) -> str:
        """Return a question with the subject of one of the 1,000 notes and a name that many of them contain."""
        with open(os.path.join(self.workspace(notes=1_000), CHOSEN_NOTE), encoding="utf-8") as file:
            subject = file.readline().strip("# \n")
        return f"what did Noor Almeida say about {subject.lower()}?"

    def home(self, name: str) -> str:
        return os.path.join(self.scratch, f"home-{name}")

    def environment(self, workspace: str, home: str) -> dict[str, str]:
        # Drop PYTHON* variables: users do not run with settings such as PYTHONDONTWRITEBYTECODE.
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("KEPT_", "PYTHON"))}
        return {**kept, "KEPT_WORKSPACE": workspace, "KEPT_HOME": self.home(home), "NO_COLOR": "1"}

    def indexed(self, home: str, extra: dict[str, str]) -> dict[str, str]:
        """Return the environment of a home in which the 1,000 notes are indexed."""
        env = self.environment(self.workspace(notes=1_000), home) | extra
        if home not in self.filled:
            self.say("indexing 1,000 notes")
            run_once(kept("index"), env)
            self.filled.add(home)
        return env


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    run: Callable[[Place], Iterator[Row]]
    slow: bool = False


def kept(*arguments: str) -> list[str]:
    return [os.path.join(os.path.dirname(sys.executable), "kept"), *arguments]


def command_case(
    name: str, what: str, command: list[str], target: Target = NO_TARGET, *, extra: dict[str, str] | None = None
) -> Case:
    """Return a case that starts a program for each run, on 1,000 indexed notes."""

    def run(place: Place) -> Iterator[Row]:
        env = place.indexed("keywords" if extra else "local", extra or {})
        asked = [place.question() if part == QUESTION else part for part in command]
        yield Row(name, what, median_cost(asked, env), target)

    return Case(name, run)


def from_nothing_case(name: str, what: str, target: Target = NO_TARGET, *, extra: dict[str, str] | None = None) -> Case:
    def run(place: Place) -> Iterator[Row]:
        env = place.environment(place.workspace(notes=1_000), name) | (extra or {})

        def forget() -> None:
            shutil.rmtree(place.home(name), ignore_errors=True)

        yield Row(name, what, median_cost(kept("index"), env, before=forget), target)

    return Case(name, run)


def browse_case(name: str, what: str, command: list[str], target: Target) -> Case:
    """A command on 10,000 notes, which are indexed once."""

    def run(place: Place) -> Iterator[Row]:
        env = place.environment(place.workspace(notes=10_000), "browse") | NO_EMBEDDER
        if "browse" not in place.filled:
            place.say("indexing 10,000 notes")
            run_once(kept("index"), env)
            place.filled.add("browse")
        yield Row(name, what, median_cost(command, env), target)

    return Case(name, run)


def one_changed_case(name: str, what: str, target: Target = NO_TARGET) -> Case:
    def run(place: Place) -> Iterator[Row]:
        env = place.indexed("local", {})
        note = os.path.join(place.workspace(notes=1_000), CHOSEN_NOTE)
        edits = iter(range(1_000))

        def edit() -> None:
            with open(note, "a", encoding="utf-8") as file:
                file.write(f"Edit number {next(edits)}: the backup moved.\n")

        yield Row(name, what, median_cost(kept("index"), env, before=edit), target)

    return Case(name, run)


def yardstick(name: str, what: str, command: list[str]) -> Case:
    def run(place: Place) -> Iterator[Row]:
        yield Row(name, what, median_cost(command, place.environment(place.scratch, "unused")))

    return Case(name, run)


def warm_case(name: str, size: str, target: Target, *, notes: int, sections: int, slow: bool = False) -> Case:
    """Return a case in which one process indexes notes and another runs many searches."""

    def run(place: Place) -> Iterator[Row]:
        workspace = place.workspace(notes=notes, sections=sections)
        env = place.environment(workspace, name)
        place.say(f"indexing {size} chunks")
        index, _ = run_once(kept("index"), env)
        yield Row(f"{name}-index", f"index {size} chunks in {notes:,} notes from nothing", index)
        place.say("searching")
        whole, printed = run_once(
            [sys.executable, "-m", "benchmarks.warm", "--workspace", workspace, "--home", place.home(name)], env
        )
        found = json.loads(printed)
        what = f"warm `Memory.search`, {found['chunks']:,} chunks"
        for share, limit in ((50, target), (95, NO_TARGET)):
            cpu_s, wall_s = (values[len(values) * share // 100] for values in (found["cpu_s"], found["wall_s"]))
            yield Row(f"{name}-p{share}", f"{what}, p{share}", Cost(cpu_s, wall_s, whole.peak_mb), limit)

    return Case(name, run, slow)


def mcp_start_case(name: str, what: str, target: Target) -> Case:
    def run(place: Place) -> Iterator[Row]:
        env = place.environment(place.workspace(notes=1_000), name)
        yield Row(name, what, first_answer(kept("mcp"), env), target)

    return Case(name, run)


CASES = (
    yardstick("python", "`python -c pass`", [sys.executable, "-c", "pass"]),
    yardstick("import-click", "`python -c 'import click'`", [sys.executable, "-c", "import click"]),
    yardstick("version", "`kept --version`", kept("--version")),
    command_case("search", "cold `kept search`, 1,000 notes", kept("search", QUESTION), Target(0.20, 100)),
    command_case(
        "search-keywords",
        "cold `kept search`, 1,000 notes, keywords only",
        kept("search", QUESTION),
        Target(0.15),
        extra=NO_EMBEDDER,
    ),
    command_case(
        "search-json", "cold `kept search --json`, 1,000 notes", kept("search", QUESTION, "--json"), Target(0.25, 100)
    ),
    browse_case("list", "cold `kept list`, 10,000 notes", kept("list"), Target(0.25)),
    browse_case("list-changed", "cold `kept list --changed`, 10,000 notes", kept("list", "--changed"), Target(0.25)),
    from_nothing_case("index", "index 1,000 notes from nothing", Target(3.0)),
    from_nothing_case("index-keywords", "index 1,000 notes from nothing, keywords only", extra=NO_EMBEDDER),
    command_case("reindex", "`kept index`, nothing changed", kept("index"), Target(0.25)),
    one_changed_case("reindex-one", "`kept index`, one note changed"),
    mcp_start_case("mcp-start", "`kept mcp`, from its start to the first answer", Target(1.5)),
    warm_case("warm-10k", "10,000", Target(0.005), notes=10_000, sections=1),
    warm_case("warm-100k", "100,000", Target(0.012), notes=5_000, sections=20, slow=True),
)
