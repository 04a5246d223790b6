"""What is exported is restored byte for byte, and nothing that is secret or derived is in an archive."""

import gzip
import os
import stat
from functools import partial
from pathlib import Path

import pytest
import yaml

from kept.cli.archive.archive_file import add_member, check_archive
from kept.cli.archive.export import export_archive
from kept.config import load_config
from kept.errors import ArchiveDamaged, ArchiveRefused, UsageError
from tests.support.archives import ELSEWHERE, SECRETS, UNFINISHED, canonical, fill_home, restore
from tests.support.files import tree_of, write_file
from tests.support.histories import LONG_TEXT, versions_of
from tests.support.killing import dying_at, is_killed
from tests.support.planted_words import start_planting
from tests.support.workspaces import open_memory


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    home = tmp_path / "old"
    fill_home(home)
    return home


def export(home: Path, target: Path, **options):
    return export_archive(load_config(home=str(home)), str(target), **options)


@pytest.mark.parametrize("name", ["kept.tar", "kept.tar.gz", "kept.tgz"])
def test_a_restored_home_has_every_file_byte_for_byte_and_private(filled, tmp_path, name):
    report = export(filled, tmp_path / name)
    assert report.problems == ()
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    restored = restore(tmp_path / name, tmp_path / "new")
    assert canonical(tmp_path / "new") == canonical(filled)
    assert restored.counts["new"] == report.files - 1  # the settings are not counted
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new").rglob("*")}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    times = {path: (filled / path).stat().st_mtime_ns for path in canonical(filled) if ".jsonl" not in path}
    assert {path: (tmp_path / "new" / path).stat().st_mtime_ns for path in times} == times


def test_no_byte_of_an_archive_is_secret_or_derived(filled, tmp_path):
    report = export(filled, tmp_path / "kept.tar.gz")
    data = gzip.decompress((tmp_path / "kept.tar.gz").read_bytes())
    for secret in (*SECRETS.values(), *ELSEWHERE, *UNFINISHED):
        assert secret.encode() not in data, secret
    names = check_archive(str(tmp_path / "kept.tar.gz")).files
    assert not [name for name in names if "sqlite" in name or ".lock" in name or ".git" in name or "token" in name]
    assert {name.replace("Key", "_key") for name in report.removed_settings} == set(map(str, SECRETS))


def test_settings_come_back_without_secrets_and_name_the_workspace(filled, tmp_path):
    export(filled, tmp_path / "kept.tar")
    report = restore(tmp_path / "kept.tar", tmp_path / "new", workspace=str(tmp_path / "notes"))
    tree = yaml.safe_load((tmp_path / "new/config.yaml").read_text())
    assert tree["agents"]["defaults"]["memory_search"]["query"] == {"max_results": 8}
    assert tree["gateway"]["http"] == {"port": 8999}
    assert report.settings == "restored"
    assert "gateway.discord.token" in report.removed_settings
    assert load_config(home=str(tmp_path / "new")).config.workspace == str(tmp_path / "notes")
    assert (tmp_path / "notes/MEMORY.md").exists()
    assert (tmp_path / "new/workspace-work/MEMORY.md").exists()


def test_restoring_again_changes_nothing_and_a_file_that_differs_is_kept_and_named(filled, tmp_path):
    export(filled, tmp_path / "kept.tar")
    new = tmp_path / "new"
    restore(tmp_path / "kept.tar", new)
    note = write_file(new / "workspace/MEMORY.md", "Mine.\n")
    session = next((new / "agents/main/sessions").glob("*.jsonl"))
    session.write_bytes(session.read_bytes() + b'{"more": 1}\n')
    before = tree_of(new)
    report = restore(tmp_path / "kept.tar", new)
    assert tree_of(new) == before
    assert [problem.path for problem in report.kept] == [str(note)]
    assert (report.counts["differs"], report.counts["new"]) == (1, 0)
    assert report.settings == "kept"


def test_a_conversation_that_was_deleted_here_stays_deleted(filled, tmp_path):
    from kept.sessions.store import SessionStore

    export(filled, tmp_path / "kept.tar")
    with SessionStore.open(home=filled) as sessions:
        record = sessions.get_or_create("telegram", "5054")
        sessions.delete(record.id, purge=True)
    report = restore(tmp_path / "kept.tar", filled)
    assert report.counts["deleted"] == 1
    assert not [*(filled / "agents/main/sessions").glob(f"*{record.id}.jsonl")]


