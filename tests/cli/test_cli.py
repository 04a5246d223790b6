"""The command as people and scripts run it: a real process, its output, its exit code, and what it leaves on disk."""

import os
import re
import subprocess
from pathlib import Path

import click
import pytest

from kept import __version__
from kept.cli.root import COMMANDS, cli
from kept.sessions.entries import Message
from kept.sessions.store import SessionStore
from tests.support.commands import KEPT
from tests.support.files import tree_of, write_file
from tests.support.session_strategies import path_of
from tests.support.terminals import run_on_terminal

ANSI = re.compile(r"\x1b")
ON_SEARCH_OFF = "memory_search.sync.on_search=false"


@pytest.fixture
def notes(workspace: Path) -> Path:
    write_file(
        workspace / "MEMORY.md", "# Memory\n\n- Ada keeps the lighthouse at Skerry.\n- Bob bakes bread on Mondays.\n"
    )
    write_file(
        workspace / "memory/2026-03-02.md", "# 2026-03-02\n\n## 09:30\n\nThe staging database moved to port 5433.\n"
    )
    write_file(workspace / "memory/ideas.md", "".join(f"line {n}\n" for n in range(1, 301)))
    return workspace


# commands


def test_version_is_that_of_the_package(kept):
    ended = kept("--version")
    assert (ended.code, ended.out, ended.err) == (0, f"kept, version {__version__}\n", "")


def test_add_writes_its_arguments_to_the_daily_log(kept, workspace):
    ended = kept("add", "We", "moved", "the database.")
    (log,) = (workspace / "memory").iterdir()
    assert ended.out == f"Kept in memory/{log.name}#L3-L5 (folder {workspace}).\n"
    assert re.fullmatch(r"# \d{4}-\d\d-\d\d\n\n## \d\d:\d\d\n\nWe moved the database\.\n", log.read_text())


def test_add_reads_standard_input(kept, workspace):
    for encoding in ("utf-8", "utf-8-sig"):
        assert kept("add", "--to", f"memory/{encoding}.md", stdin="café 😀".encode(encoding)).code == 0
        assert (workspace / f"memory/{encoding}.md").read_text(encoding="utf-8") == "café 😀\n"
    ended = kept("add", "-", "--to", "memory/x.md", "--json", stdin="first\r\nsecond\n\n")
    assert ended.json == {
        "path": "memory/x.md",
        "startLine": 1,
        "endLine": 2,
        "citation": "memory/x.md#L1-L2",
        "degraded": [],
        "review": None,
        "isProposed": False,
        "isWaiting": False,
        "isNew": True,
        "replaced": None,
        "near": [],
        "workspaceDir": str(workspace),
    }
    assert (workspace / "memory/x.md").read_text() == "first\nsecond\n"


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("café".encode("latin-1"), "Standard input is not text in UTF-8 (byte 4)."),
        (b"caf\x00e", "Standard input contains NUL bytes: it is binary, or text in UTF-16."),
        ("café".encode("utf-16-le"), "Standard input is not text in UTF-8"),
    ],
)
def test_add_refuses_bytes_that_it_would_have_to_replace(kept, workspace, raw, reason):
    ended = kept("add", "-", "--to", "memory/x.md", stdin=raw)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"Error: {reason}")
    assert "iconv -f latin1 -t utf-8" in ended.err
    assert not (workspace / "memory/x.md").exists()


def test_files_that_are_not_indexed_are_reported(kept, workspace):
    write_file(workspace / "memory/a.md", "A.\n")
    for name in ("b.txt", "c.markdown", "d.org"):
        write_file(workspace / "memory" / name, "B.\n")
    (workspace / "memory/link.md").symlink_to("a.md")
    doctor = kept("doctor", "--json").json["checks"]
    details = " ".join(check["detail"] for check in doctor if check["name"] == "notes")
    assert f"Not indexed: 1 Markdown file in {workspace}, such as memory/c.markdown." in details
    lines = kept("index", "--verbose").out.splitlines()
    assert "Not indexed: memory/b.txt (its ending is not in memory_search.extensions)" in lines
    assert "Not indexed: memory/link.md (a symbolic link)" in lines
    assert {"path": "memory/d.org", "reason": "ending"} in kept("index", "-v", "--json").json["leftOut"]
    assert "leftOut" not in kept("index", "--json").json


