"""Conversations travel over git: each machine sends its own and takes copies, and what was forgotten stays away."""

from __future__ import annotations

import pytest

from kept.sessions.entries import Message
from kept.sessions.people import People, read_account
from kept.sessions.store import SessionStore
from tests.support.commands import run_kept
from tests.support.sync_hosts import SyncHost, connect_team, git, killed_at, settle

SHARED = {"sync.git.transcripts": True}


def open_sessions(machine: SyncHost) -> SessionStore:
    return SessionStore.open(home=machine.home, settings=machine.settings, create=True)


def say(machine: SyncHost, text: str, *, user: str = "5054") -> str:
    with open_sessions(machine) as sessions:
        session = sessions.get_or_create("telegram", user)
        sessions.append(session.id, Message.of("user", text))
        return session.id


def transcripts(machine: SyncHost) -> dict[str, bytes]:
    """Return all transcripts of a machine by HOST/NAME, its own with its own name."""
    folder = machine.home / "agents/main/sessions"
    files = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.jsonl")}
    return {str(path) if len(path.parts) > 1 else f"{machine.name}/{path}": data for path, data in files.items()}


@pytest.fixture
def team(tmp_path):
    return connect_team(tmp_path, "ada", "bo", **SHARED)


def test_each_machine_gets_the_conversations_of_the_others(team):
    ada, bo = team
    first = say(ada, "The heron nests behind the mill")
    say(bo, "The plum tree is for the neighbours")
    assert ada.run().conversations_sent == 1
    report = bo.run()
    assert (report.conversations_sent, report.conversations_received) == (1, 1)
    assert report.problems == []
    with open_sessions(bo) as sessions:
        assert sessions.get(first).host == "ada"
    assert ada.run().conversations_received == 1
    assert transcripts(ada) == transcripts(bo)
    say(ada, "It flew away")
    settle(team)
    assert transcripts(ada) == transcripts(bo)
    assert (ada.run().conversations_sent, bo.run().conversations_received) == (0, 0)
    assert "refs/heads/main" in git(ada.workspace, "ls-remote", "origin")
    assert "jsonl" not in git(ada.workspace, "ls-tree", "-r", "--name-only", "HEAD"), "the branch has only notes"


def test_they_stay_at_home_unless_the_setting_says_so(tmp_path):
    ada, bo = connect_team(tmp_path, "ada", "bo")
    say(ada, "The heron nests behind the mill")
    settle([ada, bo])
    assert len(transcripts(bo)) == 0
    assert "conversations" not in git(ada.workspace, "ls-remote", "origin")


def test_what_is_forgotten_on_one_machine_leaves_the_remote_and_the_others(team, tmp_path, environment):
    ada, bo = team
    say(ada, "The heron nests behind the mill")
    say(ada, "The plum tree is for the neighbours")
    settle(team)
    forget(ada, environment, "heron nests")
    settle(team)
    assert b"heron" not in b"".join(transcripts(bo).values())
    assert b"plum" in b"".join(transcripts(bo).values())
    remote = tmp_path / "team.git"
    for name in git(remote, "for-each-ref", "--format=%(refname)", "refs/kept").split():
        for oid in git(remote, "rev-list", "--objects", name).splitlines():
            assert "heron" not in git(remote, "cat-file", "-p", oid.split()[0])


def test_what_is_forgotten_in_a_copy_does_not_come_back(team, environment):
    ada, bo = team
    session_id = say(ada, "The heron nests behind the mill")
    settle(team)
    forget(bo, environment, "heron nests")
    say(ada, "The plum tree is for the neighbours")
    settle(team)
    assert b"heron" not in b"".join(transcripts(bo).values())
    assert b"plum" in b"".join(transcripts(bo).values())
    assert b"heron" in b"".join(transcripts(ada).values()), "ada has not forgotten it"
    forget(bo, environment, "--session", session_id)
    settle(team)
    assert transcripts(bo) == {}


def forget(machine: SyncHost, environment: dict[str, str], *words: str) -> None:
    env = {**environment, "KEPT_HOME": str(machine.home), "KEPT_WORKSPACE": str(machine.workspace)}
    done = run_kept("forget", *words, "--yes", env=env, cwd=machine.workspace)
    assert done.code == 0, done.err


def test_a_deleted_conversation_leaves_the_others_and_a_restored_one_comes_back(team):
    ada, bo = team
    session_id = say(ada, "The heron nests behind the mill")
    settle(team)
    with open_sessions(ada) as sessions:
        sessions.delete(session_id)
    settle(team)
    assert transcripts(bo) == {}
    with open_sessions(ada) as sessions:
        sessions.restore(session_id)
    settle(team)
    assert transcripts(bo) == transcripts(ada)


def test_copies_stay_if_a_machine_loses_its_conversations(team):
    ada, bo = team
    say(ada, "The heron nests behind the mill")
    settle(team)
    for path in (ada.home / "agents/main/sessions").glob("*.jsonl"):
        path.unlink()
    settle(team)
    assert b"heron" in b"".join(transcripts(bo).values())


