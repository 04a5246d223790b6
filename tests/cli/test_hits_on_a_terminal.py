"""Hits as a person sees them on terminals of several widths, and as a program gets them in a pipe."""

import re
from pathlib import Path

import pytest

from kept.cli.terminal_layout import text_width
from tests.support.files import write_file
from tests.support.terminals import run_on_terminal, without_styles

LONG = (
    "- The staging database moved to port 5433 because the old one was taken by the analytics replica, and nobody"
    " wanted to change the firewall rules in Utrecht before the holidays were over."
)


@pytest.fixture
def terminal(environment: dict[str, str], workspace: Path) -> dict[str, str]:
    write_file(workspace / "MEMORY.md", f"# Memory\n\n## Databases\n{LONG}\n")
    write_file(
        workspace / "memory/2026-03-02.md",
        "# 2026-03-02\n\n## 09:30\n\nCafés near the port: 抹茶を飲みながら復旧した、そして誰もいなくなったので港へ。\n",
    )
    return {**environment, "KEPT_WORKSPACE": str(workspace)}


@pytest.mark.parametrize("columns", [50, 80, 120])
def test_text_is_wrapped_at_words_with_a_hanging_indent(terminal, columns):
    shown = without_styles(run_on_terminal(["search", "staging port", "--explain"], terminal, columns=columns))
    lines = shown.split("\n")
    assert max(map(text_width, lines)) <= columns
    first = next(at for at, line in enumerate(lines) if line.startswith("      - The staging"))
    assert lines[first + 1].startswith("        ")
    item = " ".join(line.strip() for line in lines[first : first + 6])
    assert LONG in item  # no word is cut


def test_a_hit_has_one_header_line_and_no_date_twice(kept, terminal):
    header, text, *_ = kept("search", "cafés").out.splitlines()
    assert re.fullmatch(r"\d\.\d\d strong  memory/2026-03-02\.md#L1-L5  09:30", header)
    assert text.startswith("      Cafés near the port")
    shown = kept("search", "utrecht").out.splitlines()
    assert re.fullmatch(r"\d\.\d\d strong  MEMORY\.md#L1-L4  Memory > Databases  \d{4}-\d\d-\d\d", shown[0])
    assert shown[1] == f"      {LONG}"


def test_matched_words_are_highlighted_whatever_case_accent_or_ending(terminal):
    shown = run_on_terminal(["search", "which CAFE is near the ports? 抹茶"], terminal)
    marked = set(re.findall(r"\x1b\[33m\x1b\[1m(.*?)\x1b\[0m", shown))
    assert {"Cafés", "port", "near", "抹茶"} <= marked
    assert not {"is", "the"} & marked


@pytest.mark.parametrize("query", ["otter20", "otter20 pond", "otter"])
def test_the_line_that_matched_is_shown_in_a_pipe_and_on_a_terminal(kept, terminal, workspace, query):
    items = "".join(f"- otter{n} to feed\n" for n in range(1, 20)) + "- an otter, otter20, at the pond\n"
    write_file(workspace / "memory/inbox.md", f"# Inbox\n\n{items}")
    piped = kept("search", query, "-n", "1").out
    assert "otter20, at the pond" in piped
    shown = without_styles(run_on_terminal(["search", query, "-n", "1"], terminal))
    assert "otter20, at the pond" in shown
    assert re.match(r"\d\.\d\d (strong|likely)  memory/inbox", shown)
    assert re.match(r"\d\.\d\d (strong|likely)  memory/inbox", piped)


def test_a_weak_hit_of_one_line_shows_the_line_that_matched(kept, terminal, workspace):
    write_file(workspace / "memory/health.md", "# Health\n\nGlasses.\n\nTeeth.\n\nAllergic to penicillin.\n\nFeet.\n")
    write_file(workspace / "memory/vet.md", "# Vet\n\nThe dog is allergic to nuts and pollen in spring.\n")
    shown = kept("search", "what is the dog allergic to, nuts or pollen").out
    assert "weak  memory/health.md" in shown
    assert "Allergic to penicillin." in shown


def test_further_passages_of_a_note_take_one_line_each_below_its_hit(kept, terminal, workspace):
    parts = [f"## Part {part}\n\nThe walrus ledger, part {part}. " + f"word{part} " * 60 for part in range(3)]
    write_file(workspace / "memory/walrus.md", "\n\n".join(["# Walrus", *parts]))
    shown = kept("search", "walrus ledger").out
    assert re.findall(r"^\d\.\d\d strong  (\S+)#", shown, re.M) == ["memory/walrus.md"]
    further = re.findall(r"^      also (L\d+-L\d+)  \d\.\d\d  (Part \d): The walrus ledger", shown, re.M)
    assert len(further) == 2
    narrow = without_styles(run_on_terminal(["search", "walrus ledger"], terminal, columns=50))
    assert max(map(text_width, narrow.split("\n"))) <= 50
    (hit,) = kept("search", "walrus ledger", "--json").json["results"]
    assert [f"L{passage['startLine']}-L{passage['endLine']}" for passage in hit["further"]] == [at for at, _ in further]
    assert all(passage["citation"].startswith("memory/walrus.md#L") for passage in hit["further"])