@pytest.mark.parametrize("query", ['"', "AND OR (*", "--", "x" * 10_000, b"\xff\xfe"])
def test_any_argument_is_a_query(kept, notes, query):
    ended = kept("search", "--json", "--", query)
    assert ended.code == 0, ended.out
    assert ended.err == ""


def test_get_reads_a_note_or_lines_of_it_and_says_how_to_go_on(kept, notes):
    ended = kept("get", "memory/ideas.md")
    assert ended.out == "".join(f"line {n}\n" for n in range(1, 201))
    assert ended.err == "… more: kept get memory/ideas.md --from 201\n"
    assert kept("get", "MEMORY.md").out == (notes / "MEMORY.md").read_text()
    assert kept("get", "memory/ideas.md", "--from", "3", "--lines", "2").out == "line 3\nline 4\n"
    for lines, text in {"L3-L4": "line 3\nline 4\n", "L9": "line 9\n", "L9-L3": "line 9\n"}.items():
        assert kept("get", f"memory/ideas.md#{lines}").out == text


def test_status_and_doctor_change_no_note(kept, notes):
    before = tree_of(notes)
    kept("index")
    for command in (["status"], ["doctor"], ["doctor", "--fix"], ["index", "--force"]):
        kept(*command)
    assert tree_of(notes) == before


def test_status_names_extra_paths_and_what_updates_the_index(kept, notes, tmp_path):
    extra = str(tmp_path / "extra")
    status = kept("--set", f"memory_search.extra_paths=[{extra}]", "status", "--json")
    assert status.json["extraPaths"] == [extra]
    assert "not watched; the next search updates the index" in kept("status").out
    assert "not watched; 'kept index' updates the index" in kept("--set", ON_SEARCH_OFF, "status").out


def test_a_search_that_does_not_update_the_index_says_so_if_it_finds_no_answer(kept, notes):
    kept("index")
    write_file(notes / "memory/okapi.md", "The okapi eats leaves.\n")
    result = kept("--set", ON_SEARCH_OFF, "search", "okapi", "--json").json
    changed = "1 file has changed since the index was written, and searches do not update it. Run 'kept index'."
    assert (result["answered"], result["degraded"]) == ("no", [changed])


def test_doctor_finds_all_well_on_a_fresh_index(kept, notes):
    kept("index")
    ended = kept("doctor", "--json")
    assert ended.code == 0
    assert ended.json["ok"] is True
    assert [check["name"] for check in ended.json["checks"]] == [
        "workspace", "permissions", "integrity", "freshness", "sessions", "records", "history", "embedder",
    ]  # fmt: skip


def test_doctor_erases_what_a_killed_process_left(kept, notes):
    left = write_file(notes / "memory/.kept-0123456789abcdef.tmp", "the gate code is 4711")
    kept("index")
    ended = kept("doctor")
    assert ended.code == 1
    assert "A killed process left 1 temporary file." in ended.out
    assert left.exists()
    assert kept("doctor", "--fix").code == 0
    assert not left.exists()


def test_doctor_names_a_damaged_transcript_and_not_one_that_lacks_its_end(kept, notes, home):
    with SessionStore.open(home=home) as sessions:
        ids = [sessions.get_or_create("telegram", user).id for user in ("1", "2")]
        for session_id in ids:
            sessions.append(session_id, Message.of("user", "Where is the spare key?"))
        damaged, torn = (path_of(sessions, sessions.get(session_id)) for session_id in ids)
    kept("index")
    damaged.write_bytes(damaged.read_bytes() + b"no entry at all\n")
    torn.write_bytes(torn.read_bytes() + b'{"type": "mess')
    ended = kept("doctor", "--json")
    assert ended.code == 1
    checks = [check for check in ended.json["checks"] if check["name"] == "sessions"]
    (check,) = checks  # the storage puts a torn end aside, with the next message
    assert (check["ok"], damaged.name in check["detail"], "line 3" in check["detail"]) == (False, True, True)


# what goes wrong

