"""Memory of a project, in Python."""

import pytest

from kept.errors import NoteNotFound, NotFound, PathRefused, UsageError
from kept.notes.projects import add_project, list_projects, plan_project
from tests.support.repositories import BADGER, OTTER, make_clone
from tests.support.workspaces import paths, write_note


@pytest.fixture
def clone(tmp_path, workspace, memory):
    folders = make_clone(tmp_path / "otter", OTTER), make_clone(tmp_path / "badger", BADGER)
    for folder in folders:
        add_project(memory().workspace, plan_project(memory().workspace, str(folder))[0])
    write_note(workspace, "memory/projects/badger/launch.md", "The launch is secret. #hush\n")
    write_note(workspace, "memory/projects/otter/launch.md", "The launch is in Wales. #ours\n")
    write_note(workspace, "memory/launch.md", "A launch needs a checklist.\n")
    return folders[0]


def test_a_memory_can_be_bound_to_a_project_by_name_or_folder(memory, clone):
    assert memory(project="otter").project == memory(project=clone / "src").project == "otter"
    assert memory().notes.find_project(clone / "src") == "otter"
    assert memory().notes.find_project(clone.parent) is None
    with pytest.raises(NotFound, match=r"There is no project 'nobody'\. There are: badger, otter\."):
        memory(project="nobody")


def test_a_bound_memory_shows_nothing_of_another_project(memory, workspace, clone):
    write_note(workspace, "memory/projects/overview.md", "Where a launch is planned.\n")  # in no project
    bound = memory(project="otter")
    hits = bound.search("launch", min_score=0)
    own, *shared = hits
    assert (own.path, own.project) == ("memory/projects/otter/launch.md", "otter")
    assert {hit.path: hit.project for hit in shared} == {"memory/launch.md": None, "memory/projects/overview.md": None}
    assert "memory/projects/badger/launch.md" not in paths(bound.list())
    assert [count.tag for count in bound.notes.tags()] == ["ours"]
    for action in (bound.read, bound.notes.links, lambda path: bound.add("x", to=path)):
        with pytest.raises((NoteNotFound, PathRefused)):
            action("memory/projects/badger/launch.md")
    for project in ("badger", "all"):
        with pytest.raises(UsageError, match="for the project 'otter' only"):
            bound.search("launch", project=project)
    assert {hit.path for hit in bound.search("launch", project="none", min_score=0)} == {hit.path for hit in shared}


def test_an_unbound_memory_chooses_for_each_call(memory, clone):
    unbound = memory()
    assert {hit.project for hit in unbound.search("launch", min_score=0)} == {"otter", "badger", None}
    assert paths(unbound.search("launch", project="badger", min_score=0))[0] == "memory/projects/badger/launch.md"
    assert unbound.add("x", project="badger").path.startswith("memory/projects/badger/")


def test_the_marker_keeps_what_else_is_in_it(memory, workspace, clone):
    notes = memory().workspace
    text = "---\ntitle: Sea\n# mine\n---\n\nAbout otters.\n"
    marker = write_note(workspace, "memory/projects/otter/PROJECT.md", text)
    add_project(notes, plan_project(notes, str(clone), "otter")[0])
    assert marker.read_text() == f'---\nremote: "github.com/ada/otter"\n---\n\n{text}'
    assert {project.name: project.keys for project in list_projects(notes)}["otter"] == ("github.com/ada/otter",)


def test_a_link_in_place_of_a_project_is_not_followed(memory, workspace, tmp_path, clone):
    write_note(tmp_path / "outside", "PROJECT.md", "---\nremote: github.com/eve/x\n---\n")
    (workspace / "memory/projects/eve").symlink_to(tmp_path / "outside")
    assert [project.name for project in list_projects(memory().workspace)] == ["badger", "otter"]
