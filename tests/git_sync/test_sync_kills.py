"""A process that is killed at any point of a sync leaves a workspace in which the next sync goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from kept import git_command
from kept.errors import KeptError
from tests.support.sync_hosts import SyncHost, connect_team, git, settle

pytestmark = pytest.mark.kills

STEPS = ("replace", "fsync", "unlink")
EVERY = 4
"""Of all points, every so many is a point to kill at. The first differs from round to round."""


def killed_at(host: SyncHost, point: int) -> bool:
    """Synchronise in a process that is killed when it starts git, or changes a file, for the ``point``-th time."""
    child = os.fork()
    if child == 0:
        calls = iter(range(point - 1))

        def watched(original):
            def call(*args, **kwargs):
                if next(calls, None) is None:
                    os.kill(os.getpid(), signal.SIGKILL)
                return original(*args, **kwargs)

            return call

        try:
            for step in STEPS:
                setattr(os, step, watched(getattr(os, step)))
            git_command.subprocess.Popen = watched(git_command.subprocess.Popen)
            host.run()
        except KeptError:
            pass
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


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
