"""The command as people and scripts run it: a real process, its output, its exit code, and what it leaves on disk."""

from __future__ import annotations

import os
import pty
import re
import socket
import subprocess
from pathlib import Path

import click
import pytest

from kept import __version__
from kept.cli.help import GROUPS
from kept.cli.root import COMMANDS, cli
from kept.cli.search import hits_line
from kept.sessions.entries import Message
from kept.sessions.store import SessionStore
from tests.support.commands import KEPT
from tests.support.embedding_servers import Ollama
from tests.support.files import tree_of, write_file

ANSI = re.compile(r"\x1b")


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


def test_init_makes_a_workspace_and_settings_that_name_it(kept, home, tmp_path):
    folder = tmp_path / "mine"
    report = kept("init", folder, "--json").json
    assert (report["workspaceDir"], report["config"]) == (str(folder), str(home / "config.yaml"))
    assert report["workspaceDir"] == str(folder)
    assert report["created"] == ["MEMORY.md", "USER.md", str(home / "config.yaml")]
    assert report["layout"] == "kept"
    assert (folder / "memory").is_dir()
    assert (home / "config.yaml").stat().st_mode & 0o777 == 0o600
    assert home.stat().st_mode & 0o777 == 0o700
    kept("add", "x", "--to", "memory", env={"KEPT_WORKSPACE": ""})
    assert "- x" in (folder / "MEMORY.md").read_text()


def test_init_leaves_what_is_there_as_it_is(kept, home, notes):
    kept("init")
    (home / "config.yaml").write_text("# mine\n")
    before = tree_of(notes)
    ended = kept("init")
    assert ended.code == 0
    assert "Everything exists already." in ended.out
    assert tree_of(notes) == before
    assert (home / "config.yaml").read_text() == "# mine\n"


def test_a_workspace_with_a_strange_name_survives_init(kept, tmp_path):
    folder = tmp_path / 'it\'s "quoted": ü # 漢\t{x}'
    kept("init", folder)
    (row,) = kept("config", "get", "agents.defaults.workspace", "--json", env={"KEPT_WORKSPACE": ""}).json["settings"]
    assert row["value"] == str(folder)


def test_add_writes_its_arguments_to_the_daily_log(kept, workspace):
    ended = kept("add", "We", "moved", "the database.")
    (log,) = (workspace / "memory").iterdir()
    assert ended.out == f"Kept in memory/{log.name}#L3-L5 (folder {workspace}).\n"
    assert re.fullmatch(r"# \d{4}-\d\d-\d\d\n\n## \d\d:\d\d\n\nWe moved the database\.\n", log.read_text())


