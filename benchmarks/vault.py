"""A vault of notes with front matter, tags and links: the CPU time of adopting it, and of each command that reads it.

    python -m benchmarks.vault              # 10,000 notes
    python -m benchmarks.vault --notes 1000

The vault is made below a temporary folder. Each command runs in a process of its own, so imports count.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.corpus import Corpus
from benchmarks.measure import Cost, median_cost, run_once

KEPT = str(Path(sys.executable).with_name("kept"))
AREAS = ("work", "home", "garden", "travel", "health", "money", "reading", "people")
FOLDERS = 100
COMMANDS = (
    ("list",),
    ("list", "--changed"),
    ("list", "--tags"),
    ("list", "--tags", "--json"),
    ("get", "note-7", "--links"),
    ("get", "Hub", "--links"),
    ("search", "what did we decide", "--tag", "work"),
)


def make_vault(folder: Path, notes: int) -> None:
    """Write notes with front matter, inline tags and links; one in ten links to the note "Hub"."""
    corpus = Corpus()
    for number in range(FOLDERS):
        (folder / f"{number:03}").mkdir(parents=True)
    (folder / ".obsidian").mkdir()
    (folder / ".obsidian" / "daily-notes.json").write_text('{"folder": "Journal", "format": "DD.MM.YYYY"}')
    for number in range(notes):
        path = folder / f"{number % FOLDERS:03}" / f"note-{number}.md"
        path.write_text(make_note(corpus, number, notes), encoding="utf-8")
    hub = "---\ntitle: Hub\n---\n\nOther notes link here.\n"
    (folder / "start.md").write_text(hub, encoding="utf-8")


def make_note(corpus: Corpus, number: int, notes: int) -> str:
    pick, area, title = corpus.random.randrange, corpus.random.choice(AREAS), corpus.title()
    other = pick(notes)
    links = [f"[[note-{pick(notes)}]]", f"[[note-{pick(notes)}|{title}]]", "[[nowhere]]" if number % 9 == 0 else ""]
    links += [f"[text](../{other % FOLDERS:03}/note-{other}.md)", "[[Hub]]" if number % 10 == 0 else ""]
    front = f"title: {title}\naliases: [alias {number}]\ntags: [{area}, {area}/{corpus.words[pick(200)]}]\n"
    front += f"created: 2026-{number % 12 + 1:02}-{number % 28 + 1:02}\nstatus: open\n"
    body = (
        f"# {title}\n\n{corpus.section()} #{area}/{corpus.words[pick(200)]}\n\n## Links\n\n{' '.join(links)} #linked\n"
    )
    return f"---\n{front}---\n\n{body}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--notes", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kept-vault-") as name:
        folder = Path(name)
        make_vault(folder / "vault", options.notes)
        env = {**os.environ, "KEPT_HOME": str(folder / "home")}
        env.pop("KEPT_WORKSPACE", None)
        print(f"{options.notes:,} notes")
        for command in (("init", str(folder / "vault")), ("index",), ("index",)):
            show(run_once([KEPT, *command], env)[0], command)
        for command in COMMANDS:
            show(median_cost([KEPT, *command], env, runs=5), command)
        (folder / "vault" / ".gitignore").write_text("node_modules/\n*.log\n/build\ndrafts/\n")
        show(median_cost([KEPT, *COMMANDS[-1]], env, runs=5), (*COMMANDS[-1], "with a .gitignore"))


def show(cost: Cost, command: Sequence[str]) -> None:
    print(f"{cost.cpu_s:8.2f} s CPU  {cost.peak_mb:5.0f} MB  kept {' '.join(command)}")


if __name__ == "__main__":
    main()
