"""What happens to the text that a model writes: at once, or proposed."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from kept import Author
from kept.errors import EmptyNote, NoteConflict, NotFound, PathRefused, ReviewFull
from tests.support.files import write_file

BY = Author("main", session="5054abcd", tool="memory_write")
PROPOSED = {"review.agent_writes": "proposed"}


def propose(opened, text="Ada likes tea.", **options):
    return opened.add(text, **{"to": "memory/tea.md", "by_tool": True, "author": BY, **options})


# proposals


def test_a_proposal_is_not_written_and_no_search_finds_it(memory, workspace):
    opened = memory(settings=PROPOSED)
    written = propose(opened)
    assert written.is_proposed
    assert written.citation == "memory/tea.md"
    assert not (workspace / "memory/tea.md").exists()
    assert not opened.search("tea").hits
    stored = workspace / f".kept/proposals/{written.review}.json"
    assert stored.stat().st_mode & 0o777 == 0o600
    assert b"Ada likes tea." in stored.read_bytes()
    preview = opened.review.preview(opened.review.get(written.review))
    assert "+Ada likes tea." in preview.diff
    assert not (workspace / "memory/tea.md").exists()


def test_an_accepted_proposal_is_a_change_with_its_author(memory, workspace):
    opened = memory(settings=PROPOSED)
    written = propose(opened, why="she said so")
    result = opened.review.accept(written.review, author=Author(person="ines", tool="kept review"))
    assert result.action == "accepted"
    assert (workspace / "memory/tea.md").read_text() == "Ada likes tea.\n"
    (change,) = opened.history.changes()
    assert (change.by.session, change.by.tool, change.by.person) == ("5054abcd", "memory_write", "ines")
    assert change.why == "accepted by a person: she said so"
    assert opened.review.count() == 0
    with pytest.raises(NotFound):
        opened.review.accept(written.review)


def test_a_proposal_can_be_edited_or_rejected(memory, workspace):
    opened = memory(settings=PROPOSED)
    first, second = propose(opened), propose(opened, "Ada hates tea.")
    with pytest.raises(EmptyNote):
        opened.review.accept(first.review, text=" \n")
    assert opened.review.accept(first.review, text="Ada likes green tea.\n").action == "edited"
    assert opened.review.reject(second.review).action == "rejected"
    assert (workspace / "memory/tea.md").read_text() == "Ada likes green tea.\n"
    assert opened.history.changes()[0].why == "edited and accepted by a person"
    assert opened.review.count() == 0


def test_the_same_proposal_waits_once_and_a_repetition_is_not_proposed(memory, workspace):
    opened = memory(settings=PROPOSED)
    assert propose(opened).review == propose(opened).review
    assert opened.review.count() == 1
    write_file(workspace / "memory/old.md", "- Ines likes cake.\n")
    repeated = opened.add("- Ines likes cake.", to="memory/old.md", by_tool=True)
    assert (repeated.is_new, repeated.is_proposed) == (False, False)


def test_secrets_are_redacted_in_a_proposal(memory, workspace):
    opened = memory(settings=PROPOSED)
    secret = "sk-ant-api03-" + "aB3dE5fG7h" * 8
    written = propose(opened, f"The key is {secret}")
    assert secret not in (workspace / f".kept/proposals/{written.review}.json").read_text()


def test_what_tools_may_not_write_is_not_proposed_either(memory, workspace):
    opened = memory(settings=PROPOSED)
    for to in ("notes.md", "memory/projects/kept/PROJECT.md", "../x.md", "soul.md", "SO\u200bUL.md", "CLAUDE.md"):
        with pytest.raises(PathRefused):
            propose(opened, to=to)
    assert opened.review.count() == 0


@pytest.mark.parametrize("mode", ["at_once", "proposed"])
def test_a_text_for_the_system_prompt_is_proposed_in_every_mode(memory, workspace, mode):
    write_file(workspace / "SOUL.md", "- Be kind.\n")
    opened = memory(settings={"review.agent_writes": mode})
    added = opened.add("Be brief.", to="SOUL.md", by_tool=True)
    replaced = opened.add("- Be blunt.", replaces="SOUL.md#L1", by_tool=True)
    assert added.is_proposed
    assert replaced.is_proposed
    assert (workspace / "SOUL.md").read_text() == "- Be kind.\n"
    opened.review.accept(replaced.review)
    assert "~~Be kind.~~" in (workspace / "SOUL.md").read_text()


def test_a_proposal_whose_line_has_changed_is_a_conflict(memory, workspace):
    write_file(workspace / "MEMORY.md", "- Staging is on port 5433\n")
    opened = memory(settings=PROPOSED)
    written = opened.add("Staging is on port 6000", replaces="MEMORY.md#L1", by_tool=True)
    write_file(workspace / "MEMORY.md", "- Staging is on port 7000\n")
    item = opened.review.get(written.review)
    assert opened.review.preview(item).is_conflict
    with pytest.raises(NoteConflict, match="has changed"):
        opened.review.accept(written.review)
    assert (workspace / "MEMORY.md").read_text() == "- Staging is on port 7000\n"
    assert opened.review.get(written.review) == item


def test_only_so_many_changes_wait(memory, workspace, monkeypatch):
    monkeypatch.setattr("kept.notes.review_queue.MAX_WAITING", 1)
    opened = memory(settings=PROPOSED)
    propose(opened)
    with pytest.raises(ReviewFull):
        propose(opened, "Another text.")
    assert opened.review.count() == 1


def test_a_damaged_file_is_named_and_stops_nothing(memory, workspace):
    opened = memory(settings=PROPOSED)
    written = propose(opened)
    write_file(workspace / ".kept/proposals/0123456789abcdef.json", '{"id": 3}')
    waiting = opened.review.list()
    assert [item.id for item in waiting.items] == [written.review]
    assert "0123456789abcdef.json is damaged" in waiting.degraded[0]


def test_a_proposal_that_several_accept_at_once_is_written_once(memory, workspace):
    opened = memory(settings=PROPOSED)
    written = propose(opened)

    def accept(_: int) -> str:
        try:
            return opened.review.accept(written.review).action
        except NotFound:
            return "too late"

    with ThreadPoolExecutor(4) as pool:
        actions = list(pool.map(accept, range(4)))
    assert sorted(actions) == ["accepted", "too late", "too late", "too late"]
    assert (workspace / "memory/tea.md").read_text() == "Ada likes tea.\n"
