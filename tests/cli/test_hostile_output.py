"""Nothing that comes from a file, a name, a transcript or a server reaches a terminal raw, whatever the command."""

import json
import os
import pty
import re
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from kept import Message, SessionStore
from kept.cli.root import cli
from kept.sessions.entries import StateEntry, Text, ToolCall, ToolResult
from tests.support.chat_server import ModelServer, Says
from tests.support.commands import start_on
from tests.support.files import write_file
from tests.support.session_strategies import path_of

CODES = "\x1b]52;c;AAAA\x07\x1b[38;5;201m\x1b[2J\x08\x0e\x7f\x9b31m\x9dx\u202eevil\u2066iso\u2028para\u2029"
MARKUP = "[/nope][red]:smile:"
HOSTILE = f"{CODES}{MARKUP}"
NAME = HOSTILE.replace("/", "∕")
RAW = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\udc80-\udcff]|\r(?!\r*\n)")
OURS = re.compile(r"\x1b\[(?:[0-9;]*m|\?25[lh]|[0-9]*[AK])|\r(?=\x1b|$)|\^D\x08\x08")
"""Colours, and what a bar moves the cursor with. The hostile colour is none of ours."""
THEIRS = "\x1b[38;5;201m"
EXACT = (["get"],)
"""What copies a text: into a pipe it goes as it is."""


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command there is, those of groups included."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield (*path, name), command


def arguments(command: click.Command) -> list[str]:
    """Hostile text wherever a command takes text."""
    args: list[str] = []
    for parameter in command.params:
        if isinstance(parameter, click.Argument) and parameter.required:
            choices = getattr(parameter.type, "choices", None)
            args.append(choices[0] if choices else HOSTILE)
        elif isinstance(parameter, click.Option) and parameter.required:
            args += [parameter.opts[0], HOSTILE]
    return args


@pytest.fixture
def hostile(tmp_path: Path, environment: dict[str, str]) -> Iterator[dict[str, Any]]:
    """A workspace, a home and settings in which every name and text is hostile, and a model that answers likewise."""
    workspace, home = tmp_path / f"ws{NAME}", tmp_path / "home"
    for number in range(101):  # as many as get a bar
        write_file(workspace / f"memory/zz/[/nope]{number}{NAME}.md", f"# {HOSTILE} {number}\n")
    write_file(workspace / "memory/a.md", f"# Heading {HOSTILE}\n\nzebra {HOSTILE} crossing\n")
    write_file(workspace / f"memory/binary{NAME}.md", b"\xff\xfe\x00")
    with SessionStore.open(home=home) as store:
        session = store.get_or_create("telegram", NAME)
        store.append(session.id, Message.of("user", f"zebra {HOSTILE}", sender=HOSTILE))
        call = (Text(HOSTILE), ToolCall("1", HOSTILE, {HOSTILE: HOSTILE}))
        store.append(session.id, Message("assistant", call, model=HOSTILE))
        store.append(session.id, Message("tool", (ToolResult("1", HOSTILE, name=HOSTILE),)))
        store.append(session.id, StateEntry("title", HOSTILE))
        store.append(session.id, StateEntry(HOSTILE, HOSTILE))
        other = store.get_or_create("http", "5054")
        store.append(other.id, Message.of("user", "zebra"))
        path = path_of(store, session)
    stamp = "2026-03-14T15:09:26+00:00"
    lines: list[dict[str, Any]] = [
        {"type": HOSTILE, "id": "u1", "parentId": None, "timestamp": stamp},
        {"type": "message", "id": "d1", "parentId": None, "timestamp": HOSTILE, "message": {}},
        {"type": "reset", "id": "r1", "parentId": None, "timestamp": stamp, "reason": HOSTILE, "successor": HOSTILE},
    ]
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    first = {"type": "session", "id": HOSTILE, "parentId": None, "timestamp": stamp, "version": 1, "key": HOSTILE}
    write_file(path.parent / f"20260314T150926Z_{NAME[:60]}.jsonl", json.dumps(first, ensure_ascii=False) + "\n")
    for name in ("models.jsonl", "spending.jsonl", "inbox.jsonl"):
        spent = {"day": HOSTILE, "provider": HOSTILE, "model": HOSTILE, "purpose": HOSTILE, "calls": 1}
        write_file(path.parent.parent / name, json.dumps(spent, ensure_ascii=False) + "\n")
    record = {"type": HOSTILE, "sessionId": HOSTILE, "uuid": "1", "timestamp": HOSTILE, "message": {"role": HOSTILE}}
    write_file(tmp_path / f"imported/{NAME}.jsonl", json.dumps(record, ensure_ascii=False) + "\nnot JSON\n")
    write_file(tmp_path / ".cursor/mcp.json", json.dumps({"mcpServers": {HOSTILE: {"command": HOSTILE}}}, indent=1))
    write_file(tmp_path / "set/corpus.jsonl", json.dumps({"id": "1", "text": "herons"}) + "\n")
    write_file(tmp_path / "set/queries.jsonl", json.dumps({"id": "1", "text": "herons", "category": HOSTILE}) + "\n")
    write_file(tmp_path / "set/qrels.tsv", "query-id\tcorpus-id\tscore\n1\t1\t1\n")
    with ModelServer() as model:
        model.otherwise = Says(HOSTILE)
        settings = {
            "workspace": str(workspace),
            "memory_search": {"provider": "none"},
            "model": {"provider": "openai", "name": HOSTILE, "base_url": model.openai_url},
        }
        tree = {"agents": {"defaults": settings}, "gateway": {"http": {"enabled": True, "port": 0}}}
        write_file(home / "config.yaml", json.dumps(tree))
        yield {"session": session.id, "other": other.id, "tmp": tmp_path}


