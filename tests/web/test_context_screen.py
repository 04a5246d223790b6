"""The page that shows what the model would be sent."""

from __future__ import annotations

import pytest

from kept import Message
from kept.testing import ScriptedChat
from tests.support.web_site import texts, visiting
from tests.support.workspaces import write_note


@pytest.fixture
def model():
    return ScriptedChat()


@pytest.fixture
def pages(tmp_path, workspace, model):
    with visiting(tmp_path, model=model, session__reset__mode="none") as pages, pages.http:
        yield pages
        pages.http.portal.call(pages.site.close_chat)


def test_the_parts_of_a_request_are_shown_with_their_tokens(pages, model, workspace):
    write_note(workspace, "MEMORY.md", "# Memory\n\n- Ada likes tea.\n")
    write_note(workspace, "memory/servers.md", "# Servers\n\nStaging runs on port 5433.\n")
    page = pages.page("/context?text=Which+port+does+staging+run+on%3F")
    assert model.requests == []
    assert "tokens" in texts(page, ".tally-line")[0]
    assert any("servers.md" in link.text for link in page.select(".context a"))
    assert texts(page, ".places a") == ["MEMORY.md"]
    assert "memory_search" in texts(page, "code")
    assert "Which port does staging run on?" in texts(page, "pre")[-1]


def test_the_lines_of_a_conversation_are_part_of_it(pages):
    session = pages.site.sessions.get_or_create("telegram", "5054")
    pages.site.sessions.append(session.id, Message.of("user", "The gate squeaks."))
    page = pages.page(f"/context?with={session.id}&text=What+now%3F")
    assert "The gate squeaks." in page.text
    assert pages.page("/context?with=telegram:5054").select(".context")
