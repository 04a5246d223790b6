"""A vault: all Markdown of a folder, without what is left out, and daily notes where it keeps them."""

import json
import subprocess

import pytest

from kept.agent.recent_context import recent_context
from kept.agent.tools.toolbox import Toolbox
from kept.errors import PathRefused
from kept.notes.daily import get_daily_notes
from kept.notes.scan import scan_workspace
from kept.notes.survey import find_layout, survey_workspace
from kept.notes.vault import is_ignored
from kept.notes.workspace import Workspace
from kept.sessions.store import SessionStore
from kept.testing import FrozenClock
from tests.support.files import tree_of, write_file

VAULT = {"workspace_layout": "vault"}
EXTENSIONS = "memory_search.extensions"


@pytest.fixture
def vault(memory, workspace):
    """Open the workspace as a vault, on 14 March 2026 at 15:09."""
    return lambda settings=None: memory(settings={**VAULT, **(settings or {})}, clock=FrozenClock())


def names(root) -> list[str]:
    workspace = Workspace.at(str(root), layout="vault")
    files = [file.path for file in scan_workspace(workspace, max_bytes=1_000_000).files]
    assert all(workspace.is_indexed(name) for name in files), "what is found may be written"
    return files


# what is indexed


def test_the_text_of_a_canvas_is_found_and_a_canvas_is_never_written(vault, workspace):
    cards = [
        {"id": "a1", "type": "text", "text": "# Launch\\n\\nThe otter ships in May.", "x": 0},
        {"id": "b2", "type": "group", "label": "Heron group"},
        {"id": "c3", "type": "file", "file": "a.md"},
    ]
    lines = ",\n\t\t".join(map(json.dumps, cards)).replace("\\\\n", "\\n")
    before = f'{{\n\t"nodes":[\n\t\t{lines}\n\t],\n\t"edges":[]\n}}'
    write_file(workspace / "Map.canvas", before)
    write_file(workspace / "Broken.canvas", "{")
    write_file(workspace / "a.md", "x")
    with vault() as memory:
        otter, heron = memory.search("otter ships").hits[0], memory.search("heron").hits[0]
        assert (otter.citation, otter.snippet) == ("Map.canvas#L3", "# Launch\n\nThe otter ships in May.")
        assert heron.citation == "Map.canvas#L4"
        assert "Broken.canvas" in str(memory.sync(force=True).problems)
        with pytest.raises(PathRefused, match="never written"):
            memory.add("more", to="Map.canvas")
        plan = memory.forgetting.plan("otter ships")
        assert {place.kind for place in plan.options} == {"history"}
        assert plan.unreachable == ("Map.canvas#L1-L8",)
        with pytest.raises(PathRefused, match="is not changed here"):
            memory.forgetting.plan("Map.canvas#L3")
        assert memory.forgetting.plan("Map.canvas").unreachable == ("Map.canvas",)
    assert (workspace / "Map.canvas").read_text() == before


def test_templates_that_obsidian_names_are_left_out(workspace):
    for name in ("Templates/Meeting.md", "Tools/Templater/x.md", "Journal/Day.md", "Journal/2026-11-18.md", "a.md"):
        write_file(workspace / name, "---\ndate: {{date}}\n---\n# {{title}}\n")
    write_file(workspace / ".obsidian/templates.json", json.dumps({"folder": "Templates/"}))
    write_file(workspace / ".obsidian/daily-notes.json", json.dumps({"template": "Journal/Day"}))
    plugin = workspace / ".obsidian/plugins/templater-obsidian/data.json"
    write_file(plugin, json.dumps({"templates_folder": "Tools/Templater"}))
    assert names(workspace) == ["Journal/2026-11-18.md", "a.md"]
    opened = Workspace.at(str(workspace), layout="vault")
    assert not opened.is_indexed(str(workspace / "Templates/Meeting.md"))
    left_out = survey_workspace(opened, max_bytes=1_000_000).left_out
    assert {entry.path for entry in left_out} == {"Templates/", "Tools/Templater/", "Journal/Day.md"}
    for broken in ("[]", '{"folder": 3}', '{"folder": ""}', '{"folder": "/"}', "{"):
        write_file(workspace / ".obsidian/templates.json", broken)
        assert "Templates/Meeting.md" in names(workspace)


