"""kept import, as a person and as a script use it."""

import json

import pytest

from kept.notes.adopt import full_templates
from tests.support.chat_exports import claude_talk, claude_zip, gpt_talk, gpt_zip
from tests.support.files import write_file
from tests.support.foreign_transcripts import cc_user, cx_item, cx_meta, lines, pi_answer, pi_header, pi_user, say
from tests.support.terminals import run_on_terminal, without_styles


def test_a_person_sees_what_came_of_it(kept, tmp_path):
    write_file(tmp_path / "from" / "a.jsonl", lines(pi_header(), pi_user("a1", None, "Hello"), "{"))
    write_file(tmp_path / "from" / "b.jsonl", "no")
    done = kept("import", "pi", tmp_path / "from")
    assert done.code == 0
    assert done.out.splitlines()[0] == "1 session with 1 message: 1 imported."
    assert "→ message" not in done.out
    assert "a.jsonl:3: the line is damaged: it is not JSON." in done.err
    assert "b.jsonl: is not JSONL" in done.err
    assert kept("import", "pi", tmp_path / "from").out.startswith("1 session with 1 message: 1 here already.")
    assert "Hello" in kept("sessions", "show", "walk-1").out


def test_a_session_that_fails_is_told_by_the_exit_code(kept, tmp_path):
    path = write_file(tmp_path / "a.jsonl", lines(pi_header(), pi_user("a1", None, "Hello"), pi_user("a2", "a1", "x")))
    kept("import", "pi", path)
    write_file(path, lines(pi_header(), pi_user("a1", None, "Hello"), pi_user("b2", "a1", "x")))
    done = kept("import", "pi", path)
    assert done.code == 9
    assert "session walk-1 failed: it differs from the session here" in done.err


def test_openclaw_comes_with_its_notes(kept, tmp_path, workspace):
    write_file(
        tmp_path / "oc" / "agents" / "main" / "sessions" / "a.jsonl",
        lines(pi_header(), pi_answer("a1", None, say("Hi"))),
    )
    write_file(tmp_path / "oc" / "workspace" / "MEMORY.md", "- The spade is in the shed.\n")
    write_file(tmp_path / "oc" / "workspace" / "TOOLS.md", "hammer\n")
    write_file(tmp_path / "oc" / "workspace" / "README.md", "# Read me\n")
    done = kept("import", "openclaw", tmp_path / "oc", "--json").json
    assert done["notes"] == {
        "copied": ["MEMORY.md"],
        "same": [],
        "conflicts": [],
        "leftOut": ["README.md"],
        "heldBack": ["TOOLS.md"],
    }
    assert (workspace / "MEMORY.md").read_text() == "- The spade is in the shed.\n"
    again = kept("import", "openclaw", tmp_path / "oc")
    assert "Notes: 0 copied, 1 here already, 0 in conflict." in again.out
    assert "left out: README.md" in again.err
    assert "not copied without --instructions: TOOLS.md" in again.err


def test_a_note_of_openclaw_with_something_that_was_forgotten_is_left_out_and_named(kept, tmp_path, workspace):
    kept("add", "The gate code is sekretgate.", "--to", "memory/gate.md")
    kept("forget", "sekretgate", "--yes")
    write_file(tmp_path / "oc/workspace/memory/old.md", "- The gate code was sekretgate.\n")
    write_file(tmp_path / "oc/workspace/memory/new.md", "- The gate is green.\n")
    done = kept("import", "openclaw", tmp_path / "oc")
    assert "old.md: it has something that you forgot here" in done.err
    assert not (workspace / "memory/old.md").exists()
    assert (workspace / "memory/new.md").exists()


def test_openclaw_s_files_of_the_prompt_come_on_request_and_take_the_place_of_templates(kept, tmp_path, workspace):
    kept("init", "--full")
    theirs = {name: f"# Theirs\n\nText of {name}.\n" for name in full_templates()}
    for name, text in theirs.items():
        write_file(tmp_path / "oc" / "workspace" / name, text)
    write_file(workspace / "SOUL.md", "Mine.\n")
    held = kept("import", "openclaw", tmp_path / "oc", "--json").json["notes"]
    assert held["copied"] == ["MEMORY.md"]
    assert sorted((*held["heldBack"], *held["conflicts"])) == sorted(set(theirs) - {"MEMORY.md"})
    done = kept("import", "openclaw", tmp_path / "oc", "--instructions", "--json").json["notes"]
    assert done["conflicts"] == ["SOUL.md"]
    for name in set(theirs) - {"SOUL.md"}:
        assert (workspace / name).read_text() == theirs[name]
    assert (workspace / "SOUL.md").read_text() == "Mine.\n"