def test_a_second_machine_of_the_same_name_sends_nothing_and_says_why(team, tmp_path):
    ada, bo = team
    say(ada, "The heron nests behind the mill")
    settle(team)
    other = SyncHost(tmp_path / "elsewhere", "ada", **SHARED)
    say(other, "The plum tree is for the neighbours")
    report = other.connect(tmp_path / "team.git")
    assert [problem.reason for problem in report.problems if "called 'ada' too" in problem.reason]
    settle(team)
    assert transcripts(bo) == transcripts(ada)
    other.settings["sync.git.host"] = "other-ada"
    assert other.run().problems == []
    settle(team)
    assert b"plum" in b"".join(transcripts(bo).values())


HOSTILE_REFS = ("sessions", "Ada", "x.jsonl", "a/b", "x" * 100, b"\xff\xfe".decode("utf-8", "surrogateescape"))


def test_hostile_names_in_the_remote_are_reported_and_take_no_effect(team, tmp_path):
    ada, bo = team
    say(bo, "The heron nests behind the mill")
    bo.run()
    remote = tmp_path / "team.git"
    commit = git(remote, "rev-parse", "refs/kept/conversations/main/bo")
    for name in HOSTILE_REFS:
        git(remote, "update-ref", f"refs/kept/conversations/main/{name}", commit)
    blob = git(remote, "hash-object", "-w", "--stdin", stdin=b"{}\n")
    tree = (
        b"".join(
            f"100644 blob {blob}\t".encode() + name + b"\0"
            for name in (
                b".hidden.jsonl",
                b"a\nb.jsonl",
                b"\xff.jsonl",
                b"x" * 250 + b".jsonl",
                b"notes.md",
                b"good.jsonl",
            )
        )
        + f"120000 blob {blob}\tlink.jsonl".encode()
        + b"\0"
    )
    evil = git(remote, "commit-tree", git(remote, "mktree", "-z", stdin=tree), "-m", "evil")
    git(remote, "update-ref", "refs/kept/conversations/main/evil", evil)
    before = {*ada.home.rglob("*")}
    report = ada.run()
    assert len(report.problems) >= len(HOSTILE_REFS) + 6
    assert all("\n" not in problem.path + problem.reason for problem in report.problems)
    folder = ada.home / "agents/main/sessions"
    new = {str(path.relative_to(folder)) for path in {*ada.home.rglob("*")} - before if folder in path.parents}
    assert {path for path in new if not path.startswith("bo")} == {"evil", "evil/good.jsonl"}
    say(ada, "Hello")
    assert ada.run().conversations_sent == 1


def test_who_may_see_a_conversation_is_judged_alike_on_every_machine(tmp_path):
    links = {"session.identity_links": {"eve": ["telegram:5054", "discord:77"]}, "session.owner": "telegram:1"}
    ada, bo = connect_team(tmp_path, "ada", "bo", **SHARED, **links)
    for user in ("5054", "6000"):
        say(ada, f"The heron is at {user}", user=user)
    settle([ada, bo])
    keys = []
    for machine in (ada, bo):
        with open_sessions(machine) as sessions:
            viewer = People(sessions.config).viewer(read_account("discord:77"))
            keys.append({record.key for record in sessions.recent() if viewer.sees_key(record.key)})
    assert keys[0] == keys[1] == {"agent:main:telegram:default:direct:5054"}


def test_a_conversation_above_the_limit_stays_and_is_reported(tmp_path):
    ada, bo = connect_team(tmp_path, "ada", "bo", **SHARED, **{"sync.git.max_file_bytes": 2_000})
    say(ada, "x" * 3_000)
    report = ada.run()
    assert ["not sent" in problem.reason for problem in report.problems] == [True]
    settle([ada, bo])
    assert transcripts(bo) == {}


def test_a_remote_that_refuses_such_refs_does_not_stop_the_notes(team, tmp_path):
    ada, bo = team
    hook = tmp_path / "team.git/hooks/update"
    hook.write_text('#!/bin/sh\ncase "$1" in refs/heads/*) exit 0;; *) echo no >&2; exit 1;; esac\n')
    hook.chmod(0o755)
    say(ada, "The heron nests behind the mill")
    ada.write("memory/ideas.md", "# Ideas\n")
    report = ada.run()
    assert report.pushed
    assert [problem.path for problem in report.problems] == ["conversations"]
    bo.run()
    assert bo.read("memory/ideas.md") == "# Ideas\n"


def test_agents_of_one_name_share_and_others_do_not(tmp_path):
    ada, bo = connect_team(tmp_path, "ada", "bo", **SHARED)
    with SessionStore.open(home=ada.home, agent="work", settings=ada.settings, create=True) as sessions:
        sessions.append(sessions.get_or_create("terminal", "me").id, Message.of("user", "Only for work"))
    settle([ada, bo])
    assert transcripts(bo) == {}


@pytest.mark.kills
def test_a_process_that_is_killed_anywhere_is_continued_by_the_next_sync(tmp_path):
    ada, bo = connect_team(tmp_path, "ada", "bo", **SHARED)
    session_id = say(ada, "The first message")
    point, number = 1, 0
    for machine in (ada, bo):
        point = 1
        while True:
            number += 1
            say(ada, f"Message {number}")
            if machine is bo:
                ada.run()
            if not killed_at(machine, point):
                break
            point += 3
    settle([ada, bo])
    assert transcripts(ada) == transcripts(bo)
    with open_sessions(bo) as sessions:
        assert sessions.get(session_id).messages == number + 1