BAD = [
    (["search", ""], 2, "empty_query"),
    (["search"], 2, "empty_query"),
    (["search", "x", "--min-score", "2"], 2, "usage"),
    (["search", "x", "--since", "the day before the flood"], 2, "usage"),
    (["search", "x", "--expalin"], 2, "usage"),
    (["serach", "x"], 2, "usage"),
    (["--set", "nonsense", "status"], 2, "usage"),
    (["--set", "memory_search.providr=none", "status"], 2, "config"),
    (["--agent", "../../etc", "status"], 2, "config"),
    (["--config", "nowhere.yaml", "status"], 2, "config"),
    (["config", "explain", "nothing.like.it"], 2, "usage"),
    (["--workspace", "nowhere", "search", "x"], 3, "workspace_missing"),
    (["get", "memory/none.md"], 3, "note_not_found"),
    (["get", "../outside.md"], 4, "path_refused"),
    (["get", ""], 4, "path_refused"),
    (["get", b"memory/\xff.txt"], 4, "path_refused"),
    (["add", ""], 2, "empty_note"),
    (["add", "x", "--to", "../outside.md"], 4, "path_refused"),
    (["add", "x", "--to", "memory/x.txt"], 4, "path_refused"),
    (["init", "MEMORY.md"], 8, "workspace"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("args", "code", "name"), BAD)
def test_bad_input_is_one_line_that_says_what_to_do_and_changes_nothing(kept, notes, tmp_path, args, code, name):
    args = [str(notes / arg) if args[0] == "init" and arg != "init" else arg for arg in args]
    before = tree_of(tmp_path)
    ended = kept(*args)
    assert (ended.code, ended.out) == (code, "")
    assert re.fullmatch(r"Error: .+\n", ended.err)
    if "serach" not in args:
        ended = kept(*args, "--json")
        assert (ended.code, ended.err, [*ended.json]) == (code, "", ["error"])
        error = ended.json["error"]
        assert [*error] == ["code", "message", "hint"]
        assert error["code"] == name
        assert all(error.values())
    assert tree_of(tmp_path) == before


def test_a_traceback_is_shown_only_when_asked_for_and_changes_no_exit_code(kept):
    plain, debugged = kept("get", "../x.md"), kept("--debug", "get", "../x.md")
    assert "Traceback" in debugged.err
    assert "Traceback" not in plain.err
    assert (plain.code, debugged.code) == (4, 4)
    assert debugged.err.endswith(plain.err)


@pytest.mark.parametrize("args", [["config"], ["sessions"], ["hook"]])
def test_no_command_shows_the_help_as_help(kept, args):
    ended = kept(*args)
    assert ended.code == 2
    assert "Error" not in ended.err
    shown = ended.err.splitlines()
    assert shown[0].startswith("Usage: kept")
    assert len(shown) > 5


# pipes, terminals, encodings


@pytest.mark.parametrize("args", [["search", "lighthouse", "--explain"], ["status"], ["doctor"], ["get", "none.md"]])
def test_a_terminal_gets_colour_unless_no_color_is_set(kept, environment, notes, args):
    kept("index")
    env = {**environment, "KEPT_WORKSPACE": str(notes), "TERM": "xterm-256color"}
    assert ANSI.search(run_on_terminal(args, env))
    assert not ANSI.search(run_on_terminal(args, {**env, "NO_COLOR": "1"}))


def test_a_note_goes_through_a_pipe_byte_for_byte(kept, notes):
    text = "red \x1b[31m and \t tab, ü 漢 😀\n"
    write_file(notes / "memory/x.md", text)
    assert kept("get", "memory/x.md").out == text


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ("search lighthouse", 0),
        ("config explain", 0),
        ("status --json", 0),
        ("--help", 0),
        ("get nowhere.md --json", 3),
    ],
)
def test_a_reader_that_has_seen_enough_is_no_error(environment, notes, args, code):
    ended = in_bash(f"set -o pipefail; '{KEPT}' {args} | true", environment, notes)
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "", "")


