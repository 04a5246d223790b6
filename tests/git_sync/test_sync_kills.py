"""A process that is killed at any point of a sync leaves a workspace in which the next sync goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sync_hosts import connect_team, git, killed_at, settle

pytestmark = pytest.mark.kills

EVERY = 4
"""Of all points, every so many is a point to kill at. The first differs from round to round."""


def test_kills_at_every_kind_of_moment_lose_nothing(tmp_path: Path):
    harbour, skerry = team = connect_team(tmp_path, "harbour", "skerry")
    words: list[str] = []
    point, is_killed = 1, True
    harbour.write("memory/list.md", "# List\n\n- first\n")
    settle(team)
    while is_killed:
        for host in team:
            words.append(f"{host.name}-{point}")
            host.write("memory/list.md", f"{host.read('memory/list.md')}- {words[-1]}\n")
            host.write(f"memory/{words[-1]}.md", f"{words[-1]}\n")
            (host.workspace / "memory/passing.md").write_text(words[-1])
        (harbour.workspace / "memory/passing.md").unlink()
        harbour.run()
        is_killed = killed_at(skerry, point)
        skerry.write("memory/after.md", f"{point}\n")
        point += EVERY
    assert point > 10 * EVERY
    settle(team)
    assert harbour.files() == skerry.files()
    text = harbour.read("memory/list.md")
    assert [word for word in words if f"- {word}\n" not in text] == []
    assert [word for word in words if not (skerry.workspace / f"memory/{word}.md").exists()] == []
    assert text.count("harbour-1\n") == 1
    assert git(skerry.workspace, "status", "--porcelain") == ""
    assert git(skerry.workspace, "fsck", "--no-dangling") == ""
