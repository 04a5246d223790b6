"""Tokens for one workspace: nobody reaches the notes of another one with them."""

from __future__ import annotations

import pytest

from tests.support.serve_process import bearer


def test_over_mcp_a_token_for_a_workspace_reaches_its_notes_and_no_others(server, tokens):
    assert "5433" in str(server.call(tokens["here"], "memory_search", query="staging port"))
    assert "5433" not in str(server.call(tokens["there"], "memory_search", query="staging port"))
    refused = server.ask(tokens["gone"], "tools/list")
    assert (refused.status_code, "workspace" in refused.text) == (403, True)


@pytest.mark.parametrize(
    ("token", "agent", "status"),
    [
        ("here", None, 200),
        ("here", "main", 200),
        ("here", "second", 403),
        ("there", "main", 403),
        ("gone", None, 403),
        ("gone", "main", 403),
    ],
)
def test_a_message_goes_to_an_agent_with_the_workspace_of_the_token(server, tokens, token, agent, status):
    body = {"user": "ada", "text": f"Hello from {token}", **({"agent": agent} if agent else {})}
    with server.client(tokens[token]) as client:
        assert client.post("/v1/messages", json=body).status_code == status


def test_messages_and_models_of_agents_with_other_workspaces_are_not_shown(server, tokens):
    with server.client(tokens["admin"]) as client:
        posted = client.post("/v1/messages", json={"user": "ada", "text": "Hello", "id": "of-main", "agent": "main"})
        assert posted.status_code == 200
        assert client.get("/v1/messages/of-main", headers=bearer(tokens["here"])).status_code == 200
        assert client.get("/v1/messages/of-main", headers=bearer(tokens["there"])).status_code == 404
        models = client.get("/v1/models", headers=bearer(tokens["here"])).json()["data"]
    assert [model["id"] for model in models if "/" in model["id"]] == ["kept/main"]


def test_pages_open_with_a_token_for_the_workspace_that_they_show(server, tokens):
    with server.sign_in(tokens["here"]) as browser:
        assert browser.get("/").status_code == 200
    with server.client() as browser:
        for token in ("there", "gone"):
            refused = browser.post("/login", data={"token": tokens[token]}, headers={"Origin": server.url})
            assert (refused.status_code, "another workspace" in refused.text) == (403, True)