@pytest.fixture
def transcripts(tmp_path):
    """Return a file of every format."""
    said = {"role": "user", "content": [{"type": "input_text", "text": "Hello"}]}
    return {
        "claude-code": write_file(tmp_path / "cc" / "a.jsonl", lines(cc_user("u1", None, "Hello"))),
        "codex": write_file(tmp_path / "cx" / "a.jsonl", lines(cx_meta(), cx_item("message", **said))),
        "pi": write_file(tmp_path / "pi" / "a.jsonl", lines(pi_header(), pi_user("a1", None, "Hello"))),
        "chatgpt": gpt_zip(tmp_path / "gpt" / "a.zip", gpt_talk()),
        "claude-ai": claude_zip(tmp_path / "claude" / "a.zip", claude_talk()),
    }


def test_a_file_of_another_format_is_an_error(kept, transcripts):
    for own, named in zip(transcripts, [*transcripts][1:] + [*transcripts][:1], strict=True):
        done = kept("import", named, transcripts[own])
        assert (done.code, done.out) == (2, ""), own
        assert "nothing was imported" in done.err
    assert kept("sessions", "list", "--json").json == {"sessions": []}


# without a format


@pytest.fixture
def machine(tmp_path, transcripts):
    """Fill the home folder with conversations in their usual places. Return the variables that move some of them."""
    user = tmp_path / "user"
    write_file(user / ".claude/projects/p/a.jsonl", transcripts["claude-code"].read_text())
    write_file(user / "codex-home/sessions/2026/a.jsonl", transcripts["codex"].read_text())
    write_file(user / ".openclaw/agents/main/sessions/o.jsonl", lines(pi_header("oc-1"), pi_user("a1", None, "Hi")))
    write_file(user / ".openclaw/workspace/MEMORY.md", "- The spade is in the shed.\n")
    write_file(user / ".pi/agent/sessions/p.jsonl", transcripts["pi"].read_text())
    return {"CODEX_HOME": str(user / "codex-home")}


def test_import_alone_says_what_there_is_and_imports_it_with_yes(kept, machine, workspace):
    done = kept("import", env=machine)
    assert done.code == 0
    home = machine["CODEX_HOME"].removesuffix("/codex-home")
    assert done.out.replace(home, "~").splitlines() == [
        "Claude Code: ~/.claude/projects (kept import claude-code)",
        "Codex: ~/codex-home/sessions (kept import codex)",
        "OpenClaw: ~/.openclaw (kept import openclaw)",
        "pi: ~/.pi/agent/sessions (kept import pi)",
        "To import them all: kept import --yes",
    ]
    assert kept("sessions", "list", "--json").json == {"sessions": []}
    for outcome in ("imported", "unchanged"):
        done = kept("import", "--yes", "--json", env=machine).json
        assert [report[outcome] for report in done["reports"]] == [1, 1, 1, 1]
    assert "spade" in (workspace / "MEMORY.md").read_text()


def test_import_alone_asks_on_a_terminal(kept, machine, environment, workspace):
    variables = {**environment, **machine, "KEPT_WORKSPACE": str(workspace)}
    shown = without_styles(run_on_terminal(["import"], variables, typed=b"n\n"))
    assert "Import what is new in them?" in shown
    assert kept("sessions", "list", "--json").json == {"sessions": []}
    run_on_terminal(["import"], variables, typed=b"y\n")
    assert len(kept("sessions", "list", "--json").json["sessions"]) == 4


def test_a_program_has_a_usual_folder(kept, machine, tmp_path):
    assert kept("import", "codex", env=machine).out == "1 session with 1 message: 1 imported.\n"
    write_file(tmp_path / "elsewhere/projects/p/b.jsonl", lines({**cc_user("u1", None, "Hello"), "sessionId": "cc-2"}))
    variables = {"CLAUDE_CONFIG_DIR": str(tmp_path / "elsewhere")}
    done = kept("import", "claude-code", "--json", env=variables).json
    assert [session["sessionId"] for session in done["sessions"]] == ["cc-2"]


def test_nothing_on_the_machine_is_said(kept, tmp_path):
    done = kept("import")
    assert (done.code, "No conversations of Claude Code, Codex, OpenClaw or pi" in done.out) == (0, True)
    missing = kept("import", "pi")
    assert missing.code == 2
    assert f"There are no conversations in {tmp_path / 'user/.pi/agent/sessions'}." in missing.err


def test_a_large_import_shows_its_progress_on_a_terminal(tmp_path, environment, workspace):
    padding = json.dumps("x" * 21_000_000)
    write_file(
        tmp_path / "conversations.json", f'[{{"mapping": {{}}, "padding": {padding}}}, {json.dumps(gpt_talk())}]'
    )
    variables = {**environment, "KEPT_WORKSPACE": str(workspace)}
    shown = run_on_terminal(["import", "chatgpt", str(tmp_path / "conversations.json")], variables)
    assert "Importing" in shown
    assert "1 session with 2 messages: 1 imported." in without_styles(shown)