def test_agents_that_share_notes_share_them_again(filled, tmp_path):
    write_file(filled / "config.yaml", f"agents:\n  list:\n    - {{id: work, workspace: {filled}/workspace}}\n")
    export(filled, tmp_path / "kept.tar")
    restore(tmp_path / "kept.tar", tmp_path / "new")
    workspaces = {
        agent: load_config(home=str(tmp_path / "new"), agent=agent).config.workspace for agent in ("main", "work")
    }
    assert set(workspaces.values()) == {str(tmp_path / "new/workspace")}


def test_a_vault_is_exported_with_its_pictures_and_restored_as_a_vault(tmp_path, environment):
    user = Path(environment["HOME"])
    write_file(user / "vault/Ideas/One.md", "One.\n")
    write_file(user / "vault/Ideas/one.png", b"png")
    write_file(user / "vault/.obsidian/plugins/x.js", "run()")
    home = tmp_path / "old"
    write_file(
        home / "config.yaml", "agents:\n  list:\n    - {id: main, workspace: ~/vault, workspace_layout: vault}\n"
    )
    export(home, tmp_path / "kept.tar")
    (user / "vault").rename(tmp_path / "gone")
    restore(tmp_path / "kept.tar", tmp_path / "new", workspace="~/vault")
    assert {*tree_of(user / "vault")} == {"Ideas", "Ideas/One.md", "Ideas/one.png"}
    config = load_config(home=str(tmp_path / "new")).config
    assert (config.workspace, config.agent.workspace_layout) == (str(user / "vault"), "vault")


def test_an_archive_that_exists_is_not_replaced_unasked_and_no_folder_is_made(filled, tmp_path):
    write_file(tmp_path / "kept.tar", "mine")
    with pytest.raises(UsageError, match="exists already"):
        export(filled, tmp_path / "kept.tar")
    with pytest.raises(UsageError, match=r"ends in \.tar"):
        export(filled, tmp_path / "kept.zip")
    with pytest.raises(UsageError, match="no such folder"):  # perhaps a disk that is not mounted
        export(filled, tmp_path / "usb/kept.tar")
    assert not (tmp_path / "usb").exists()
    assert (tmp_path / "kept.tar").read_text() == "mine"
    export(filled, tmp_path / "kept.tar", overwrite=True)
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]


def test_notes_that_are_not_there_are_reported(filled, tmp_path):
    (filled / "workspace").rename(tmp_path / "unplugged")
    report = export(filled, tmp_path / "kept.tar")
    assert [(problem.path, problem.reason) for problem in report.problems] == [
        (str(filled / "workspace"), "does not exist, so the archive has no notes of main")
    ]


# what was forgotten


def test_a_restore_does_not_bring_back_what_was_forgotten_since(tmp_path):
    home = tmp_path / "home"
    with open_memory(tmp_path) as memory:
        planted = start_planting(memory)
        planted.note("both.md", "- hedgehog\n")
        planted.note("other.md", "- owl\n")
        memory.add(f"The hedgehog has 99. {LONG_TEXT}", to="memory/pets.md")
        planted.say("Remember hedgehog, please.")
        memory.sync()
        loaded = load_config(home=str(home), workspace=str(tmp_path / "workspace"))
        export_archive(loaded, str(tmp_path / "before.tar.gz"))
        memory.forgetting.apply(memory.forgetting.plan("hedgehog"))
        export_archive(loaded, str(tmp_path / "after.tar.gz"))
        (tmp_path / "workspace/memory/other.md").unlink()
        (tmp_path / "workspace/memory/both.md").unlink()
        memory.sync()
        hashes = (home / "agents/main/forgotten-hashes.jsonl").read_bytes()
        options = {"workspace": str(tmp_path / "workspace")}
        report = restore(tmp_path / "before.tar.gz", home, **options)
        assert report.counts["forgotten"] >= 4, "two notes, the conversation and the history"
        assert "you forgot" in " ".join(problem.reason for problem in report.kept)
        assert (tmp_path / "workspace/memory/other.md").exists()
        assert planted.left("hedgehog") == []
        assert (home / "agents/main/forgotten-hashes.jsonl").read_bytes() == hashes
        memory.sync()
        assert not any(b"hedgehog" in data for _, data in versions_of(tmp_path / "workspace"))
        assert restore(tmp_path / "after.tar.gz", home, **options).counts["forgotten"] == 0
        planted.sessions.close()


