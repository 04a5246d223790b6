"""`kept sync` by hand, from fresh homes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

from tests.support.commands import KEPT, Outcome, run_kept
from tests.support.sync_hosts import make_remote


def on(host: str, tmp_path: Path, *arguments: str) -> Outcome:
    return run_kept(*arguments, env=environment_of(host, tmp_path), cwd=tmp_path)


def environment_of(host: str, tmp_path: Path) -> dict[str, str]:
    home = tmp_path / host
    home.mkdir(exist_ok=True)
    return {"PATH": os.environ["PATH"], "HOME": str(home), "KEPT_SYNC__GIT__HOST": host}


def test_two_new_machines_share_notes(tmp_path):
    remote = make_remote(tmp_path)
    for host in ("harbour", "skerry"):
        assert on(host, tmp_path, "init").code == 0
    refused = on("harbour", tmp_path, "sync")
    assert (refused.code, refused.err.count("\n")) == (4, 1)
    assert "is no git repository. Connect it to one with 'kept sync --init URL'." in refused.err
    on("harbour", tmp_path, "add", "Staging moved to port 5433.", "--to", "memory/staging.md")
    first = on("harbour", tmp_path, "sync", "--init", str(remote))
    assert first.out == f"4 files committed; pushed ({remote}, main).\n"
    preview = on("skerry", tmp_path, "sync", "--init", str(remote), "--dry-run", "--json").json
    assert (preview["dryRun"], preview["pulled"]) == (True, ["memory/staging.md"])
    assert not (tmp_path / "skerry/.kept/workspace/memory/staging.md").exists()
    assert "memory/staging.md" in on("skerry", tmp_path, "sync", "--json").json["pulled"]
    assert "port 5433" in on("skerry", tmp_path, "search", "staging port").out
    assert "merged from harbour" in on("skerry", tmp_path, "history").out
    status = on("skerry", tmp_path, "sync", "--status", "--json").json
    assert (status["changed"], status["ahead"], status["behind"]) == ([], 0, 0)
    assert on("skerry", tmp_path, "sync", "--status", "--watch").code == 2
    remote.rename(tmp_path / "away")
    failed = on("skerry", tmp_path, "sync", "--json")
    assert (failed.code, failed.json["error"]["code"]) == (14, "git_sync_failed")


def test_watch_synchronises_if_the_settings_say_so(tmp_path):
    remote = make_remote(tmp_path)
    for host in ("harbour", "skerry"):
        on(host, tmp_path, "init")
        on(host, tmp_path, "sync", "--init", str(remote))
    on("harbour", tmp_path, "add", "Ada keeps bees.", "--to", "memory/bees.md")
    assert on("harbour", tmp_path, "sync").code == 0
    environment = {**environment_of("skerry", tmp_path), "KEPT_SYNC__GIT__ENABLED": "true"}
    watch = subprocess.Popen([KEPT, "index", "--watch", "--json"], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert watch.stdout is not None
        events = map(json.loads, watch.stdout)
        notice = next(event for event in events if event["event"] == "notice")
        assert notice["message"] == f"1 file received ({remote}, main)."
    finally:
        watch.send_signal(signal.SIGTERM)
        assert watch.wait(30) == 0
        watch.stdout.close()
    assert (tmp_path / "skerry/.kept/workspace/memory/bees.md").read_text() == "Ada keeps bees.\n"
