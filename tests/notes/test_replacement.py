"""Replacing a fact: the old line stays, struck through and dated, and nothing changes if the citation is wrong."""

import datetime as dt
from pathlib import Path

import pytest

from kept.errors import CitationMismatch, KeptError, NoteNotFound, PathRefused, UsageError
from kept.notes.replacement import old_value
from kept.testing import FrozenClock
from tests.support.files import write_file

NOW = dt.datetime(2026, 11, 3, 9, 30).astimezone()


@pytest.fixture
def notes(memory, workspace):
    write_file(workspace / "MEMORY.md", "# Memory\n\n- Staging is on port 5433.\n- Ada lives in Kiel.\n")
    return memory(clock=FrozenClock(NOW))


def test_the_new_line_goes_above_the_old_one(notes, workspace):
    written = notes.add("Staging is on port 6000", replaces="MEMORY.md#L3")
    assert (workspace / "MEMORY.md").read_text() == (
        "# Memory\n\n- Staging is on port 6000 (since 2026-11-03, was 5433)\n"
        "- ~~Staging is on port 5433.~~ (until 2026-11-03)\n- Ada lives in Kiel.\n"
    )
    assert (written.citation, written.replaced) == ("MEMORY.md#L3", "MEMORY.md#L4")


def test_a_date_in_the_text_is_the_day_of_the_change(notes, workspace):
    notes.add("Staging is on port 6000 (since 2026-10-01)", replaces="MEMORY.md:3")
    text = (workspace / "MEMORY.md").read_text()
    assert "- Staging is on port 6000 (since 2026-10-01, was 5433)\n" in text
    assert "- ~~Staging is on port 5433.~~ (until 2026-10-01)\n" in text


def test_a_fact_of_a_daily_note_is_replaced_by_one_in_todays(notes, workspace):
    write_file(workspace / "memory/2026-10-01.md", "# 2026-10-01\n\n## 10:00\n\nBackups run at three.\n")
    written = notes.add("Backups run at four.", replaces="memory/2026-10-01.md#L1-L5")
    assert written.path == "memory/2026-11-03.md"
    assert written.replaced == "memory/2026-10-01.md#L5"
    assert "~~Backups run at three.~~ (until 2026-11-03)" in (workspace / "memory/2026-10-01.md").read_text()
    assert "Backups run at four. (since 2026-11-03, was three)" in (workspace / written.path).read_text()


def test_a_line_that_was_added_a_moment_ago_gets_the_marks(notes, workspace):
    added = notes.add("Staging is on port 6000", to="memory")
    assert [(fact.relation, fact.citation) for fact in added.near] == [("changes", "MEMORY.md#L3")]
    written = notes.add("Staging is on port 6000", replaces=added.near[0].reference)
    assert (workspace / "MEMORY.md").read_text().count("6000") == 1
    assert written.citation == added.citation


def test_line_ends_and_wrapped_items_stay_as_they_are(notes, workspace):
    write_file(workspace / "memory/a.md", "# A\r\n\r\n- Long\r\n  item\r\n")
    notes.add("Short item", replaces="memory/a.md#L3-L4")
    assert (workspace / "memory/a.md").read_bytes().decode() == (
        "# A\r\n\r\n- Short item (since 2026-11-03, was Long)\r\n- ~~Long~~\r\n  ~~item~~ (until 2026-11-03)\r\n"
    )


@pytest.mark.parametrize(
    ("citation", "error"),
    [
        ("MEMORY.md", UsageError),
        ("MEMORY.md#L0", CitationMismatch),
        ("MEMORY.md#L1", CitationMismatch),
        ("MEMORY.md#L2", CitationMismatch),
        ("MEMORY.md#L3-L4", CitationMismatch),
        ("MEMORY.md#L99", CitationMismatch),
        ("MEMORY.md#L3@00000000", CitationMismatch),
        ("MEMORY.md#L5", CitationMismatch),
        ("memory/none.md#L1", NoteNotFound),
        ("../MEMORY.md#L3", PathRefused),
        ("sessions/a.jsonl#L1", PathRefused),
    ],
)
def test_a_citation_of_anything_else_changes_nothing(notes, workspace, citation, error):
    note = workspace / "MEMORY.md"
    note.write_text(note.read_text() + "- ~~Bob lives in Bonn.~~ (until 2025-01-01)\n")
    before = {file: file.read_bytes() for file in workspace.rglob("*.md")}
    with pytest.raises(error) as caught:
        notes.add("Staging is on port 6000", replaces=citation)
    assert type(caught.value) is error
    assert "\n" not in caught.value.message
    assert {file: file.read_bytes() for file in workspace.rglob("*.md")} == before


