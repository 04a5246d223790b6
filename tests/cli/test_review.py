"""kept review."""

import pytest

from kept import Author
from kept.testing import FrozenClock
from tests.support.files import write_file


@pytest.fixture
def propose(memory):
    clock = FrozenClock()
    opened = memory(settings={"review.agent_writes": "proposed"}, clock=clock)

    def add(text: str, to: str = "memory/tea.md", session: str = "5054abcd", **options: str) -> str:
        by = Author("main", session=session, tool="memory_write")
        clock.move(seconds=1)
        written = opened.add(text, to=to, by_tool=True, author=by, **options)
        return written.review

    return add


def test_without_a_terminal_the_review_is_a_list(kept, propose):
    assert kept("review").out == "Nothing waits for review.\n"
    item = propose("Ada likes tea.")
    ended = kept("review")
    assert ended.code == 0
    assert ended.out.startswith(item[:8])
    assert "memory/tea.md  proposed, not written yet  by memory_write  session 5054abcd" in ended.out
    assert "+Ada likes tea." in kept("review", "list", "--diff").out
    (shape,) = kept("review", "list", "--json").json["waiting"]
    assert (shape["id"], shape["text"], shape["conflict"]) == (item, "Ada likes tea.", False)
    assert kept("review", "--json").json["waiting"] == [shape]
    assert kept("status", "--json").json["review"] == {"waiting": 1}
    assert "1 change by agents to review" in kept("status").out


def test_items_are_accepted_and_rejected_by_id(kept, propose, workspace):
    first, second = propose("Ada likes tea."), propose("Ada hates tea.")
    assert kept("review", "accept", first[:8]).out == f"Accepted {first[:8]}: memory/tea.md\n"
    assert kept("review", "reject", second, "--json").json["decided"][0]["action"] == "rejected"
    assert (workspace / "memory/tea.md").read_text() == "Ada likes tea.\n"
    assert "accepted by a person" in kept("history").out
    assert kept("review", "accept", first).code == 3
    assert kept("review", "accept").code == 2
    assert kept("review", "accept", "--all").out == "Nothing waits for review.\n"


def test_all_of_a_session_are_accepted_and_a_conflict_waits(kept, propose, workspace):
    write_file(workspace / "MEMORY.md", "- Staging is on port 5433\n")
    stale = propose("- Staging is on port 6000", "memory", replaces="MEMORY.md#L1")
    fine, other = propose("Ada likes tea."), propose("Ines likes tea.", session="999")
    write_file(workspace / "MEMORY.md", "- Staging is on port 7000\n")
    ended = kept("review", "accept", "--session", "5054", "--json")
    assert ended.code == 4
    assert [shape["id"] for shape in ended.json["decided"]] == [fine]
    assert [shape["id"] for shape in ended.json["conflicts"]] == [stale]
    assert (workspace / "MEMORY.md").read_text() == "- Staging is on port 7000\n"
    assert {shape["id"] for shape in kept("review", "list", "--json").json["waiting"]} == {stale, other}
    assert kept("review", "accept", stale).code == 4
    assert kept("review", "accept", "--session", "777").code == 3
    assert kept("review", "reject", "--all").code == 0