def in_bash(line: str, environment: dict[str, str], workspace: Path) -> subprocess.CompletedProcess[str]:
    env = {**environment, "KEPT_WORKSPACE": str(workspace)}
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=env, timeout=60)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_output_that_cannot_show_every_letter_is_no_error(kept, notes, encoding):
    write_file(notes / "memory/x.md", "抹茶 lighthouse café 😀\n")
    env = {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    for args in (
        ["search", "抹茶"],
        ["get", "memory/x.md"],
        ["search", "抹茶", "--json"],
        ["get", "抹茶.md", "--json"],
    ):
        ended = subprocess.run(
            [KEPT, *args], capture_output=True, env={**os.environ, **env, "KEPT_WORKSPACE": str(notes)}
        )
        assert ended.returncode in (0, 3)
        assert ended.stderr == b""


def test_a_text_that_looks_like_an_option_does_not_change_how_an_error_is_shown(kept):
    assert kept("get", "--", "--json").err.startswith("Error: ")
    assert "Traceback" not in kept("get", "--", "--debug").err


def test_a_closed_standard_input_is_nothing_to_remember(environment, workspace):
    ended = in_bash(f"'{KEPT}' add - <&-", environment, workspace)
    assert ended.returncode == 2
    assert ended.stderr.startswith("Error: There is nothing to remember.")


@pytest.mark.parametrize("args", ["search lighthouse", "search ''", "get none.md --json"])
@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_a_closed_output_is_no_error_of_ours(environment, notes, args, closed):
    ended = in_bash(f"'{KEPT}' {args} {closed}", environment, notes)
    assert ended.returncode == {"search ''": 2, "get none.md --json": 3}.get(args, 0)
    assert "Unexpected error" not in ended.stderr
    assert "Traceback" not in ended.stderr


# the manual that --help is


def commands() -> list[list[str]]:
    """Every command, and those below a group."""
    paths = []
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        paths.append([name])
        paths += [[name, inner] for inner in (command.commands if isinstance(command, click.Group) else ())]
    return paths


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_every_command_and_option_is_documented(path):
    context = click.Context(cli)
    command: click.Command = cli
    for name in path:
        assert isinstance(command, click.Group)
        inner = command.get_command(context, name)
        command = inner
    assert command.get_short_help_str(200).endswith((".", "'", "?"))
    shown = command.get_help(context)
    for param in command.params:
        if isinstance(param, click.Option):
            if param.hidden:  # a global option
                continue
            assert param.help, f"{path}: {param.opts} has no help"
            assert all(option in shown for option in param.opts)
        else:
            assert (param.metavar or param.name.upper()).strip("[].") in (command.help or ""), (
                f"{path}: {param.name} is not explained"
            )


def test_an_output_without_space_is_one_line_also_for_json(kept, environment, notes):
    for args in (["list"], ["list", "--json"], ["status"], ["get", "nowhere.md", "--json"]):
        with open("/dev/full", "w") as full:
            ended = subprocess.run(
                [KEPT, *args],
                env={**environment, "KEPT_WORKSPACE": str(notes)},
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                timeout=60,
            )
        assert ended.returncode == (3 if "nowhere.md" in args else 8), ended.stderr
        assert ended.stderr.count("\n") == 1
        assert ". " in ended.stderr, "two sentences, with a full stop between them"


@pytest.mark.parametrize("args", [["connect"], ["config", "get"], ["sessions", "show"], ["list", "-n", "x"]])
def test_a_message_and_its_hint_are_two_sentences(kept, args):
    ended = kept(*args)
    assert ended.code == 2
    assert re.search(r"[.?!] See 'kept [a-z ]+--help'\.\n$", ended.err), ended.err


def test_a_line_break_in_the_name_of_a_file_does_not_break_a_printed_line(kept, workspace):
    write_file(workspace / "memory/two\nlines.md", "The otter. [[other]] [[two\nlines]]\n")
    write_file(workspace / "memory/other.md", "Back to [it](two%0Alines.md).\n")
    write_file(workspace / "memory/more\ntext.txt", "Not indexed.\n")
    for command in (
        ["list"],
        ["list", "--changed"],
        ["search", "otter"],
        ["get", "other", "--links"],
        ["index", "-v"],
        ["doctor"],
    ):
        lines = kept(*command).out.splitlines()
        assert not [line for line in lines if line.startswith(("lines.md", "text.txt"))], command
