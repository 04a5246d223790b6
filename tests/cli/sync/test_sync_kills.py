"""A sync that is killed, or during which others write, loses nothing."""

import subprocess
from pathlib import Path

import pytest

from tests.support.commands import KEPT
from tests.support.sync_machines import connect_machines, git, killed_at, settle

EVERY = 6
"""Of all points, every so many is a point to kill at. The first differs from round to round."""


@pytest.mark.kills
def test_kills_at_every_kind_of_moment_lose_nothing(tmp_path: Path):
    harbour, skerry = machines = connect_machines(tmp_path, "harbour", "skerry")
    words: list[str] = []
    point, is_killed = 1, True
    day = "memory/2026-11-18.md"
    harbour.write(day, "# Day\n\n- first\n")
    settle(machines)
    while is_killed:
        for name, machine in (("harbour", harbour), ("skerry", skerry)):
            words.append(f"{name}-{point}")
            machine.write(day, f"{machine.read(day)}- {words[-1]}\n")
            machine.write(f"memory/{words[-1]}.md", f"{words[-1]}\n")
            machine.write(f"memory/both-{point}.md", f"{words[-1]}\n")
            machine.write("memory/passing.md", words[-1])
        (harbour.workspace / "memory/passing.md").unlink()
        harbour.sync()
        is_killed = killed_at(skerry, point)
        skerry.write("memory/after.md", f"{point}\n")
        skerry.sync()
        point += EVERY
    assert point > 10 * EVERY
    settle(machines)
    assert harbour.files() == skerry.files()
    text = harbour.read(day)
    assert [word for word in words if text.count(f"- {word}\n") != 1] == []
    assert [word for word in words if not (skerry.workspace / f"memory/{word}.md").exists()] == []
    copies = "".join(harbour.read(path) for path in harbour.files() if path.startswith("memory/both-"))
    assert [word for word in words if word not in copies] == []
    assert git(skerry.workspace, "status", "--porcelain", "--untracked-files=no") == ""
    assert git(skerry.workspace, "fsck", "--no-dangling") == ""


@pytest.mark.slow
def test_notes_that_are_added_during_a_sync_are_not_lost(tmp_path: Path):
    harbour, skerry = machines = connect_machines(tmp_path, "harbour", "skerry")
    for number in range(60):
        harbour.write(f"memory/{number}.md", f"{number}\n")
    harbour.sync()
    command = [KEPT, "--home", str(skerry.home), "--workspace", str(skerry.workspace), "add", "--to", "memory/log.md"]
    adding = [subprocess.Popen([*command, f"line {number}"], stdout=subprocess.PIPE) for number in range(4)]
    skerry.sync()
    assert [process.communicate(timeout=60) and process.returncode for process in adding] == [0] * 4
    settle(machines)
    assert harbour.files() == skerry.files()
    assert sorted(line for line in harbour.read("memory/log.md").splitlines() if "line" in line) == [
        f"line {number}" for number in range(4)
    ]


def test_an_edit_between_the_commit_and_the_write_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    harbour, skerry = machines = connect_machines(tmp_path, "harbour", "skerry")
    harbour.write("memory/2026-11-18.md", "first\n")
    settle(machines)
    harbour.write("memory/2026-11-18.md", "first\nfrom the harbour\n")
    harbour.sync()
    run = skerry.run_of
    merge = run._merge

    def edited_before(ours, theirs):
        monkeypatch.setattr(run, "_merge", merge)
        skerry.write("memory/2026-11-18.md", "first\nfrom an editor\n")
        return merge(ours, theirs)

    monkeypatch.setattr(run, "_merge", edited_before)
    run.run()
    assert {*skerry.read("memory/2026-11-18.md").split("\n")} == {"", "first", "from an editor", "from the harbour"}