# crashes and writers


@pytest.mark.kills
def test_a_restore_that_is_killed_is_continued_by_the_same_command(filled, tmp_path):
    export(filled, tmp_path / "kept.tar.gz")

    def restore_and_die(home, moment):
        os.replace = dying_at(moment)(os.replace)
        restore(tmp_path / "kept.tar.gz", home)

    for moment in (1, 5, 9, 13):
        new = tmp_path / f"new-{moment}"
        assert is_killed(partial(restore_and_die, new, moment))
        original = canonical(filled)
        restored = {path: data for path, data in tree_of(new).items() if data is not None and ".tmp" not in path}
        assert all(original[path] == data for path, data in restored.items() if path != "config.yaml")
        restore(tmp_path / "kept.tar.gz", new)
        # 'kept doctor --fix' erases the temporary file that the kill left.
        assert {path: data for path, data in canonical(new).items() if ".tmp" not in path} == original


def test_a_record_that_grows_is_copied_as_it_was_and_a_note_that_vanishes_is_left_out(filled, tmp_path, monkeypatch):
    session = next((filled / "agents/main/sessions").glob("*.jsonl"))
    before = session.read_bytes()
    note = filled / "workspace/memory/empty.md"

    def grow(tar, name, *rest) -> None:
        """Another process writes while the archive is written."""
        add_member(tar, name, *rest)
        if name.endswith("MEMORY.md") and note.exists():
            note.unlink()
            with session.open("ab") as file:
                file.write(b'{"torn": ')

    monkeypatch.setattr("kept.cli.archive.export.add_member", grow)
    report = export(filled, tmp_path / "kept.tar")
    assert report.problems == ()
    restore(tmp_path / "kept.tar", tmp_path / "new")
    assert not (tmp_path / "new" / note.relative_to(filled)).exists()
    assert (tmp_path / "new" / session.relative_to(filled)).read_bytes() == before


@pytest.mark.parametrize("name", ["kept.tar", "kept.tar.gz"])
def test_a_truncated_archive_is_refused_wherever_it_ends(filled, tmp_path, name):
    export(filled, tmp_path / name)
    data = (tmp_path / name).read_bytes()
    for part in (0, 1, 700, len(data) // 3, len(data) // 2, data.rfind(b"}") if name == "kept.tar" else len(data) - 99):
        cut = write_file(tmp_path / f"cut-{name}", data[:part])
        with pytest.raises((ArchiveDamaged, ArchiveRefused), match=r"truncated|not an archive"):
            restore(cut, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_backup_is_made_checked_and_restored(kept, workspace, home, tmp_path):
    write_file(workspace / "MEMORY.md", "- The gate code is 4711.\n")
    write_file(home / "config.yaml", "gateway:\n  discord:\n    token: planted-token-0001\n")
    made = kept("export", tmp_path / "backup.tar.gz")
    assert made.code == 0
    assert "because they are secret: gateway.discord.token." in made.out
    again = kept("export", tmp_path / "backup.tar.gz")
    assert (again.code, again.err.count("\n")) == (2, 1)
    env = {"KEPT_HOME": str(tmp_path / "new"), "KEPT_WORKSPACE": ""}
    checked = kept("restore", "--check", tmp_path / "backup.tar.gz", env=env)
    assert checked.out.startswith("The archive is sound; nothing was changed. A restore: ")
    assert not (tmp_path / "new").exists()
    restored = kept("restore", tmp_path / "backup.tar.gz", env=env)
    assert restored.code == 0
    (tmp_path / "new/workspace/MEMORY.md").write_text("Mine.\n")
    assert kept("restore", "--check", tmp_path / "backup.tar.gz", env=env).code == 1
    assert f"Notes of main: {tmp_path / 'new/workspace'}" in restored.out
    assert "Settings to set again, because an archive has no secrets: gateway.discord.token." in restored.out
    write_file(tmp_path / "new/workspace/MEMORY.md", "Mine.\n")
    kept_back = kept("restore", tmp_path / "backup.tar.gz", env=env)
    assert kept_back.code == 1
    assert "MEMORY.md: 6 bytes here, 25 in the archive." in kept_back.err
    assert (tmp_path / "new/workspace/MEMORY.md").read_text() == "Mine.\n"