def test_all_markdown_in_all_folders_is_notes_except_what_is_left_out(workspace):
    for name in ("a.md", "Deep/er/b.MD", "README.md", "memory/c.md", "logseq/custom.md", "Ünï/日.md"):
        write_file(workspace / name, "x")
    for name in (
        ".obsidian/x.md", ".trash/x.md", ".git/x.md", "node_modules/p/README.md", "web/node_modules/README.md",
        "logseq/bak/x.md", ".hidden.md", "x.txt", "Deep/.x/y.md",
    ):  # fmt: skip
        write_file(workspace / name, "x")
        assert not Workspace.at(str(workspace), layout="vault").is_indexed(str(workspace / name))
    (workspace / "link.md").symlink_to(workspace / "a.md")
    (workspace / "linked").symlink_to(workspace / "Deep")
    assert set(names(workspace)) == {*"Deep/er/b.MD README.md a.md memory/c.md Ünï/日.md logseq/custom.md".split()}


TREE = (
    "drafts/x.md", "a/drafts/x.md", "a.secret.md", "keep.secret.md", "top.md", "a/top.md", "private/x.md",
    "a/private.md", "a/here.md", "here.md", "a/b.secret.md", "b.secret.md", "a/deep/here.md", "plain.md", "docs/x.md",
    "docs/drafts/x.md", "a b/c d.md", "[x].md", "x.md", "a/x/y/z.md", "UPPER.MD", "build.md", "build/x.md", "log.md",
)  # fmt: skip
PATTERNS = [
    {
        ".gitignore": "# comment\n\ndrafts/\n*.secret.md\n/top.md\n!keep.secret.md\n",
        ".keptignore": "private\n",
        "a/.gitignore": "here.md\n!b.secret.md\n",
    },
    {".gitignore": "/*\n!/docs/\n"},
    {".gitignore": "*\n!*/\n!x.md\n"},
    {".gitignore": "a*\n!a/\n"},
    {".gitignore": "drafts\n!docs/drafts/\n*.md \n!here.md\n"},
    {".gitignore": "a/**/z.md\n**/drafts\ndocs/*.md\n"},
    {".gitignore": "\\[x\\].md\n[px]*.md\n?ere.md\n*.MD\n"},
    {".gitignore": "*.md\n", "a/.gitignore": "!*.md\n", "a/deep/.gitignore": "*\n"},
    {".gitignore": "build/\nlog\nlog*\n!log.md\n", ".keptignore": "a\n!a/\n/a b/c*\n"},
    {".gitignore": "*.m[d]\n!x.m?\n"},
    {".gitignore": "a/**\n!a/here.md\n!a/x/\n"},
    {".gitignore": "*/\n!a/\n!docs/\n"},
]


@pytest.mark.parametrize("patterns", PATTERNS, ids=range(len(PATTERNS)))
def test_patterns_leave_out_what_git_would(workspace, patterns):
    """Compared with git itself, where the top .keptignore is at the end of the top .gitignore."""
    for name in TREE:
        write_file(workspace / name, "x")
    for name, text in patterns.items():
        write_file(workspace / name, text)
    found = names(workspace)
    vault = Workspace.at(str(workspace), layout="vault")
    assert sorted(name for name in TREE if not is_ignored(vault, name)) == sorted(found)
    write_file(workspace / ".gitignore", "".join(patterns.get(name, "") for name in (".gitignore", ".keptignore")))
    subprocess.run(["git", "init", "-q"], cwd=workspace, check=True)
    list_files = ["git", "ls-files", "-z", "--others", "--exclude-standard", "*.md", "*.MD"]
    listed = subprocess.run(list_files, cwd=workspace, check=True, capture_output=True).stdout.decode()
    assert sorted(found) == sorted(filter(None, listed.split("\0")))


