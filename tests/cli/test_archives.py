"""kept export, restore and why, as a person uses them."""

from tests.support.files import write_file


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
