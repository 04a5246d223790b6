"""Connecting real-shaped settings: what is theirs stays, ours comes and goes."""

import json
import stat
import tomllib
from pathlib import Path

import pytest

from kept.cli.connect.clients import CLIENTS, ClientEnvironment
from kept.cli.connect.connection import Connection
from kept.errors import LockBusy
from kept.gateway.app import ServerCommand
from tests.support.commands import KEPT
from tests.support.files import tree_of, write_file
from tests.support.terminals import run_on_terminal, without_styles

pytestmark = pytest.mark.slow

DESKTOP = """{
  "globalShortcut": "Alt+Space",
  "mcpServers": {
    "filesystem": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-filesystem", "/home/me/Documents"],
      "env": { "TOKEN": "sekret" }
    }
  },
  "preferences": {"menuBarEnabled": true, "legacyQuickEntryEnabled": false}
}
"""
CURSOR = '{"mcpServers":{"linear":{"url":"https://mcp.linear.app/sse"}}}'
VSCODE = """{
\t// Prompted for once, then stored by VS Code.
\t"inputs": [
\t\t{ "type": "promptString", "id": "key", "description": "API key", "password": true },
\t],
\t"servers": {
\t\t"weather": { "type": "stdio", "command": "uvx", "args": ["weather"], "env": { "KEY": "${input:key}" } }, // daily
\t}
}
"""
CODEX = '# Codex\nmodel = "gpt-5"\n\n[mcp_servers.docs]\ncommand = "docs"   # local\n\n[tui]\ntheme = "dark"\n'
OPENCLAW = """{
  // personal assistant
  "agents": { "defaults": { "workspace": "~/.openclaw/workspace" } },
  "channels": { "telegram": { "enabled": true, "allowFrom": ["tg:1"], }, },
  "mcp": {
    "servers": {
      "docs": { "command": "npx", "args": ["-y", "docs"] },
    },
  },
}
"""
CLAUDE = """{
  "permissions": { "allow": ["Bash(git *)"] },
  "enabledPlugins": { "formatter@tools": true },
  "hooks": { "Stop": [ { "hooks": [ { "type": "command", "command": "say done" } ] } ] }
}
"""
FILES = {
    "claude-code": (".claude/settings.json", CLAUDE),
    "claude-desktop": (".config/Claude/claude_desktop_config.json", DESKTOP),
    "cursor": (".cursor/mcp.json", CURSOR),
    "codex": (".codex/config.toml", CODEX),
    "vscode": (".config/Code/User/mcp.json", VSCODE),
    "openclaw": (".openclaw/openclaw.json", OPENCLAW),
}


@pytest.fixture
def user() -> Path:
    return Path.home()


@pytest.mark.parametrize("client", FILES)
def test_every_line_of_the_settings_stays_and_undo_brings_back_every_byte(kept, user, client):
    name, text = FILES[client]
    file = write_file(user / name, text)
    file.chmod(0o640)
    dry = kept("connect", client, "--dry-run")
    assert dry.code == 0
    assert f"+++ {file}" in dry.out
    assert file.read_text() == text

    done = kept("connect", client)
    assert done.code == 0, done.err
    assert done.out == dry.out, "what was shown is what is done"
    edited = file.read_text()
    assert edited != text
    whole = [line for line in text.splitlines() if line.rstrip("}, ") in edited]
    assert len(whole) == len(text.splitlines())
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    copy = Path(done.err.split("saved to ")[1].strip().rstrip("."))
    assert copy.read_text() == text
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600

    assert "already" in kept("connect", client).out
    assert file.read_text() == edited
    assert kept("connect", client, "--undo").code == 0
    emptied = '\n  "extraKnownMarketplaces": {},'
    assert file.read_text().replace(emptied, "") == text
    assert "nothing to do" in kept("connect", client, "--undo").out


@pytest.mark.parametrize("client", FILES)
def test_where_there_are_no_settings_they_are_made(kept, user, client):
    assert kept("connect", client).code == 0
    file = user / FILES[client][0]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "kept" in file.read_text()
    assert kept("connect", client, "--undo").code == 0
    assert KEPT not in file.read_text()


@pytest.mark.parametrize("client", FILES)
def test_what_was_changed_since_stays_when_it_is_undone(kept, user, client):
    name, text = FILES[client]
    file = write_file(user / name, text)
    kept("connect", client)
    changed = file.read_text().replace("\n", "\n\n", 1) if client != "cursor" else file.read_text() + "\n"
    file.write_text(changed)
    undone = kept("connect", client, "--undo")
    assert undone.code == 0, undone.err
    left = file.read_text()
    assert "kept@kept" not in left
    assert KEPT not in left
    for line in text.splitlines():
        assert line.strip().rstrip("}, ") in left


def test_the_entry_starts_this_memory_wherever_the_client_is_started(kept, user, workspace, home):
    kept("connect", "cursor")
    entry = json.loads((user / ".cursor/mcp.json").read_text())["mcpServers"]["kept"]
    assert entry == {"command": KEPT, "args": ["--home", str(home), "--workspace", str(workspace), "mcp"]}
    kept("--agent", "coder", "init")
    printed = kept("--agent", "coder", "connect", "print").json["mcpServers"]["kept"]
    assert printed["args"][2:4] == ["--agent", "coder"]
    codex = kept("connect", "codex")
    assert codex.code == 0
    assert tomllib.loads((user / ".codex/config.toml").read_text())["mcp_servers"]["kept"] == entry