def test_patterns_of_a_stranger_cost_nothing_and_lead_nowhere(workspace, tmp_path):
    write_file(workspace / ".gitignore", "*a*a*a*a*a*a*a*a*a*a*a*b\n[\n!\n\\\n" + "x.md\n")
    write_file(workspace / f"{'a' * 200}.md", "x")
    write_file(workspace / "x.md", "x")
    write_file(workspace / "below/y.md", "y")
    write_file(tmp_path / "outside", "y.md\n")
    (workspace / "below/.gitignore").symlink_to(tmp_path / "outside")
    scan = scan_workspace(Workspace.at(str(workspace), layout="vault"), max_bytes=1000)
    assert [file.path for file in scan.files] == [f"{'a' * 200}.md", "below/y.md"]
    reasons = {problem.path: problem.reason for problem in scan.problems}
    assert "line 1 is not applied" in reasons[".gitignore"]
    assert "symbolic links are not followed" in reasons["below/.gitignore"]


def test_a_search_sees_at_once_that_the_patterns_changed(vault, workspace):
    write_file(workspace / "plans/a.md", "The heron nests here.\n")
    memory = vault()
    for _ in range(2):  # the second search relies on the kernel's signal
        assert [hit.path for hit in memory.search("heron")] == ["plans/a.md"]
    write_file(workspace / ".keptignore", "plans/\n")
    assert list(memory.search("heron")) == []
    (workspace / ".keptignore").unlink()
    assert [hit.path for hit in memory.search("heron")] == ["plans/a.md"]


def test_further_endings_are_notes_if_the_settings_name_them(memory, workspace):
    for name in ("memory/a.markdown", "memory/b.txt", "memory/c.org", "memory/d.rst"):
        write_file(workspace / name, f"The heron nests in {name[7]}.\n")
    assert list(memory().search("heron")) == []
    opened = memory(settings={EXTENSIONS: ["markdown", ".TXT", "org"]})
    assert {hit.path for hit in opened.search("heron nests")} == {"memory/a.markdown", "memory/b.txt", "memory/c.org"}
    assert opened.read("memory/b.txt").text == "The heron nests in b."
    assert opened.read("c").path == "memory/c.org"
    assert opened.add("And more.", to="memory/b.txt").path == "memory/b.txt"
    assert [hit.path for hit in opened.search("more", path="memory/b.txt")] == ["memory/b.txt"]
    with pytest.raises(PathRefused):
        opened.read("memory/d.rst")


def test_the_folder_says_which_layout_fits_it(tmp_path):
    assert find_layout(str(tmp_path / "nowhere")) == "kept"
    kept = tmp_path / "kept"
    for name in "MEMORY.md memory/deep/a.md TOOLS.md CLAUDE.md x.txt .hidden/a.md node_modules/a.md".split():
        write_file(kept / name, "x")
    assert find_layout(str(kept)) == "kept"
    write_file(kept / "docs/guide.md", "x")
    assert find_layout(str(kept)) == "vault"
    (tmp_path / "empty/.obsidian").mkdir(parents=True)
    assert find_layout(str(tmp_path / "empty")) == "vault"


def test_a_survey_names_what_is_left_out_and_why(workspace):
    for name in ".obsidian/x.md node_modules/x.md drafts/x.md a/b.md c.md old.markdown d.txt e.png".split():
        write_file(workspace / name, "x")
    write_file(workspace / ".gitignore", "drafts/\n")
    (workspace / "link.md").symlink_to(workspace / "c.md")
    survey = survey_workspace(Workspace.at(str(workspace), layout="vault"), max_bytes=1000)
    assert (survey.notes, survey.folders) == (2, 2)
    assert {(entry.path, entry.reason) for entry in survey.left_out} == {
        ("drafts/", "ignored"),
        ("link.md", "link"),
        ("old.markdown", "ending"),
        ("d.txt", "ending"),
    }
    assert survey.missed_markdown() == ["old.markdown"]
    kept = survey_workspace(Workspace.at(str(workspace)), max_bytes=1000)
    assert sorted(kept.missed_markdown()) == ["a/b.md", "c.md", "old.markdown"]


# daily notes