def runs(hostile: dict[str, Any]) -> list[list[str]]:
    """The commands with arguments that lead to hostile text; any that is not named here with hostile arguments."""
    tmp, session = hostile["tmp"], hostile["session"]
    named = {
        ("index",): [["--force"], ["--json"], ["--watch"]],
        ("init",): [[]],
        ("add",): [[HOSTILE, "--to", f"memory/{NAME[:40]}.md"], [HOSTILE, "--json"], ["x", "--to", HOSTILE]],
        ("search",): [["zebra", "--explain"], ["zebra", "--json", "--explain"], [HOSTILE], ["x", "--path", HOSTILE]],
        ("get",): [["memory/a.md"], *(["memory/a.md", option] for option in ("--json", "--links", "--why")), [HOSTILE]],
        ("list",): [[], *([option] for option in ("--changed", "--tags", "--projects", "--broken-links"))],
        ("review",): [[]],
        ("sessions", "list"): [[], ["--json"], ["--channel", HOSTILE]],
        ("sessions", "show"): [[session], [session, "--json"], [HOSTILE]],
        ("sessions", "reset"): [[f"telegram:{NAME}"], [hostile["other"]]],
        ("sessions", "delete"): [[hostile["other"]], [HOSTILE[:20]]],
        ("import",): [[kind, str(tmp / "imported")] for kind in ("openclaw", "claude-code", "codex", "pi")],
        ("connect",): [["print"], ["cursor", "--scope", "project", "--dry-run"]],
        ("chat",): [["-m", "hello"], ["-m", "hello", "--json"], ["-m", "x", "--session", HOSTILE]],
        ("bench",): [[str(tmp / "set")], [HOSTILE]],
        ("config", "explain"): [[], ["--json"], [HOSTILE]],
        ("config", "get"): [["model.name"], [HOSTILE]],
        ("config", "set"): [
            ["memory_search.local.query_prefix", HOSTILE],
            [HOSTILE, "x"],
            ["tools.max_steps", HOSTILE],
        ],
        ("config", "unset"): [["memory_search.local.query_prefix"], [HOSTILE]],
        ("completion",): [["bash"]],
        ("web",): [["--no-open", "--port", "0"], ["--no-open", "--host", HOSTILE]],
        ("serve",): [["--port", "0"], ["--host", HOSTILE]],
    }
    chosen = [[]]
    for path, command in commands(cli):
        for args in named.get(path, [arguments(command)]):
            chosen.append([*path, *args])
    return [*chosen, ["--help"], [HOSTILE], ["--set", HOSTILE, "status"], ["--agent", HOSTILE, "status"]]


SERVING = {"--watch": " chunks", "gateway": "/v1/messages", "web": "Stop with Ctrl-C", "serve": "Serving at"}
"""What a command that serves says once it does."""
PATIENCE_S = 60


def show(args: list[str], hook: str, environment: dict[str, str], folder: Path, *, terminal: bool) -> tuple[int, str]:
    """Run a command on a terminal or into a pipe, until it ends or serves. Return its exit code and its output."""
    ours, theirs = pty.openpty() if terminal else os.pipe()
    stdin, writer = os.pipe()
    told = hook.encode() if "hook" in args else b""
    run = start_on((theirs if terminal and not told else stdin, theirs, theirs), *args, env=environment, cwd=folder)
    os.close(theirs)
    os.close(stdin)
    os.write(writer, told)
    os.close(writer)
    if terminal and not told:
        os.write(ours, b"\x04")  # Ctrl-D, for what reads the terminal
    out, is_stopped = b"", False
    while select.select([ours], [], [], PATIENCE_S)[0]:
        try:
            part = os.read(ours, 65536)
        except OSError:  # how a terminal ends
            break
        if not part:
            break
        out += part
        if not is_stopped and any(name in args and said.encode() in out for name, said in SERVING.items()):
            is_stopped = True
            os.kill(run.pid, signal.SIGTERM)
    os.close(ours)
    return run.wait(PATIENCE_S), out.decode("utf-8", "surrogateescape")


def test_no_command_writes_to_a_terminal_what_the_terminal_obeys(hostile, environment):
    hook = json.dumps({"cwd": HOSTILE, "session_id": HOSTILE, "transcript_path": f"{HOSTILE}.jsonl"})
    env = {**environment, "TERM": "xterm-256color", "COLUMNS": "200", "EDITOR": "true"}
    shown_by = set()
    for args in runs(hostile):
        for terminal in (True, False):
            code, out = show(args, hook, env, hostile["tmp"], terminal=terminal)
            where = f"{args} on a {'terminal' if terminal else 'pipe'}: {out[:3000]!r}"
            if code == 0 and "evil" in out:
                shown_by.add(args[0])
            assert code not in (70, -9), where
            assert "Traceback" not in out, where
            if not terminal and args[:1] in EXACT and "--json" not in args:
                continue
            assert THEIRS not in out, where
            raw = RAW.search(OURS.sub("", out) if terminal else out)
            assert raw is None, f"{raw[0]!r} at {raw.start()}: {where}" if raw else where
    assert shown_by >= {"index", "search", "get", "sessions", "status", "chat", "config", "connect"}
