"""The JSON of every command is as docs/reference/json.schema.json describes it."""

import datetime as dt
import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
from jsonschema import Draft202012Validator

from kept import Author, Memory
from kept.cli.root import COMMANDS, WITHOUT_JSON, cli
from kept.sessions.entries import Message
from kept.sessions.schedules.schedule_book import Schedule, open_schedules
from kept.sessions.store import SessionStore
from tests.support.chat_exports import gpt_talk, gpt_zip
from tests.support.commands import start_kept
from tests.support.files import write_file
from tests.support.foreign_transcripts import lines, pi_header, pi_user
from tests.support.json_schema import SCHEMA, check
from tests.support.sync_machines import make_remote

SNAKE_CASE = ("bench",)
"""Documented with the names of the settings and figures, which programs rely on."""
SHARED = {*re.findall(r'"#/\$defs/([^"]+)"', json.dumps(SCHEMA))}
"""Parts of the output of several commands, and commands with the same output."""

SCHEDULE = "b2c3d4"


def commands_with_json() -> list[str]:
    def walk(path: str, command: click.Command) -> list[str]:
        has_json = path.split()[0] not in WITHOUT_JSON and getattr(command, "invoke_without_command", True)
        inner = command.commands.items() if isinstance(command, click.Group) else ()
        return [path] * has_json + [name for child, leaf in inner for name in walk(f"{path} {child}", leaf)]

    commands = {name: cli.get_command(click.Context(cli), name) for name in COMMANDS}
    return [path for name, command in commands.items() if command for path in walk(name, command)]


@pytest.fixture
def session(home: Path, workspace: Path) -> str:
    """A conversation, and notes with tags and links."""
    write_file(
        workspace / "MEMORY.md", "# Memory\n\n- Ada keeps the #light/house at Skerry. See [[ideas]] and [[nowhere]].\n"
    )
    write_file(workspace / "memory/ideas.md", "---\ntitle: Ideas\n---\nA lighthouse for bees.\n")
    parts = "\n\n".join(f"## Part {part}\n\nThe walrus ledger. " + f"word{part} " * 60 for part in range(3))
    write_file(workspace / "memory/walrus.md", parts)
    write_file(workspace / "memory/2026-03-02.md", "# 2026-03-02\n\n## 09:30\n\nStaging moved to port 5433.\n")
    write_file(workspace.parent / "set/corpus.jsonl", '{"id": "d1", "text": "Ada keeps the lighthouse."}\n')
    write_file(workspace.parent / "set/queries.jsonl", '{"id": "q1", "text": "who keeps it?", "category": "c"}\n')
    write_file(workspace.parent / "set/qrels.tsv", "query-id\tcorpus-id\trel\nq1\td1\t1\n")
    gpt_zip(workspace.parent / "user/Downloads/gpt.zip", gpt_talk())
    write_file(workspace.parent / "user/.pi/agent/sessions/a.jsonl", lines(pi_header(), pi_user("a1", None, "Hello")))
    with SessionStore.open(home=home) as sessions:
        record = sessions.get_or_create("telegram", "5054")
        sessions.append(record.id, Message.of("user", "Where is the lighthouse?"))
        sessions.append(record.id, Message.of("assistant", "At Skerry."))
    with Memory.open(home=home, workspace=workspace) as memory:
        created = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
        schedule = Schedule(SCHEDULE, "every day 8:00", "UTC", "What is due?", "", created)
        open_schedules(memory.config).change(lambda book: book.with_schedule(schedule))
        for name in ("aaaa", "bbbb"):
            memory.add(f"Be {name}.", to="SOUL.md", by_tool=True, author=Author(session=name))
    return record.id