def test_add_reads_standard_input(kept, workspace):
    ended = kept("add", "-", "--to", "memory/x.md", "--json", stdin="first\r\nsecond\n\n")
    assert ended.json == {
        "path": "memory/x.md",
        "startLine": 1,
        "endLine": 2,
        "citation": "memory/x.md#L1-L2",
        "degraded": [],
        "review": None,
        "isProposed": False,
        "isNew": True,
        "replaced": None,
        "near": [],
        "notice": "",
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


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_add_reads_text_with_a_byte_order_mark(kept, workspace, encoding):
    assert kept("add", "--to", "memory/x.md", stdin="café 😀".encode(encoding)).code == 0
    assert (workspace / "memory/x.md").read_text(encoding="utf-8") == "café 😀\n"


def test_a_note_in_utf16_is_searched_and_never_mixed_with_utf8(kept, workspace):
    note = write_file(workspace / "memory/x.md", "Der Fischotter ist zurück.\n".encode("utf-16"))
    before = note.read_bytes()
    (hit,) = kept("search", "Fischotter zurück", "--json").json["results"]
    assert hit["snippet"] == "Der Fischotter ist zurück."
    assert "zurück" in kept("get", "memory/x.md").out
    refused = kept("add", "--to", "memory/x.md", "More.")
    assert (refused.code, "is in UTF-16, which can be searched, not changed. Save it as UTF-8." in refused.err) == (
        4,
        True,
    )
    assert note.read_bytes() == before
    write_file(workspace / "memory/latin.md", "zurück\n".encode("latin-1"))
    assert "memory/latin.md: not valid UTF-8 at byte 3" in kept("index").err


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


def test_search_shows_citation_and_text(kept, notes):
    ended = kept("search", "lighthouse")
    assert ended.code == 0
    assert "MEMORY.md#L" in ended.out
    assert "Ada keeps the lighthouse" in ended.out
    assert re.search(r"^\d hits? in \d+ ms", ended.out, re.MULTILINE)
    assert ended.err == ""


def test_search_json_has_exactly_the_shape_others_rely_on(kept, notes):
    shown = kept("search", "which", "port", "is staging on", "--json").json
    assert list(shown) == ["answered", "results", "degraded", "provider", "model", "tookMs"]
    assert shown["answered"] == "yes"
    assert (shown["degraded"], shown["provider"]) == ([], "local")
    assert isinstance(shown["model"], str)
    assert isinstance(shown["tookMs"], float)
    hit = shown["results"][0]
    assert list(hit) == [
        "path", "startLine", "endLine", "score", "vectorScore", "textScore",
        "snippet", "source", "timestamp", "grade", "citation", "heading", "project",
    ]  # fmt: skip
    assert hit["path"] == "memory/2026-03-02.md"
    assert hit["citation"] == f"{hit['path']}#L{hit['startLine']}-L{hit['endLine']}"
    assert "5433" in hit["snippet"]
    assert hit["source"] == "memory"
    assert hit["timestamp"].startswith("2026-03-02T09:30")
    assert 0 < hit["score"] <= 1


def test_search_explains_what_a_score_is_made_of(kept, notes):
    shown = kept("search", "lighthouse", "--explain", "--json").json
    hit = shown["results"][0]
    assert sum(part["value"] for part in hit["parts"]) == pytest.approx(hit["score"], abs=1e-4)
    assert all(set(dropped) == {"citation", "score", "reason"} for dropped in shown["dropped"])
    assert "score" in kept("search", "lighthouse", "--explain").out


def test_search_can_be_narrowed(kept, notes):
    def paths(*args: str) -> set[str]:
        ended = kept("search", "lighthouse staging database line", "--min-score", "0", "-n", "50", "--json", *args)
        return {hit["path"] for hit in ended.json["results"]}

    everywhere = {"MEMORY.md", "memory/2026-03-02.md", "memory/ideas.md"}
    assert paths() == everywhere
    assert paths("--path", "memory/2026-*") == {"memory/2026-03-02.md"}
    assert paths("--path", "MEMORY.md") == {"MEMORY.md"}
    assert paths("--since", "2026-03-02", "--until", "2026-03-02") == {"memory/2026-03-02.md"}
    assert paths("--since", "2026-03-03") == everywhere - {"memory/2026-03-02.md"}
    assert paths("--source", "memory") == everywhere
    assert paths("--source", "sessions") == set()
    assert len(kept("search", "line", "-n", "1", "--json", "--min-score", "0").json["results"]) == 1


def test_search_that_finds_nothing_says_so_and_succeeds(kept, notes):
    ended = kept("search", "zxqv")
    assert (ended.code, ended.out, ended.err) == (0, "Nothing found.\n", "")
    assert kept("search", "zxqv", "--json").json["results"] == []


@pytest.mark.parametrize("query", ['"', "AND OR (*", "--", "x" * 10_000, b"\xff\xfe"])
def test_any_argument_is_a_query(kept, notes, query):
    ended = kept("search", "--json", "--", query)
    assert ended.code == 0, ended.out
    assert ended.err == ""


def test_get_reads_a_note_and_says_how_to_go_on(kept, notes):
    ended = kept("get", "memory/ideas.md")
    assert ended.out == "".join(f"line {n}\n" for n in range(1, 201))
    assert ended.err == "… more: kept get memory/ideas.md --from 201\n"
    assert kept("get", "MEMORY.md").out == (notes / "MEMORY.md").read_text()


def test_get_reads_lines_by_number_or_by_citation(kept, notes):
    assert kept("get", "memory/ideas.md", "--from", "3", "--lines", "2").out == "line 3\nline 4\n"
    assert kept("get", "memory/ideas.md#L3-L4").out == "line 3\nline 4\n"
    assert kept("get", "memory/ideas.md#L9").out == "line 9\n"
    assert kept("get", "memory/ideas.md#L9-L3").out == "line 9\n"


def test_every_citation_of_a_search_can_be_read(kept, notes):
    for hit in kept("search", "lighthouse bread database", "--min-score", "0", "--json").json["results"]:
        assert hit["snippet"].strip("…").strip() in kept("get", hit["citation"]).out


def test_get_json_has_exactly_the_shape_others_rely_on(kept, notes):
    assert kept("get", "memory/ideas.md", "--from", "299", "--lines", "1", "--json").json == {
        "path": "memory/ideas.md", "from": 299, "lines": 1, "text": "line 299", "truncated": True, "nextFrom": 300,
    }  # fmt: skip
    assert kept("get", "memory/ideas.md#L300", "--json").json == {
        "path": "memory/ideas.md", "from": 300, "lines": 1, "text": "line 300", "truncated": False, "nextFrom": None,
    }  # fmt: skip


def test_index_reports_what_it_did(kept, notes):
    first = kept("index", "--json").json
    assert (first["files"], first["indexed"], first["unchanged"], first["removed"]) == (3, 3, 0, 0)
    assert first["embedded"] > 0
    assert (first["problems"], first["failures"], first["pending"]) == ([], [], 0)
    (notes / "memory/ideas.md").unlink()
    second = kept("index", "--json").json
    assert (second["files"], second["removed"], second["embedded"]) == (2, 1, 0)
    assert "Nothing changed; 2 files and" in kept("index").out
    forced = kept("index", "--force", "--json").json
    assert (forced["indexed"], forced["cached"]) == (2, 0), "embedding with the built-in model is as quick as a cache"
    assert forced["embedded"] > 0


def test_index_reports_notes_it_could_not_take(kept, notes):
    write_file(notes / "memory/bad.md", b"caf\xe9 lighthouse")
    ended = kept("index")
    assert ended.code == 0
    assert re.search(r"^Note: memory/bad\.md: not valid UTF-8", ended.err, re.MULTILINE)


def test_status_counts_and_says_whether_the_index_is_behind(kept, notes, home):
    kept("index")
    shown = kept("status", "--json").json
    assert (shown["files"], shown["dirty"], shown["changedFiles"], shown["pending"]) == (3, False, 0, 0)
    assert (shown["provider"], shown["requestedProvider"], shown["backend"]) == ("local", "auto", "builtin")
    assert shown["workspaceDir"] == str(notes)
    assert shown["dbPath"] == str(home / "agents/main/index.sqlite")
    assert shown["sources"] == [{"source": "memory", "files": 3, "chunks": shown["chunks"]}]
    assert shown["cache"]["entries"] == 0
    assert shown["indexBytes"] > 0
    assert shown["degraded"] == shown["problems"] == []
    write_file(notes / "memory/new.md", "new")
    assert kept("status", "--json").json["changedFiles"] == 1
    assert "1 file changed" in kept("status").out


def test_status_and_doctor_change_no_note(kept, notes):
    before = tree_of(notes)
    kept("index")
    for command in (["status"], ["doctor"], ["doctor", "--fix"], ["index", "--force"]):
        kept(*command)
    assert tree_of(notes) == before


def test_doctor_finds_all_well_on_a_fresh_index(kept, notes):
    kept("index")
    ended = kept("doctor", "--json")
    assert ended.code == 0
    assert ended.json["ok"] is True
    assert [check["name"] for check in ended.json["checks"]] == [
        "workspace", "permissions", "integrity", "freshness", "sessions", "records", "history", "embedder",
    ]  # fmt: skip


def test_doctor_says_what_it_would_do_and_does_it_when_asked(kept, notes, home):
    kept("index")
    write_file(notes / "memory/new.md", "a new lighthouse")
    (home / "agents").chmod(0o755)
    ended = kept("doctor")
    assert ended.code == 1
    assert "→ index them" in ended.out
    assert "→ make them private" in ended.out
    assert "kept doctor --fix" in ended.out
    assert (home / "agents").stat().st_mode & 0o777 == 0o755
    ended = kept("doctor", "--fix", "--json")
    assert ended.code == 0
    assert {check["name"] for check in ended.json["checks"] if check["fixed"]} == {"permissions", "freshness"}
    assert (home / "agents").stat().st_mode & 0o777 == 0o700
    assert kept("doctor").code == 0


@pytest.mark.parametrize("damage", ["overwritten", "text"])
def test_doctor_repairs_a_damaged_index(kept, notes, home, damage):
    kept("index")
    path = home / "agents/main/index.sqlite"
    whole = path.read_bytes()
    middle = len(whole) // 2
    path.write_bytes(
        {
            "overwritten": whole[:middle] + b"\xa5" * 4096 + whole[middle + 4096 :],
            "text": b"this is no database\n" * 1000,
        }[damage]
    )
    ended = kept("doctor")
    assert ended.code == 1
    assert ended.err == ""
    ended = kept("doctor", "--fix")
    assert (ended.code, ended.err) == (0, "")
    assert "Ada keeps" in kept("search", "lighthouse").out


def test_doctor_names_a_damaged_transcript_and_repairs_a_torn_one(kept, notes, home):
    with SessionStore.open(home=home) as sessions:
        ids = [sessions.get_or_create("telegram", user).id for user in ("1", "2")]
        for session_id in ids:
            sessions.append(session_id, Message.of("user", "Where is the spare key?"))
        damaged, torn = (Path(sessions.get(session_id).transcript_path) for session_id in ids)
    kept("index")
    assert kept("doctor").code == 0
    damaged.write_bytes(damaged.read_bytes() + b"no entry at all\n")
    torn.write_bytes(torn.read_bytes() + b'{"type": "mess')
    before = torn.read_bytes()
    kept("index")
    torn.write_bytes(before)
    ended = kept("doctor", "--json")
    assert ended.code == 1
    checks = [check for check in ended.json["checks"] if check["name"] == "sessions"]
    assert {(check["ok"], damaged.name in check["detail"], bool(check["remedy"])) for check in checks} == {
        (False, True, False),
        (False, False, True),
    }
    assert torn.read_bytes() == before

    whole = damaged.read_bytes()
    ended = kept("doctor", "--fix", "--json")
    assert ended.code == 1
    (left,) = [check for check in ended.json["checks"] if check["name"] == "sessions"]
    assert "line 3" in left["detail"]
    assert damaged.read_bytes() == whole
    assert torn.read_bytes().endswith(b"}\n")


def test_demo_shows_what_it_can_do_and_leaves_nothing_behind(kept, tmp_path, environment):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    before = tree_of(tmp_path)
    ended = kept("demo", env={"TMPDIR": str(scratch)})
    assert ended.code == 0
    assert ended.err == ""
    assert "Indexed" in ended.out
    assert re.search(r"\w+\.md#L\d+", ended.out)
    assert "score" in ended.out
    assert "kept init" in ended.out
    assert tree_of(tmp_path) == before


def test_the_demo_does_not_touch_the_users_own_index(kept, notes, tmp_path):
    own = {"KEPT_MEMORY_SEARCH__STORE__PATH": str(tmp_path / "own.sqlite")}
    kept("index", env=own)
    assert kept("demo", env=own | {"KEPT_CONFIG": str(tmp_path / "nowhere.yaml")}).code == 0
    assert kept("status", "--json", env=own).json["changedFiles"] == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(kept, shell):
    ended = kept("completion", shell)
    assert ended.code == 0
    assert "_KEPT_COMPLETE" in ended.out


def test_completion_knows_commands_and_options(kept):
    ended = kept(env={"_KEPT_COMPLETE": "bash_complete", "COMP_WORDS": "kept se", "COMP_CWORD": "1"})
    assert ended.out == "plain,search\nplain,sessions\nplain,serve\n"
    ended = kept(env={"_KEPT_COMPLETE": "bash_complete", "COMP_WORDS": "kept search --ex", "COMP_CWORD": "2"})
    assert ended.out == "plain,--explain\n"


def test_watch_indexes_at_once_and_stops_when_told(environment, notes):
    with subprocess.Popen(
        [KEPT, "index", "--watch"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**environment, "KEPT_WORKSPACE": str(notes), "KEPT_MEMORY_SEARCH__SYNC__WATCH_DEBOUNCE_MS": "50"},
        text=True,
    ) as watching:
        assert watching.stderr.readline().startswith("Watching ")
        write_file(notes / "memory/new.md", "new")
        watching.terminate()
        out, err = watching.communicate(timeout=30)
    assert watching.returncode == 0
    assert "3 files indexed" in out
    assert err == ""


# global options


def test_global_options_come_before_the_command(kept, tmp_path):
    folder, other_home = tmp_path / "w", tmp_path / "h"
    (other_home / "agents/ada").mkdir(parents=True)
    write_file(folder / "MEMORY.md", "lighthouse")
    shown = kept("--workspace", folder, "--home", other_home, "--agent", "ada", "status", "--json").json
    assert shown["workspaceDir"] == str(folder)
    assert shown["dbPath"] == str(other_home / "agents/ada/index.sqlite")
    assert shown["agent"] == "ada"


def test_a_setting_can_be_overridden_for_one_run(kept, notes):
    shown = kept("--set", "memory_search.provider=none", "search", "lighthouse", "--json").json
    assert (shown["provider"], shown["model"]) == ("none", None)
    assert shown["results"]


def test_a_provider_that_is_not_available_leaves_words(kept, notes):
    ended = kept("--set", "memory_search.provider=openai", "search", "lighthouse")
    assert ended.code == 0
    assert "Ada keeps" in ended.out
    assert ended.err.startswith("Note: Searching by word only")


# what goes wrong

BAD = [
    (["search", ""], 2, "empty_query"),
    (["search", " \t\n"], 2, "empty_query"),
    (["search"], 2, "empty_query"),
    (["search", "x", "--min-score", "2"], 2, "usage"),
    (["search", "x", "-n", "0"], 2, "usage"),
    (["search", "x", "-n", "many"], 2, "usage"),
    (["search", "x", "--source", "dreams"], 2, "usage"),
    (["search", "x", "--since", "the day before the flood"], 2, "usage"),
    (["search", "x", "--expalin"], 2, "usage"),
    (["get", "x", "--bogus"], 2, "usage"),
    (["serach", "x"], 2, "usage"),
    (["--set", "nonsense", "status"], 2, "usage"),
    (["--set", "memory_search.providr=none", "status"], 2, "config"),
    (["--set", "memory_search.provider=skynet", "status"], 2, "config"),
    (["--agent", "../../etc", "status"], 2, "config"),
    (["--config", "nowhere.yaml", "status"], 2, "config"),
    (["config", "explain", "nothing.like.it"], 2, "usage"),
    (["--workspace", "nowhere", "search", "x"], 3, "workspace_missing"),
    (["--workspace", "nowhere", "add", "x"], 3, "workspace_missing"),
    (["--workspace", "nowhere", "index"], 3, "workspace_missing"),
    (["get", "memory/none.md"], 3, "note_not_found"),
    (["get", "memory/none.md#L3"], 3, "note_not_found"),
    (["get", "../outside.md"], 4, "path_refused"),
    (["get", "/etc/passwd"], 4, "path_refused"),
    (["get", ""], 4, "path_refused"),
    (["get", b"memory/\xff.txt"], 4, "path_refused"),
    (["get", "MEMORY.md", "--lines", "0"], 2, "usage"),
    (["get", "MEMORY.md", "--from", "-1"], 2, "usage"),
    (["add", ""], 2, "empty_note"),
    (["add", "-"], 2, "empty_note"),
    (["add"], 2, "empty_note"),
    (["add", "x", "--to", "../outside.md"], 4, "path_refused"),
    (["add", "x", "--to", "elsewhere.md"], 4, "path_refused"),
    (["add", "x", "--to", "memory/x.txt"], 4, "path_refused"),
    (["init", "MEMORY.md"], 8, "workspace"),
    (["init", "MEMORY.md/below"], 8, "workspace"),
    (["completion", "tcsh"], 2, "usage"),
]


def is_about_json(args: list[str]) -> bool:
    return args[0] != "completion" and "serach" not in args


@pytest.mark.slow
@pytest.mark.parametrize(("args", "code", "name"), BAD)
def test_bad_input_is_one_line_that_says_what_to_do_and_changes_nothing(kept, notes, tmp_path, args, code, name):
    args = [str(notes / arg) if args[0] == "init" and arg != "init" else arg for arg in args]
    before = tree_of(tmp_path)
    ended = kept(*args)
    assert ended.code == code
    assert ended.out == ""
    assert ended.err.startswith("Error: ")
    assert ended.err.count("\n") == 1
    assert ended.err.endswith("\n")
    assert "Traceback" not in ended.err
    if is_about_json(args):
        ended = kept(*args, "--json")
        assert ended.code == code
        assert ended.err == ""
        error = ended.json["error"]
        assert list(ended.json) == ["error"]
        assert list(error) == ["code", "message", "hint"]
        assert error["code"] == name
        assert error["message"]
        assert error["hint"]
    assert tree_of(tmp_path) == before


def test_a_home_that_is_a_file_is_one_line(kept, notes, tmp_path):
    write_file(tmp_path / "file", "x")
    ended = kept("--home", tmp_path / "file", "search", "x")
    assert ended.code in (2, 6)
    assert ended.err.count("\n") == 1
    assert "Traceback" not in ended.err


def test_a_traceback_is_shown_only_when_asked_for_and_changes_no_exit_code(kept):
    plain, debugged = kept("get", "../x.md"), kept("--debug", "get", "../x.md")
    assert "Traceback" in debugged.err
    assert "Traceback" not in plain.err
    assert (plain.code, debugged.code) == (4, 4)
    assert debugged.err.endswith(plain.err)


def test_a_misspelt_command_suggests_the_nearest(kept):
    assert "Did you mean 'search'?" in kept("serach", "x").err


@pytest.mark.parametrize("args", [["config"], ["sessions"], ["hook"]])
def test_no_command_shows_the_help_as_help(kept, args):
    ended = kept(*args)
    assert ended.code == 2
    assert "Error" not in ended.err
    shown = ended.err.splitlines()
    assert shown[0].startswith("Usage: kept")
    assert len(shown) > 5


# pipes, terminals, encodings


@pytest.mark.parametrize(
    "args", [["search", "lighthouse", "--explain"], ["status"], ["config", "explain"], ["doctor"], ["demo"]]
)
def test_a_pipe_gets_no_control_codes(kept, notes, args):
    ended = kept(*args, env={"TERM": "xterm-256color"})
    assert not ANSI.search(ended.out + ended.err)


def on_a_terminal(args: list[str], environment: dict[str, str]) -> str:
    """What a command writes when its output is a terminal."""
    control, terminal = pty.openpty()
    with subprocess.Popen([KEPT, *args], stdout=terminal, stderr=terminal, stdin=terminal, env=environment) as running:
        os.close(terminal)
        output = b""
        while True:
            try:
                part = os.read(control, 65536)
            except OSError:  # Linux says so when the other side is closed
                break
            if not part:
                break
            output += part
    os.close(control)
    assert running.returncode in (0, 3)
    return output.decode()


@pytest.mark.parametrize("args", [["search", "lighthouse", "--explain"], ["status"], ["doctor"], ["get", "none.md"]])
def test_a_terminal_gets_colour_unless_no_color_is_set(kept, environment, notes, args):
    kept("index")
    env = {**environment, "KEPT_WORKSPACE": str(notes), "TERM": "xterm-256color"}
    assert ANSI.search(on_a_terminal(args, env))
    assert not ANSI.search(on_a_terminal(args, {**env, "NO_COLOR": "1"}))


def test_a_note_cannot_write_to_the_terminal_what_the_terminal_obeys(kept, environment, notes):
    write_file(notes / "memory/evil.md", "zebra \x1b]0;owned\x07 \x1b[2J \x9b31m crossing\n")
    kept("index")
    env = {**environment, "KEPT_WORKSPACE": str(notes), "TERM": "xterm-256color", "NO_COLOR": "1"}
    for args in (["search", "zebra crossing"], ["get", "memory/evil.md"]):
        shown = on_a_terminal(args, env)
        assert "crossing" in shown
        assert not re.search("[\x1b\x07\x9b]", shown)


def test_a_note_goes_through_a_pipe_byte_for_byte(kept, notes):
    text = "red \x1b[31m and \t tab, ü 漢 😀\n"
    write_file(notes / "memory/x.md", text)
    assert kept("get", "memory/x.md").out == text


@pytest.mark.parametrize(
    "args",
    ["search lighthouse", "get memory/ideas.md", "config explain", "status --json", "status", "--help", "get --help"],
)
def test_a_reader_that_has_seen_enough_is_no_error(environment, notes, args):
    ended = subprocess.run(
        ["bash", "-c", f"set -o pipefail; '{KEPT}' {args} | true"],
        capture_output=True,
        text=True,
        env={**environment, "KEPT_WORKSPACE": str(notes)},
        timeout=60,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_a_failure_is_one_even_if_nobody_reads_of_it(environment, notes):
    ended = subprocess.run(
        ["bash", "-c", f"set -o pipefail; '{KEPT}' get nowhere.md --json | true"],
        capture_output=True,
        text=True,
        env={**environment, "KEPT_WORKSPACE": str(notes)},
        timeout=60,
    )
    assert (ended.returncode, ended.stderr) == (3, "")


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
    ended = subprocess.run(
        ["bash", "-c", f"'{KEPT}' add - <&-"],
        capture_output=True,
        text=True,
        env={**environment, "KEPT_WORKSPACE": str(workspace)},
        timeout=60,
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith("Error: There is nothing to remember.")


@pytest.mark.parametrize("args", ["search lighthouse", "search ''", "get none.md --json", "status"])
@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_a_closed_output_is_no_error_of_ours(environment, notes, args, closed):
    ended = subprocess.run(
        ["bash", "-c", f"'{KEPT}' {args} {closed}"],
        capture_output=True,
        text=True,
        env={**environment, "KEPT_WORKSPACE": str(notes)},
        timeout=60,
    )
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


WITHOUT_JSON = [
    *(["gateway"], ["web"], ["serve"], ["mcp"], ["hook", "session-start"], ["hook", "capture"]),
    *(["demo"], ["completion"], ["help"]),
]


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_every_command_and_option_is_documented(path):
    context = click.Context(cli)
    command: click.Command = cli
    for name in path:
        assert isinstance(command, click.Group)
        inner = command.get_command(context, name)
        assert inner is not None
        command = inner
    assert command.get_short_help_str(200).endswith((".", "'", "?"))
    takes_json = "--json" in {option for param in command.params for option in param.opts}
    assert takes_json or isinstance(command, click.Group) or path in WITHOUT_JSON
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


def test_the_help_names_every_command_and_every_global_option(kept):
    ended = kept("--help")
    assert ended.code == 0
    for name in (name for names in GROUPS.values() for name in names):
        assert re.search(rf"^  {name} ", ended.out, re.MULTILINE)
    for param in cli.params:
        assert param.opts[-1] in ended.out
        assert param.help
    assert kept("-h").out == ended.out


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


@pytest.mark.parametrize("args", [["connect"], ["completion"], ["sessions", "show"], ["list", "-n", "x"]])
def test_a_message_and_its_hint_are_two_sentences(kept, args):
    ended = kept(*args)
    assert ended.code == 2
    assert re.search(r"[.?!] See 'kept [a-z ]+--help'\.\n$", ended.err), ended.err


def test_the_time_of_indexing_is_apart_from_that_of_the_search():
    assert hits_line(1, 11.4, 0.2) == "1 hit in 11 ms"
    assert hits_line(3, 11.4, 22.921) == "3 hits in 11 ms (22.9 s with indexing)"


def test_a_preview_names_only_what_there_is_to_do(kept, notes):
    kept("index")
    (notes / "memory/ideas.md").unlink()
    assert kept("index", "--dry-run").out == "1 file to remove.\n"
    (notes / "memory/copy.md").write_text((notes / "memory/2026-03-02.md").read_text())
    shown = kept("index", "--dry-run").out
    assert shown.startswith("1 file to index, 1 to remove.\n")
    assert "0 texts" not in shown


def test_ollama_is_available_only_if_a_server_answers(kept, workspace):
    def state(host: str) -> dict[str, object]:
        providers = kept("--json", "models", env={"OLLAMA_HOST": host}).json["providers"]
        return next(provider for provider in providers if provider["name"] == "ollama")

    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    assert state(f"127.0.0.1:{port}")["available"] is False
    assert f"No server answers at http://127.0.0.1:{port}" in str(state(f"127.0.0.1:{port}")["note"])
    with Ollama() as server:
        assert state(server.origin)["available"] is True


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


def test_a_setting_for_one_search_does_not_rebuild_the_index(kept, workspace):
    write_file(workspace / "MEMORY.md", "The lighthouse is white.\n")
    kept("index")
    other = ["--set", "memory_search.chunking.tokens=100"]
    ended = kept("search", "lighthouse", *other)
    assert "the size of chunks changed for this run only" in ended.err
    assert ended.out
    assert "rebuilt" not in kept("search", "lighthouse").err
    assert kept("index", "--json", *other).json["rebuilt"] == "the size of chunks changed"
