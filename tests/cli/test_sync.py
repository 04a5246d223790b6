"""`kept sync` by hand, from fresh homes."""

import os
import subprocess
from pathlib import Path

from tests.support.commands import KEPT, Outcome, run_kept
from tests.support.sync_machines import make_remote


def on(machine: str, tmp_path: Path, *arguments: str) -> Outcome:
    return run_kept(*arguments, env=environment_of(machine, tmp_path), cwd=tmp_path)


def environment_of(machine: str, tmp_path: Path) -> dict[str, str]:
    home = tmp_path / machine
    home.mkdir(exist_ok=True)
    return {"PATH": os.environ["PATH"], "HOME": str(home)}


def test_two_new_machines_share_notes(tmp_path):
    remote = make_remote(tmp_path)
    for machine in ("harbour", "skerry"):
        assert on(machine, tmp_path, "init").code == 0
    refused = on("harbour", tmp_path, "sync")
    assert (refused.code, refused.err.count("\n")) == (4, 1)
    assert "is no git repository. Connect it with 'kept sync --init URL'." in refused.err
    on("harbour", tmp_path, "add", "Staging moved to port 5433.", "--to", "memory/staging.md")
    assert (
        on("harbour", tmp_path, "sync", "--init", str(remote)).out
        == "3 files committed, 0 received, pushed (origin, main).\n"
    )
    on("skerry", tmp_path, "index")
    assert "memory/staging.md" in on("skerry", tmp_path, "sync", "--init", str(remote), "--json").json["received"]
    assert "port 5433" in on("skerry", tmp_path, "search", "staging port").out
    assert "memory/staging.md" in on("skerry", tmp_path, "history").out
    assert on("skerry", tmp_path, "sync").out == "0 files committed, 0 received (origin, main).\n"
    for machine, port in (("harbour", 1), ("skerry", 2)):
        (tmp_path / machine / ".kept/workspace/memory/staging.md").write_text(f"Port {port}.\n")
        ended = on(machine, tmp_path, "sync")
    assert "another machine's version of a note that both changed" in ended.err
    assert "conflict copy of memory/staging.md" in on("skerry", tmp_path, "doctor").out
    forgotten = on("skerry", tmp_path, "forget", "Port 2.", "--yes", "--json")
    assert any("history of a git repository" in place for place in forgotten.json["receipt"]["unreachable"])
    remote.rename(tmp_path / "away")
    failed = on("skerry", tmp_path, "sync", "--json")
    assert (failed.code, failed.json["error"]["code"]) == (14, "sync_failed")


def test_two_syncs_of_one_workspace_take_turns(tmp_path):
    remote = make_remote(tmp_path)
    on("harbour", tmp_path, "init")
    on("harbour", tmp_path, "sync", "--init", str(remote))
    on("harbour", tmp_path, "add", "Ada keeps bees.")
    environment = environment_of("harbour", tmp_path)
    both = [subprocess.Popen([KEPT, "sync"], env=environment, stdout=subprocess.PIPE) for _ in range(2)]
    outputs = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted(outputs) == [
        b"0 files committed, 0 received (origin, main).\n",
        b"1 file committed, 0 received, pushed (origin, main).\n",
    ]
