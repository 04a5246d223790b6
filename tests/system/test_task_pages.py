"""The shell examples of the pages about everyday tasks run as printed, on a machine with some notes."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.commands import KEPT
from tests.support.files import tree_of, write_file
from tests.support.planted_words import places_of
from tests.support.repository import ROOT

TASKS = ROOT / "docs/tasks"


def examples(page: str) -> list[str]:
    """Return the blocks marked `sh`. Those that need a service manager or the internet have no mark."""
    return re.findall(r"```sh\n(.*?)```", (TASKS / page).read_text(), re.DOTALL)


@pytest.fixture
def machine(tmp_path, environment):
    """Run a script in bash as the person whose home is the given folder."""

    def run(script: str, home: Path) -> str:
        env = {name: value for name, value in environment.items() if not name.startswith("KEPT_")}
        env |= {"HOME": str(home), "PATH": f"{Path(KEPT).parent}:{env['PATH']}"}
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            env=env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    home = tmp_path / "ada"
    home.mkdir()
    run('kept init ~/notes && kept add "The gate code is 4711." --to memory/gate.md', home)
    run("kept --set model.provider=extractive chat -m 'Who has the spare key?'", home)
    return run


def test_a_backup_restored_on_another_machine_has_everything(machine, tmp_path):
    backup, restore = examples("backup.md")
    machine("kept search gate", tmp_path / "ada")
    before = json.loads(machine("kept sessions list --json", tmp_path / "ada"))["sessions"]
    machine(backup, tmp_path / "ada")
    new = tmp_path / "new"
    new.mkdir()
    (tmp_path / "ada").rename(tmp_path / "gone")
    assert "wrong" not in machine(restore, new)
    assert tree_of(new / "notes") == tree_of(tmp_path / "gone/notes")
    assert "4711" in machine("kept search 'gate code'", new)
    listed = json.loads(machine("kept sessions list --json", new))["sessions"]
    assert listed[0]["messageCount"] == before[0]["messageCount"] > 0
    assert [*(tmp_path / "gone").glob("**/*.sqlite")], "there was an index, which was not copied"


def test_a_corrected_note_is_found_corrected(machine, tmp_path):
    correct, history, undo, list_sessions, *_ = examples("correcting.md")
    before, after = re.findall(r"The gate code is (\d+)", machine(correct, tmp_path / "ada"))[0::2]
    assert (before, after) == ("4711", "0815")
    assert "memory/gate.md" in machine(history, tmp_path / "ada")
    assert "Took back 1 change" in machine(undo, tmp_path / "ada")
    assert machine(list_sessions, tmp_path / "ada")


def test_what_the_page_says_about_forgetting_is_so(machine, tmp_path):
    home = tmp_path / "ada"
    write_file(home / "notes/memory/gate.md", "# Gate\n\nThe old gate code was 4711.\n")
    chat = "kept --set model.provider=extractive chat -m"
    shown = machine(f"{chat} '/forget the old gate code'", home)
    page = (TASKS / "correcting.md").read_text()
    example = re.search(r"```\n/forget the old gate code\n(.*?)```", page, re.DOTALL)
    assert example
    assert shown.startswith(example[1])
    assert "Forgotten: 1 passage" in machine(f"{chat} '/forget yes'", home)
    assert (home / "notes/memory/gate.md").read_text() == "# Gate\n\n"
    assert places_of("The old gate code", home / ".kept", home / "notes") == []


def test_the_examples_about_services_run(machine, tmp_path):
    home = tmp_path / "ada"
    for example in examples("service.md"):
        machine(example, home)
    page = (TASKS / "service.md").read_text()
    for name in ("kept-gateway.service", "org.kept.kept-index.plist", "service.env"):
        assert name in page
    assert not (home / ".config").exists()


def test_what_may_be_deleted_when_going_back_is_only_what_is_derived(machine, tmp_path):
    home = tmp_path / "ada"
    machine("kept search gate", home)
    (command,) = re.findall(r"```\n(rm .*?)```", (TASKS / "service.md").read_text(), re.DOTALL)
    machine(command, home)
    assert "4711" in machine("kept search 'gate code'", home)
