"""Removing an agent of a team removes its rows from the database, and nobody else's."""

from __future__ import annotations

import pytest

from kept.agent.events import Inbound
from kept.clock import SystemClock
from kept.ledger import SharedLedger
from kept.postgres.agent_rows import count_rows
from kept.reports import ModelSpending
from kept.responder.shared_inbox import SharedInbox
from kept.sessions.session_key import SessionKey
from tests.support.teams import Team

ALONE = {"KEPT_WORKSPACE": ""}


@pytest.fixture
def busy_team(team, kept, tmp_path) -> Team:
    """Two agents with notes, messages, schedules and usage."""
    for agent in ("coder", "reader"):
        assert kept("agents", "add", agent, env=ALONE).code == 0
        kept("--agent", agent, "add", f"A note of the {agent}.", env=ALONE)
        assert kept("--agent", agent, "index", env=ALONE).code == 0
        assert kept("--agent", agent, "schedule", "add", "every day 9:00", "What is new?", env=ALONE).code == 0
        inbox = SharedInbox(team.database, agent, clock=SystemClock())
        inbox.receive(SessionKey(agent, "http", "default", "direct", "ada"), Inbound("1", "Hello"))
        SharedLedger(team.database, agent, SystemClock(), ModelSpending, unsent=str(tmp_path / "unsent")).record(
            ModelSpending("scripted", "m", "turn", input=5)
        )
    return team


def names_of_workspaces(team: Team) -> str:
    with team.database.reading() as connection:
        return " ".join(name for (name,) in connection.execute("SELECT name FROM workspaces").fetchall())


def count_chunks(team: Team) -> int:
    with team.database.reading() as connection:
        (count,) = connection.execute("SELECT count(*) FROM chunks").fetchone()
    return count


def test_a_purged_agent_leaves_no_row(busy_team, kept):
    rows, chunks = count_rows(busy_team.database, "reader"), count_chunks(busy_team)
    assert rows == count_rows(busy_team.database, "coder") >= 5
    ended = kept("agents", "remove", "coder", "--purge", "--yes", "--json", env=ALONE)
    assert ended.json["deleted"][-1] == f"postgresql:{busy_team.schema}: {rows} rows of the agent coder"
    assert count_rows(busy_team.database, "coder") == 0
    assert count_rows(busy_team.database, "reader") == rows
    assert ":coder:" not in names_of_workspaces(busy_team)
    assert ":reader:" in names_of_workspaces(busy_team)
    assert count_chunks(busy_team) == chunks / 2


def test_of_an_agent_that_is_only_removed_the_index_goes(busy_team, kept):
    rows = count_rows(busy_team.database, "coder")
    assert kept("agents", "remove", "coder", env=ALONE).code == 0
    assert count_rows(busy_team.database, "coder") == rows, "another machine may have this agent"
    assert ":coder:" not in names_of_workspaces(busy_team)


def test_an_agent_whose_messages_a_gateway_answers_stays(busy_team, kept, home):
    inbox = SharedInbox(busy_team.database, "coder", clock=SystemClock(), owner="elsewhere:1:x")
    inbox.renew()
    inbox.receive(SessionKey("coder", "http", "default", "direct", "bo"), Inbound("2", "Hello"))
    rows = count_rows(busy_team.database, "coder")
    ended = kept("agents", "remove", "coder", "--purge", "--yes", env=ALONE)
    assert ended.code != 0
    assert "elsewhere:1:x" in ended.err
    assert (count_rows(busy_team.database, "coder"), (home / "workspace-coder").exists()) == (rows, True)


def test_without_the_database_nothing_is_removed(busy_team, kept, home):
    url = {"KEPT_MEMORY_SEARCH__STORE__URL": busy_team.server.url.replace("host=", "host=/no")}
    ended = kept("agents", "remove", "coder", "--purge", "--yes", env={**ALONE, **url})
    assert ended.code == 6
    assert (home / "workspace-coder").exists()
    assert 'id: "coder"' in (home / "config.yaml").read_text()
