"""Notes found by their properties and tags, and the links between them."""

import pytest

from kept.base.listings import TagCount
from kept.errors import NoteNotFound, UsageError
from tests.support.workspaces import open_memory, paths, write_note

ADA = (
    "---\ntitle: Ada Lovelace\naliases: [Countess]\ntags: [person, vip/close]\nstatus: retired\n---\n\n"
    "# Dinner\n\nWe met at the engine. #area/home See [[garden#Shed|the shed]] and [[Nowhere]].\n\n"
    "# Later\n\nShe wrote again, see [plan](sub/the%20plan.md).\n"
)


@pytest.fixture
def memory(tmp_path):
    workspace = tmp_path / "workspace"
    write_note(workspace, "memory/ada.md", ADA)
    write_note(workspace, "memory/garden.md", "# Garden\n\n## Shed\n\n![[countess]] keeps the key. #AREA\n")
    write_note(workspace, "memory/sub/the plan.md", "A plan for [[../ada]].\n")
    write_note(workspace, "memory/sub/garden.md", "Another garden, see [[garden]] and [x](../garden.md).\n")
    write_note(
        workspace,
        "memory/2026-03-14.md",
        "# 2026-03-14\n\n## 09:00\n\nThe heron. #birds\n\n## 09:00\n\nThe kettle.\n\n### Part\n\nMore kettle. #home\n",
    )
    write_note(workspace, "MEMORY.md", "# Memory\n\n- The otter swims. #animals\n- The kettle whistles.\n")
    with open_memory(tmp_path) as memory:
        yield memory


def test_front_matter_is_never_shown_and_citations_stay_exact(memory):
    for query in ("Ada Lovelace", "vip", "retired", "title"):
        assert all("---" not in hit.snippet for hit in memory.search(query))
    assert memory.search("met at the engine").hits[0].citation == "memory/ada.md#L8-L10"


def test_tags_are_counted_by_note_and_a_nested_one_counts_for_those_above_it(memory):
    names = ["animals", "AREA", "area/home", "birds", "home", "person", "vip", "vip/close"]
    assert list(memory.notes.tags()) == [TagCount(name, 2 if name == "AREA" else 1) for name in names]


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("area", {"memory/ada.md", "memory/garden.md"}),
        ("#Area/Home", {"memory/ada.md"}),
        (["area", "person"], {"memory/ada.md"}),
        (["person", "birds"], set()),
    ],
)
def test_a_search_is_limited_to_notes_with_all_tags(memory, tags, expected):
    assert set(paths(memory.search("garden engine key", tags=tags, min_score=0))) == expected


def test_a_tag_counts_for_its_passage_in_a_daily_note_and_its_item_in_long_term_memory(memory):
    def lines(tag):
        result = memory.search("heron kettle otter", tags=tag, min_score=0)
        return sorted((passage.path, passage.start_line) for passage in result.passages)

    assert lines("birds") == [("memory/2026-03-14.md", 1)]
    assert lines("home") == [("memory/2026-03-14.md", 11)]
    assert lines("animals") == [("MEMORY.md", 1)]


def test_a_tag_that_no_note_has_is_named(memory):
    result = memory.search("engine", tags="nope")
    assert (result.hits, result.degraded) == ((), ("No note has the tag 'nope'.",))
    with pytest.raises(UsageError, match="not a tag"):
        memory.search("engine", tags="#")


def test_tags_and_links_follow_edits_and_deletions(tmp_path, memory):
    memory.sync()
    (tmp_path / "workspace/memory/ada.md").unlink()
    write_note(tmp_path / "workspace", "memory/sub/the plan.md", "#plans for [[garden]]\n")
    assert "person" not in {count.tag for count in memory.notes.tags()}
    assert "plans" in {count.tag for count in memory.notes.tags()}
    assert [link.path for link in memory.notes.links("memory/sub/garden.md").incoming] == ["memory/sub/the plan.md"]
    assert memory.notes.links("memory/garden.md").outgoing[0].is_broken


def test_links_to_and_from_a_note_have_lines_and_broken_ones_are_marked(memory):
    links = memory.notes.links("ada")
    assert (links.path, links.title) == ("memory/ada.md", "Ada Lovelace")
    assert [(link.line, link.target, link.resolved) for link in links.outgoing] == [
        (10, "garden", "memory/garden.md"),
        (10, "Nowhere", None),
        (14, "sub/the plan", "memory/sub/the plan.md"),
    ]
    assert [(link.citation, link.is_embed) for link in links.incoming] == [
        ("memory/garden.md#L5", True),
        ("memory/sub/the plan.md#L1", False),
    ]
    nearer_or_exact = memory.notes.links("memory/sub/garden.md").outgoing
    assert [link.resolved for link in nearer_or_exact] == ["memory/sub/garden.md", "memory/garden.md"]


@pytest.mark.parametrize("name", ["memory/ada.md", "ada", "ADA.md", "Ada Lovelace", "countess", "memory/ada"])
def test_a_note_is_named_by_path_title_alias_or_file(memory, name):
    assert memory.notes.links(name).path == "memory/ada.md"


def test_a_name_of_no_note_or_of_several_is_an_error(memory):
    with pytest.raises(NoteNotFound, match="no note called 'nobody'"):
        memory.notes.links("nobody")
    with pytest.raises(UsageError, match=r"'garden' is the name of 2 notes: memory/garden\.md"):
        memory.notes.links("garden")


def test_a_memory_of_a_project_names_no_links_and_tags_of_another(tmp_path):
    notes = tmp_path / "workspace"
    write_note(notes, "memory/projects/otter/plan.md", "See [[heron-plan]] and [[nowhere]]. #ottertag\n")
    write_note(notes, "memory/projects/heron/heron-plan.md", "See [[gone]]. #secrettag\n")
    with open_memory(tmp_path) as everything:
        assert {link.target for link in everything.notes.broken_links()} == {"nowhere", "gone"}
        assert everything.list(tags="secrettag").degraded == ()
    with open_memory(tmp_path, project="otter") as bound:
        assert [link.target for link in bound.notes.broken_links()] == ["heron-plan", "nowhere"]
        assert bound.list(tags="secrettag").degraded == ("No note has the tag 'secrettag'.",)
