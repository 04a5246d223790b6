"""kept import, as a person and as a script use it."""

from __future__ import annotations

from tests.support.files import write_file
from tests.support.foreign_transcripts import cc_user, lines, pi_answer, pi_header, pi_user, say


def test_a_person_sees_what_came_of_it(kept, tmp_path):
    write_file(tmp_path / "from" / "a.jsonl", lines(pi_header(), pi_user("a1", None, "Hello"), "{"))
    write_file(tmp_path / "from" / "b.jsonl", "no")
    done = kept("import", "pi", tmp_path / "from")
    assert done.code == 0
    assert done.out.splitlines()[0] == "1 session with 1 message: 1 imported."
    assert "message (user) → message" in done.out
    assert "a.jsonl:3: the line is damaged: it is not JSON." in done.err
    assert "b.jsonl: is not JSONL" in done.err
    assert kept("import", "pi", tmp_path / "from").out.startswith("1 session with 1 message: 1 here already.")
    assert "Hello" in kept("sessions", "show", "walk-1").out


def test_a_script_gets_all_of_it(kept, tmp_path):
    path = write_file(tmp_path / "cc-1.jsonl", lines(cc_user("u1", None, "Hello")))
    planned = kept("import", "claude-code", path, "--dry-run", "--json").json
    assert (planned["dryRun"], planned["imported"]) == (True, 1)
    done = kept("import", "claude-code", path, "--json").json
    assert {
        name: done[name] for name in ("format", "files", "imported", "updated", "unchanged", "failed", "messages")
    } == {
        "format": "claude-code",
        "files": 1,
        "imported": 1,
        "updated": 0,
        "unchanged": 0,
        "failed": 0,
        "messages": 1,
    }
    assert done["sessions"][0]["source"] == str(path)
    assert done["kinds"] == [{"kind": "user", "became": "message", "count": 1}]


def test_a_session_that_fails_is_told_by_the_exit_code(kept, tmp_path):
    path = write_file(tmp_path / "a.jsonl", lines(pi_header(), pi_user("a1", None, "Hello"), pi_user("a2", "a1", "x")))
    kept("import", "pi", path)
    write_file(path, lines(pi_header(), pi_user("a1", None, "Hello"), pi_user("b2", "a1", "x")))
    done = kept("import", "pi", path)
    assert done.code == 9
    assert "session walk-1 failed: it differs from the session here after 1 entries" in done.err


def test_openclaw_comes_with_its_notes(kept, tmp_path, workspace):
    write_file(
        tmp_path / "oc" / "agents" / "main" / "sessions" / "a.jsonl",
        lines(pi_header(), pi_answer("a1", None, say("Hi"))),
    )
    write_file(tmp_path / "oc" / "workspace" / "MEMORY.md", "- The spade is in the shed.\n")
    write_file(tmp_path / "oc" / "workspace" / "TOOLS.md", "hammer\n")
    done = kept("import", "openclaw", tmp_path / "oc", "--json").json
    assert done["notes"] == {
        "copied": ["MEMORY.md"],
        "same": [],
        "conflicts": [],
        "leftOut": ["TOOLS.md"],
        "heldBack": [],
    }
    assert (workspace / "MEMORY.md").read_text() == "- The spade is in the shed.\n"
    again = kept("import", "openclaw", tmp_path / "oc")
    assert "Notes: 0 copied, 1 here already, 0 in conflict." in again.out
    assert "left out: TOOLS.md" in again.err


def test_an_empty_template_gives_way_to_a_real_memory(kept, tmp_path, workspace):
    kept("init")
    assert (workspace / "MEMORY.md").read_text() == "# Memory\n"
    write_file(tmp_path / "oc" / "workspace" / "MEMORY.md", "# Memory\n\n- The spade is in the shed.\n")
    planned = kept("import", "openclaw", tmp_path / "oc", "--dry-run", "--json").json["notes"]
    done = kept("import", "openclaw", tmp_path / "oc", "--json").json["notes"]
    assert planned == done
    assert (done["copied"], done["conflicts"]) == (["MEMORY.md"], [])
    assert (workspace / "MEMORY.md").read_text() == "# Memory\n\n- The spade is in the shed.\n"
    write_file(workspace / "MEMORY.md", "# Memory\n\n- Mine.\n")
    again = kept("import", "openclaw", tmp_path / "oc", "--json").json["notes"]
    assert again["conflicts"] == ["MEMORY.md"]
    assert (workspace / "MEMORY.md").read_text() == "# Memory\n\n- Mine.\n"


def test_another_agent_gets_its_own(kept, tmp_path):
    path = write_file(tmp_path / "a.jsonl", lines(pi_header(), pi_user("a1", None, "Hello")))
    kept("--agent", "work", "import", "pi", path)
    assert kept("sessions", "list", "--json").json == {"sessions": []}
    listed = kept("--agent", "work", "sessions", "list", "--json").json["sessions"]
    assert [one["sessionKey"] for one in listed] == ["agent:work:pi:default:direct:walk-1"]


def test_a_path_that_is_not_there_is_a_mistake(kept, tmp_path):
    assert kept("import", "codex", tmp_path / "nowhere", "--json").code == 2