def test_several_lines_rows_of_tables_and_earlier_days_are_refused(notes, workspace):
    for text in ("One\nTwo", "  "):
        with pytest.raises(KeptError):
            notes.add(text, replaces="MEMORY.md#L3")
    notes.add("Staging is on port 6000", replaces="MEMORY.md#L3")
    write_file(workspace / "memory/a.md", "| host | port |\n|---|---|\n| db | 5433 |\n")
    with pytest.raises(CitationMismatch, match="is a row of a table"):
        notes.add("| db | 6000 |", replaces="memory/a.md#L3")
    with pytest.raises(UsageError, match="has held since 2026-11-03"):
        notes.add("Staging is on port 1 (since 2020-01-01)", replaces="MEMORY.md#L3")


def test_a_tool_replaces_nothing_in_files_of_the_person_and_nobody_in_extra_paths(memory, workspace, tmp_path):
    write_file(workspace / "USER.md", "- Ada likes tea.\n")
    write_file(tmp_path / "shared/a.md", "- Ada likes tea.\n")
    notes = memory(settings={"memory_search.extra_paths": [str(tmp_path / "shared")]})
    assert notes.add("Ada likes coffee.", replaces="USER.md#L1", by_tool=True).is_proposed
    with pytest.raises(PathRefused):
        notes.add("Ada likes coffee.", replaces=f"{tmp_path}/shared/a.md#L1")
    assert (workspace / "USER.md").read_text() == "- Ada likes tea.\n"
    notes.add("Ada likes coffee.", replaces="USER.md#L1")
    assert "~~Ada likes tea.~~" in (workspace / "USER.md").read_text()


def test_a_repetition_is_reported_and_not_written(notes, workspace):
    before = (workspace / "MEMORY.md").read_text()
    for to in (None, "memory", "MEMORY.md"):
        written = notes.add("ada lives in kiel", to=to)
        assert (written.is_new, written.citation) == (False, "MEMORY.md#L4")
    assert (workspace / "MEMORY.md").read_text() == before
    assert not (workspace / "memory/2026-11-03.md").exists()
    assert notes.add("ada lives in kiel", to="memory", again=True).is_new
    assert notes.add("Ada lives in Kiel.", to="memory/people.md").is_new


def test_what_ended_is_neither_repeated_nor_changed(notes):
    notes.add("Staging is on port 6000", replaces="MEMORY.md#L3")
    written = notes.add("Staging is on port 5433.", to="memory")
    assert written.is_new
    assert [fact.citation for fact in written.near] == ["MEMORY.md#L3"]


def test_other_subjects_are_left_alone(notes):
    for text in ("Bob lives in Kiel.", "Ada lives.", "Production is on port 5433.", "A walk in the park."):
        assert notes.add(text).near == (), text


def test_every_note_is_compared_by_the_words_of_the_index(memory, notes, workspace):
    write_file(workspace / "memory/infra.md", "# Infra\n\n- The cache is in Frankfurt.\n")
    write_file(workspace / "memory/People/Ben Okafor.md", "# Ben Okafor\n\nPhone +31 6 1234 5678\n")
    assert notes.add("The cache is in Rome.", to="memory/b.md").near == (), "there is no index yet"
    (workspace / "memory/b.md").unlink()
    notes.sync()
    other = memory()  # has not opened the index
    written = other.add("The cache is in Paris.")
    assert [(fact.relation, fact.citation) for fact in written.near] == [("changes", "memory/infra.md#L3")]
    assert not other.add("The cache is in Frankfurt").is_new
    phone = other.add("Ben's phone is now +31 6 9999 0000")
    assert [fact.citation for fact in phone.near] == ["memory/People/Ben Okafor.md#L3"]
    assert "_service" not in vars(other)


def test_an_index_that_cannot_be_read_is_no_reason_not_to_write(notes, workspace, memory):
    notes.sync()
    path = notes.config.paths.find_index(str(workspace))
    notes.close()
    write_file(Path(path), "This is not a database. " * 400)
    assert memory().add("Staging is on port 6000").near[0].citation == "MEMORY.md#L3"


def test_no_line_of_a_daily_note_and_no_event_is_proposed_as_replaced(notes, workspace):
    log = "# 2026-10-01\n\n## 10:00\n\nThe gate code is 4711.\n\nRan 5 km.\n\nAda likes tea.\n"
    write_file(workspace / "memory/2026-10-01.md", log)
    write_file(workspace / "memory/bills.md", "- Paid invoice 4711, 120 EUR\n- Ran 8 km along the Vecht\n")
    notes.sync()
    for text in ("The gate code is 9999.", "Ran 6 km.", "Ada does not like tea.", "Paid invoice 4712, 130 EUR"):
        assert notes.add(text).near == (), text


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("Staging is on port 5433.", "Staging is on port 6000", "5433"),
        ("Ada lives in Kiel (Germany)", "Ada lives in Bonn", "Kiel Germany"),
        ("Use tabs", "Indent by two spaces", "Use tabs"),
        ("The same", "The same", "The same"),
    ],
)
def test_the_old_value_is_what_differs(old, new, value):
    assert old_value(old, new) == value