def runs(session: str, tmp: Path) -> list[tuple[str, list[str]]]:
    """Every command with --json, in an order in which each finds what it needs."""
    return [
        ("init", ["init", str(tmp / "fresh")]),
        ("add", ["add", "Bees fly.", "--to", "memory/bees.md"]),
        ("add", ["add", "Bees swarm.", "--replaces", "memory/bees.md:1"]),
        ("add", ["add", "Bees fly high.", "--to", "memory/bees.md"]),
        ("add", ["add", "Bees fly low.", "--to", "memory/bees.md"]),
        ("search", ["search", "bees swarm", "--as-of", "tomorrow"]),
        ("history", ["history", "--diff"]),
        ("undo", ["undo", "--dry-run"]),
        ("review", ["review"]),
        ("review list", ["review", "list"]),
        ("review accept", ["review", "accept", "--session", "aaaa"]),
        ("review reject", ["review", "reject", "--session", "bbbb"]),
        ("sync", ["sync", "--init", str(make_remote(tmp))]),
        ("index", ["index"]),
        ("index", ["index", "--verbose"]),
        ("search", ["search", "lighthouse", "--min-score", "0"]),
        ("search", ["search", "lighthouse", "--explain", "--source", "sessions"]),
        ("search", ["search", "walrus ledger", "--explain"]),
        ("search", ["search", "2026-03-02"]),
        ("get", ["get", "MEMORY.md"]),
        ("list", ["list", "--source", "all"]),
        ("list", ["list", "--changed"]),
        ("list --tags", ["list", "--tags"]),
        ("get --links", ["get", "MEMORY.md", "--links"]),
        ("get --links", ["get", "Ideas", "--links"]),
        ("list --broken-links", ["list", "--broken-links"]),
        ("config agents", ["config", "agents"]),
        ("init", ["--agent", "coder", "init"]),
        ("init --project", ["init", "--project", "otter", str(tmp / "fresh")]),
        ("list --projects", ["list", "--projects"]),
        ("token create", ["token", "create", "ci", "--scope", "write", "--for-person", "http:ada", "--expires", "30d"]),
        ("token list", ["token", "list"]),
        ("token revoke", ["token", "revoke", "ci"]),
        ("schedule add", ["schedule", "add", "every weekday 8:00", "What is due today?"]),
        ("schedule list", ["schedule", "list"]),
        *((f"schedule {name}", ["schedule", name, SCHEDULE]) for name in ("pause", "resume", "remove")),
        ("schedule add", ["schedule", "add", "tomorrow 9:00", "Call Ada.", "--to", "telegram:5054"]),
        ("status", ["status"]),
        ("doctor", ["doctor"]),
        ("get --why", ["get", "memory/bees.md#L1", "--why"]),
        ("export", ["export", str(tmp / "kept.tar")]),
        ("restore", ["restore", str(tmp / "kept.tar")]),
        ("models", ["models"]),
        ("models use", ["models", "use", "multilingual"]),
        ("models remove", ["models", "remove", "bge-small-en"]),
        ("config explain", ["config", "explain"]),
        ("config get", ["config", "get", "query"]),
        ("config set", ["config", "set", "memory_search.query.max_results", "5"]),
        ("config unset", ["config", "unset", "memory_search.query.max_results"]),
        ("config path", ["config", "path"]),
        ("sessions list", ["sessions", "list"]),
        ("sessions show", ["sessions", "show", session]),
        ("sessions rename", ["sessions", "rename", session, "Lighthouses"]),
        ("sessions reset", ["sessions", "reset", session]),
        ("sessions delete", ["sessions", "delete", session]),
        ("sessions list", ["sessions", "list", "--deleted"]),
        ("sessions restore", ["sessions", "restore", session]),
        ("forget", ["forget", "Skerry", "--dry-run"]),
        ("forget", ["forget", "Bees fly", "--yes"]),
        *(
            ("importReport", ["import", kind, str(tmp / "fresh")])
            for kind in ("claude-code", "codex", "openclaw", "pi", "claude-ai")
        ),
        ("importReport", ["import", "chatgpt", str(tmp / "user/Downloads/gpt.zip")]),
        ("import", ["import", "--yes"]),
        ("connect", ["connect", "cursor", "--scope", "project", "--dry-run"]),
        ("bench", ["bench", str(tmp / "set")]),
        ("chat", ["--set", "model.provider=extractive", "chat", "-m", "where is the lighthouse?"]),
        ("sessions show", ["sessions", "show", "terminal:main"]),
        ("error", ["get", "nowhere.md"]),
    ]


def test_the_output_of_every_command_fits_its_schema(kept, session, tmp_path):
    checked = {"models pull"}  # the tests of those commands check it
    for name, args in runs(session, tmp_path):
        ended = kept(*args, "--json")
        assert ended.code in (0, 1) or name == "error", (args, ended.out, ended.err)
        check(name, ended.json)
        checked.add(name)
    assert not {*commands_with_json()} - checked


def test_watch_indexes_at_once_stops_when_told_and_all_its_events_fit_the_schema(session, tmp_path):
    watching = start_kept(tmp_path, "index", "--watch", "--json")
    for line in watching.stdout:
        event = json.loads(line)
        check("index --watch", event)
        if event["event"] == "synced":
            watching.terminate()
    watching.communicate(timeout=60)
    assert watching.returncode == 0


def test_every_name_is_in_camel_case():
    for name, schema in SCHEMA["$defs"].items():
        for key in property_names(schema):
            assert name in SNAKE_CASE or re.fullmatch("[a-z][A-Za-z0-9]*", key), f"{name}: {key}"


def test_the_schema_is_valid_and_has_nothing_for_commands_that_are_gone():
    Draft202012Validator.check_schema(SCHEMA)
    names = {name.partition(" --")[0] for name in SCHEMA["$defs"]}
    assert {*commands_with_json()} <= names
    assert names - {*commands_with_json(), "error"} <= SHARED


def property_names(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [name for item in schema for name in property_names(item)]
    if not isinstance(schema, dict):
        return []
    own = [*schema.get("properties", {})]
    return own + [name for value in schema.values() for name in property_names(value)]