def test_a_project_has_settings_of_its_own(kept, user, tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    for client, name, keys in (
        ("claude-code", ".mcp.json", ("mcpServers", "kept", "type")),
        ("cursor", ".cursor/mcp.json", ("mcpServers", "kept", "command")),
        ("vscode", ".vscode/mcp.json", ("servers", "kept", "type")),
        ("codex", ".codex/config.toml", ("mcp_servers", "kept", "command")),
    ):
        assert kept("connect", client, "--scope", "project", cwd=project).code == 0
        text = (project / name).read_text()
        tree = tomllib.loads(text) if name.endswith(".toml") else json.loads(text)
        for key in keys:
            tree = tree[key]
        assert tree in ("stdio", KEPT)
    assert not list(user.rglob("*.json"))
    refused = kept("connect", "claude-desktop", "--scope", "project")
    assert refused.code == 2


@pytest.mark.parametrize("client", FILES)
def test_broken_settings_are_refused_in_one_line_and_stay_as_they_are(kept, user, client):
    name, text = FILES[client]
    for broken in (text[: len(text) // 2].encode(), b"\xff\xfe{}", b'{"a": {"b": [}'):
        file = write_file(user / name, broken)
        before = tree_of(user)
        for options in ((), ("--dry-run",), ("--undo",)):
            ended = kept("connect", client, *options)
            assert ended.code == 2, (broken, ended)
            assert len(ended.err.splitlines()) == 1
            assert str(file) in ended.err
            assert "Nothing was changed" in ended.err
        assert tree_of(user) == before


def test_a_link_to_settings_that_lie_elsewhere_stays_a_link(kept, user):
    real = write_file(user / "dotfiles/cursor.json", CURSOR)
    (user / ".cursor").mkdir()
    (user / ".cursor/mcp.json").symlink_to(real)
    assert kept("connect", "cursor").code == 0
    assert (user / ".cursor/mcp.json").is_symlink()
    assert "kept" in json.loads(real.read_text())["mcpServers"]
    assert kept("connect", "cursor", "--undo").code == 0
    assert real.read_text() == CURSOR


@pytest.mark.parametrize(
    ("client", "file", "text", "reason"),
    [
        ("cursor", ".cursor/mcp.json", "[" + "0," * 1_500_000 + "0]", "has more than 2,000,000 bytes"),
        ("codex", ".codex/config.toml", "a." * 900_000 + "a = 1\n", "a key has more than 50 parts"),
        ("codex", ".codex/config.toml", "a = " + "1" * 10_000 + "\n", "not valid TOML"),
    ],
)
def test_settings_that_cost_more_than_they_can_be_worth_are_refused(kept, user, client, file, text, reason):
    path = write_file(user / file, text)
    ended = kept("connect", client)
    assert (ended.code, len(ended.err.splitlines())) == (2, 1)
    assert reason in ended.err
    assert path.read_text() == text


def test_settings_that_change_while_they_are_looked_at_are_not_overwritten(user, tmp_path):
    file = write_file(user / ".cursor/mcp.json", CURSOR)
    around = ClientEnvironment(str(user), str(tmp_path), "linux", {})
    connection = Connection(CLIENTS["cursor"], "user", around, kept_home=str(tmp_path / "home"))
    changes = connection.plan(ServerCommand("/opt/kept", ()))
    file.write_text("{}")
    with pytest.raises(LockBusy, match="in the meantime"):
        connection.apply(changes)
    assert file.read_text() == "{}"


def test_an_undo_takes_a_second_change_back_too(kept, user):
    file = write_file(user / ".cursor/mcp.json", CURSOR)
    kept("--agent", "coder", "init")
    kept("connect", "cursor")
    assert kept("--agent", "coder", "connect", "cursor").code == 0
    assert "coder" in file.read_text()
    assert kept("connect", "cursor", "--undo").code == 0
    assert file.read_text() == CURSOR


def plugin_of(home):
    hooks = json.loads((home / "claude-code/kept/hooks/hooks.json").read_text())["hooks"]
    return hooks, (home / "claude-code/kept/README.md").read_text()


@pytest.mark.parametrize(
    ("typed", "is_sent", "is_not"),
    [
        (b"recent\n", "daily notes of yesterday", "nothing."),
        (b"memory\n", "MEMORY.md", "daily notes"),
        (b"\n", "MEMORY.md", "daily"),
    ],
)
def test_a_person_chooses_what_a_session_sends(kept, user, home, workspace, environment, typed, is_sent, is_not):
    kept("init", "--layout", "vault", workspace)
    shown = without_styles(run_on_terminal(["connect", "claude-code"], environment, typed=typed))
    assert "send some of your notes to its model" in shown
    hooks, readme = plugin_of(home)
    sent = next(line for line in readme.split("\n\n") if line.startswith("Sent at the start"))
    assert is_sent in sent
    assert is_not not in sent
    assert f"--send {typed.decode().strip() or 'memory'}" in hooks["SessionStart"][0]["hooks"][0]["command"]
    assert "nothing leaves this machine" not in readme


def test_nothing_is_sent_where_nothing_was_chosen_and_what_is_sent_is_said(kept, user, home):
    ended = kept("connect", "claude-code", "--send", "nothing")
    assert "Claude Code sends when a session begins: nothing." in ended.err
    assert "SessionStart" not in plugin_of(home)[0]
    assert "daily notes of yesterday and today" in kept("connect", "claude-code").err
