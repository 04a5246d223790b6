"""What the Tab key offers: notes, sessions, agents and settings, in bash, zsh and fish."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kept.sessions.entries import Message
from kept.sessions.store import SessionStore
from tests.support.commands import KEPT
from tests.support.files import tree_of, write_file


@pytest.fixture
def session(home, workspace, kept) -> str:
    write_file(workspace / "MEMORY.md", "# Memory\n\n- Ada keeps the #light/house.\n")
    write_file(workspace / "memory/my ideas.md", "Bees. #work\n")
    write_file(workspace / "memory/it's $5 (x).md", "Money.\n")
    write_file(home / "config.yaml", "agents: {list: [{id: coder}]}\n")
    with SessionStore.open(home=home) as sessions:
        record = sessions.get_or_create("telegram", "5054")
        sessions.append(record.id, Message.of("user", "Where is the lighthouse?"))
    kept("--set", "memory_search.provider=none", "index")
    return record.id


@pytest.fixture
def complete(kept, session):
    def run(line: str, shell: str = "zsh") -> list[str]:
        words = line.split(" ")
        variables = {"COMP_WORDS": line, "COMP_CWORD": words[-1] if shell == "fish" else str(len(words) - 1)}
        ended = kept(env={"_KEPT_COMPLETE": f"{shell}_complete", **variables})
        assert (ended.code, ended.err) == (0, "")
        lines = ended.out.splitlines()
        return lines[1::3] if shell == "zsh" else [line.partition(",")[2].partition("\t")[0] for line in lines]

    return run


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("kept get memory/", ["memory/it's $5 (x).md", "memory/my ideas.md"]),
        ("kept get --links M", ["MEMORY.md"]),
        ("kept add x --to MEM", ["MEMORY.md"]),
        ("kept --agent c", ["coder"]),
        ("kept search --agent ", ["main", "coder"]),
        ("kept config set memory_search.query.m", ["memory_search.query.max_results", "memory_search.query.min_score"]),
    ],
)
def test_values_that_begin_so(complete, line, expected):
    assert complete(line)[: len(expected)] == expected


def test_sessions_by_id(complete, session):
    for command in ("sessions show", "sessions delete", "sessions export"):
        assert complete(f"kept {command} ") == [session]
    assert complete(f"kept sessions show {session[:4]}", "fish") == [session]
    assert complete("kept sessions show nothing-like-it") == []


def test_bash_gets_names_that_it_need_not_quote(complete, session, environment, workspace, tmp_path):
    """The real script in a real shell: each name is one word for it."""
    assert complete("kept get memory/m", "bash") == [r"memory/my\ ideas.md"]
    script = """
        eval "$(kept completion bash)"
        COMP_WORDS=(kept get 'memory/'); COMP_CWORD=2; COMPREPLY=(); _kept_completion kept
        for name in "${COMPREPLY[@]}"; do eval "printf '%s\\n' $name"; done
    """
    env = {**environment, "KEPT_WORKSPACE": str(workspace), "PATH": f"{Path(KEPT).parent}:{environment['PATH']}"}
    shell = subprocess.run(["bash", "-c", script], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert shell.stdout.splitlines() == ["memory/it's $5 (x).md", "memory/my ideas.md"]


def test_completing_changes_nothing_and_needs_nothing(kept, complete, home, workspace, tmp_path):
    before = tree_of(workspace), (home / "config.yaml").read_bytes()
    complete("kept get ")
    assert (tree_of(workspace), (home / "config.yaml").read_bytes()) == before
    env = {"_KEPT_COMPLETE": "zsh_complete", "COMP_WORDS": "kept get M", "COMP_CWORD": "2"}
    nowhere = tmp_path / "nowhere"
    ended = kept(env={**env, "KEPT_HOME": str(nowhere), "KEPT_WORKSPACE": ""})
    assert (ended.code, ended.out.strip(), ended.err, nowhere.exists()) == (0, "", "", False)
    write_file(home / "config.yaml", "broken: [\n")
    assert (kept(env=env).code, kept(env=env).err) == (0, "")


def test_notes_of_another_workspace_are_not_offered(kept, complete, tmp_path):
    (tmp_path / "other").mkdir()
    env = {"_KEPT_COMPLETE": "zsh_complete", "COMP_WORDS": "kept get M", "COMP_CWORD": "2"}
    assert kept(env={**env, "KEPT_WORKSPACE": str(tmp_path / "other")}).out.strip() == ""