OBSIDIAN = ".obsidian/daily-notes.json"
PERIODIC = ".obsidian/plugins/periodic-notes/data.json"
PLUGINS = {".obsidian/community-plugins.json": '["dataview", "periodic-notes"]'}
PLACES = {
    "no program": ({}, "memory/2026-03-14.md"),
    "Obsidian without settings": ({".obsidian/app.json": "{}"}, "memory/2026-03-14.md"),
    "Obsidian with notes at the top": ({".obsidian/app.json": "{}", "2025-01-01.md": "x"}, "2026-03-14.md"),
    "folder and format": ({OBSIDIAN: '{"folder": "/Journal/", "format": "DD.MM.YYYY"}'}, "Journal/14.03.2026.md"),
    "folders in the format": (
        {OBSIDIAN: '{"folder": "J", "format": "YYYY/MM-MMMM/YYYY-MM-DD dddd"}'},
        "J/2026/03-March/2026-03-14 Saturday.md",
    ),
    "no format": ({OBSIDIAN: '{"folder": "Daily"}'}, "Daily/2026-03-14.md"),
    "no folder": ({OBSIDIAN: '{"format": "YYYYMMDD"}'}, "20260314.md"),
    "periodic notes": ({PERIODIC: '{"daily": {"enabled": true, "folder": "P"}}', **PLUGINS}, "P/2026-03-14.md"),
    "periodic notes, later": (
        {PERIODIC: '{"calendarSets": [{"id": "x", "day": {"enabled": true, "format": "[d]YYYYMMDD"}}]}', **PLUGINS},
        "d20260314.md",
    ),
    "periodic notes, switched off": (
        {PERIODIC: '{"daily": {"enabled": true, "folder": "P"}}', OBSIDIAN: '{"folder": "Daily"}'},
        "Daily/2026-03-14.md",
    ),
    "Logseq": ({"journals/2026_03_13.md": "- x", "pages/a.md": "- a"}, "journals/2026_03_14.md"),
    "Logseq with settings": (
        {"logseq/config.edn": '{;; :journals-directory "no"\n :journals-directory "days"\n'
                              ' :journal/file-name-format "EEEE, dd-MM-yyyy"}', "journals/x.md": ""},
        "days/Saturday, 14-03-2026.md",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("files", "path"), PLACES.values(), ids=PLACES.keys())
def test_the_daily_note_is_where_the_vault_keeps_it(vault, workspace, home, files, path):
    for name, text in files.items():
        write_file(workspace / name, text)
    memory = vault()
    assert memory.add("The heron is back.").path == path
    assert memory.add("The otter too.").path == path
    assert (workspace / path).read_text().endswith("## 15:09\n\nThe heron is back.\n\n* * *\n\nThe otter too.\n")
    assert memory.read("today").path == path
    (hit,) = memory.search("heron", since="2026-03-14", until="2026-03-14")
    assert (hit.path, str(hit.timestamp)[:16]) == (path, "2026-03-14 15:09")
    assert [entry.path for entry in memory.search("what did I do today")] == [path, path]
    with SessionStore.open(home=home) as sessions:
        toolbox = Toolbox(memory, sessions)
        assert toolbox.run("memory_write", {"text": "And by a tool."}).result.path == path
        assert not toolbox.run("memory_write", {"text": "By its path.", "to": path}).is_error
        assert "By its path." in toolbox.run("memory_get", {"date": "today"}).text
        assert "The heron is back." in recent_context(memory, sessions, cwd=None, current=None, sent="recent")


REFUSED = [
    '{"format": "gggg-[W]ww"}',
    '{"format": "YYYY-MM-DD HH"}',
    '{"folder": "../outside", "format": "YYYY-MM-DD"}',
    '{"folder": "..", "format": "DD.MM.YYYY"}',
    '{"folder": ".hidden"}',
    '{"folder": "a//b"}',
    '{"folder": "a\\\\b"}',
    '{"folder": "a\\nb"}',
    '{"folder": "\\ud800"}',
    '{"format": "[../]YYYY-MM-DD"}',
    json.dumps({"folder": "x" * 5000}),
]


@pytest.mark.parametrize("settings", REFUSED)
def test_settings_that_cannot_be_used_are_reported_and_the_usual_place_is_used(vault, workspace, tmp_path, settings):
    write_file(workspace / OBSIDIAN, settings)
    before = set(tree_of(tmp_path))
    memory = vault()
    assert "Obsidian's settings for daily notes are not used" in get_daily_notes(memory.workspace).problem
    assert memory.add("x").path == "memory/2026-03-14.md"
    added = {path for path in set(tree_of(tmp_path)) - before if not path.startswith("home")}
    notes = {path for path in added if "/.kept" not in path}
    assert notes == {"workspace/memory", "workspace/memory/2026-03-14.md"}


@pytest.mark.parametrize("settings", ["", "{", "[]", "null", '{"folder": 7, "format": null}', "[" * 100_000])
def test_settings_that_are_none_are_as_if_they_were_not_there(vault, workspace, settings):
    write_file(workspace / OBSIDIAN, settings)
    assert get_daily_notes(vault().workspace).problem == ""
    assert vault().add("x").path.endswith("2026-03-14.md")


def test_settings_behind_a_link_are_not_read(vault, workspace, tmp_path):
    write_file(tmp_path / "outside/daily-notes.json", '{"folder": "Outside"}')
    (workspace / ".obsidian").symlink_to(tmp_path / "outside")
    assert vault().add("x").path == "memory/2026-03-14.md"


def test_a_days_note_in_another_language_is_found_and_continued(vault, workspace):
    write_file(workspace / OBSIDIAN, '{"format": "YYYY-MM-DD dddd"}')
    write_file(workspace / "2026-03-14 Samstag.md", "Heute.\n")
    memory = vault()
    assert memory.add("The heron.").path == "2026-03-14 Samstag.md"
    assert memory.read("today").text.startswith("Heute.")


def test_another_format_dates_the_notes_again(vault, workspace):
    write_file(workspace / "J/05.02.2026.md", "The heron.\n")
    write_file(workspace / OBSIDIAN, '{"folder": "J"}')
    assert list(vault().search("heron", until="2026-02-10")) == []
    write_file(workspace / OBSIDIAN, '{"folder": "J", "format": "DD.MM.YYYY"}')
    (hit,) = vault().search("heron", until="2026-02-10")
    assert str(hit.timestamp).startswith("2026-02-05")
    write_file(workspace / OBSIDIAN, '{"folder": "J"}')
    assert list(vault().search("heron", until="2026-02-10")) == []


def test_a_daily_folder_that_is_left_out_is_an_error_and_not_a_lost_note(vault, workspace):
    write_file(workspace / OBSIDIAN, '{"folder": "Journal"}')
    write_file(workspace / ".gitignore", "Journal/\n")
    with pytest.raises(PathRefused, match="would not be searched"):
        vault().add("x")
    assert not (workspace / "Journal").exists()


# writing


def test_a_person_writes_every_note_of_a_vault_and_a_tool_only_memory_and_daily_notes(vault, workspace, home):
    write_file(workspace / OBSIDIAN, '{"folder": "Journal"}')
    write_file(workspace / "Inbox.md", "Mine.\n")
    write_file(workspace / ".gitignore", "drafts/\n")
    memory = vault()
    assert memory.add("More.", to="Inbox.md").path == "Inbox.md"
    assert memory.add("New.", to="Area/new.md").path == "Area/new.md"
    for to in ("drafts/x.md", "node_modules/x.md", ".obsidian/x.md", "../x.md", "x.txt"):
        with pytest.raises(PathRefused):
            memory.add("x", to=to)
    before = tree_of(workspace)
    with SessionStore.open(home=home) as sessions:
        toolbox = Toolbox(memory, sessions)
        for to in ("Inbox.md", "Area/new.md", "Journal/idea.md", "2026-03-14.md", "Other/2026-03-14.md", "README.md"):
            outcome = toolbox.run("memory_write", {"text": "x", "to": to})
            assert "tools write only MEMORY.md, daily notes and notes below memory/" in outcome.text, to
        assert tree_of(workspace) == before
        for to in ("memory", "memory/idea.md", "daily", "Journal/2026-03-13.md"):
            assert not toolbox.run("memory_write", {"text": "x", "to": to}).is_error, to
