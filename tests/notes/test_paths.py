"""Where paths lead: not out of a workspace, not to a note that no search finds, not into a file of another name."""

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kept import Memory
from kept.agent.tools.tool_text import from_citation
from kept.base.file_lock import locked
from kept.base.records import Written
from kept.errors import PathRefused, WorkspaceError
from kept.notes.adopt import adopt_notes
from kept.notes.workspace import Workspace
from kept.testing import FakeEmbedder
from tests.support.commands import KEPT, run_python
from tests.support.files import tree_of, write_file

HERE = Path(__file__).parents[1] / "support"
LIMIT = "memory_search.max_file_bytes"
SHM = "/dev/shm"

# links


def test_a_folder_swapped_for_a_link_at_any_moment_leads_nowhere():
    """Nothing here has to survive a power cut, so it is done in memory where that is possible."""
    with tempfile.TemporaryDirectory(dir=SHM if os.path.isdir(SHM) else None) as folder:
        command = [sys.executable, HERE / "swapping.py", folder]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.stderr == ""
    outcomes = json.loads(ended.stdout)
    assert {name: escapes for name, (_, escapes) in outcomes.items() if escapes} == {}
    assert all(moments > 0 for moments, _ in outcomes.values())


def test_a_workspace_that_is_a_link_is_written_and_read_like_any_other(memory, workspace, tmp_path):
    (tmp_path / "link").symlink_to(workspace)
    opened = memory(workspace=tmp_path / "link")
    opened.add("lighthouse keeper", to="memory/a/b/x.md")
    assert (workspace / "memory/a/b/x.md").read_text() == "lighthouse keeper\n"
    assert opened.read("memory/a/b/x.md").text == "lighthouse keeper"
    assert [hit.path for hit in opened.search("lighthouse")] == ["memory/a/b/x.md"]


def test_a_lock_is_not_made_through_a_link(tmp_path):
    (tmp_path / "x.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WorkspaceError), locked(str(tmp_path / "x.lock"), wait_s=0, purpose="testing"):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_folders_deeper_than_files_may_be_open_are_walked_read_and_written(memory, workspace):
    name = "memory/" + "d/" * 150 + "x.md"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (120, hard))
    try:
        opened = memory()
        opened.add("lighthouse", to=name)
        assert opened.read(name).text == "lighthouse"
        assert [hit.path for hit in opened.search("lighthouse")] == [name]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# names

PART = st.one_of(
    st.sampled_from(["memory", "Memory", ".git", "a", "b.md", "x" * 260, "é" * 130, " ", "~", "%2e%2e", "CON", "..."]),
    st.text(st.characters(exclude_characters="/"), min_size=1, max_size=8),
)
NAME = st.builds(
    lambda parts, ending: "/".join(parts) + ending,
    st.lists(PART, min_size=1, max_size=4).map(lambda parts: ["memory", *parts]),
    st.sampled_from([".md", ".MD", ".md", ".txt", ".md ", ""]),
)


def add_or_refuse(memory: Memory, name: str) -> Written | PathRefused:
    try:
        return memory.add("lighthouse keeper", to=name)
    except PathRefused as refusal:
        return refusal


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=NAME)
@example(name="memory/\udcff.md")
@example(name="memory/\ud800.md")
@example(name="memory/\udcff/x.md")
@example(name="memory/a\nb.md")
@example(name="memory/a\x1b[31m.md")
@example(name="memory/a\x85b.md")
@example(name="memory/.md")
@example(name="memory/.hidden/x.md")
@example(name="memory/new/" + "x" * 253 + ".md")
@example(name="memory/new/" + "x" * 252 + ".md")
@example(name="memory/" + "é" * 200 + ".md")
@example(name="memory/" + "d/" * 2040 + "x.md")
@example(name="memory/x.md#L3.md")
@example(name="memory/a\\b.md")
def test_a_name_is_refused_or_found_by_search_and_get(name):
    with tempfile.TemporaryDirectory(dir=SHM if os.path.isdir(SHM) else None) as folder:
        root = Path(folder) / "workspace"
        root.mkdir()
        with Memory.open(root, home=Path(folder) / "home", embedder=FakeEmbedder()) as memory:
            written = add_or_refuse(memory, name)
            if isinstance(written, PathRefused):
                assert len(written.message.encode().splitlines()) == 1
                assert tree_of(root) == {}
                return
            assert memory.sync().problems == ()
            (hit,) = memory.search("lighthouse keeper")
            path, start, lines = from_citation(hit.citation, None, None)
            assert (path, hit.citation) == (written.path, written.citation)
            assert memory.read(path, start=start, lines=lines).text == "lighthouse keeper"


def test_a_hint_names_a_place_that_would_be_accepted(memory):
    opened = memory()
    for to in ("notes.md", ".md", "memory/.x.md", "memory/.hidden/x.md"):
        with pytest.raises(PathRefused) as caught:
            opened.add("x", to=to)
        opened.add("x", to=caught.value.hint.rpartition(" ")[2].removesuffix("."))


def test_a_note_with_the_longest_name_there_is_can_be_forgotten_in_and_adopted(memory, workspace, tmp_path):
    name = "memory/" + "x" * 252 + ".md"
    write_file(tmp_path / "other" / name, "one\ntwo\n")
    notes = Workspace.at(str(workspace))
    assert adopt_notes(notes, str(tmp_path / "other"), max_bytes=1000).copied == (name,)
    opened = memory()
    opened.forgetting.apply(opened.forgetting.plan(f"{name}#L1"))
    assert (workspace / name).read_text() == "two\n"


def test_adopted_notes_keep_their_times_and_a_name_that_is_not_utf8_is_left_out(workspace, tmp_path):
    note = write_file(tmp_path / "other/memory/x.md", "x")
    os.utime(note, ns=(1_600_000_000_000_000_001, 1_600_000_000_000_000_001))
    with open(os.fsencode(tmp_path) + b"/other/memory/\xff.md", "wb") as file:
        file.write(b"x")
    adopted = adopt_notes(Workspace.at(str(workspace)), str(tmp_path / "other"), max_bytes=1000)
    assert (adopted.copied, [problem.reason for problem in adopted.problems]) == (
        ("memory/x.md",),
        ["its name is not valid UTF-8"],
    )
    assert (workspace / "memory/x.md").stat().st_mtime_ns == 1_600_000_000_000_000_001


def test_adding_to_a_note_that_has_another_name_leaves_the_other_as_it_was(memory, workspace, tmp_path):
    outside = write_file(tmp_path / "outside.md", "theirs\n")
    outside.chmod(0o640)
    (workspace / "memory").mkdir()
    os.link(outside, workspace / "memory/x.md")
    opened = memory()
    assert opened.read("memory/x.md").text == "theirs"
    written = opened.add("mine", to="memory/x.md")
    assert outside.read_text() == "theirs\n"
    assert (workspace / "memory/x.md").read_text() == "theirs\n\n* * *\n\nmine\n"
    assert (workspace / "memory/x.md").stat().st_mode & 0o777 == 0o640
    assert written.citation == "memory/x.md#L5"
    assert os.listdir(workspace / "memory") == ["x.md"]


SMALL_MEMORY = """
import resource, sys
from kept import Memory, KeptError
memory = Memory.open(sys.argv[1], home=sys.argv[2], settings={"memory_search.provider": "none"})
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
for action in (lambda: memory.add("x", to="memory/big.md"), lambda: memory.read("memory/big.md"), memory.sync):
    try:
        print(action().problems[0].path)
    except KeptError as error:
        print(error.code)
"""


def test_a_note_that_is_too_large_is_refused_before_it_is_read(workspace, home):
    big = write_file(workspace / "memory/big.md", "x")
    os.truncate(big, 4 << 30)
    ended = run_python(SMALL_MEMORY, workspace, home)
    assert (ended.stdout.split(), ended.stderr) == (["note_too_large", "note_too_large", "memory/big.md"], "")


@pytest.mark.parametrize("command", [["add", "-"], ["chat", "-m", "-"]])
def test_an_endless_input_is_not_read_to_its_end(environment, workspace, command):
    with open("/dev/zero", "rb") as endless:
        env = {**environment, "KEPT_WORKSPACE": str(workspace)}
        ended = subprocess.run([KEPT, *command], stdin=endless, capture_output=True, env=env, text=True, timeout=60)
    assert ended.returncode in (2, 8)
    assert (
        ended.stderr == "Error: Standard input has more than the limit of 4,000,000 bytes. Pass less text at a time.\n"
    )
    assert tree_of(workspace) == {}


@pytest.mark.parametrize("name", ["two\nlines.md", "\x1b]52;c;eA==\x07.md", "SOUL\u200b.md", "deep/agents\u2060.md"])
def test_a_name_that_kept_add_refuses_is_not_taken_from_another_folder_either(tmp_path, name):
    write_file(tmp_path / "other/memory" / name, "evil\n")
    notes = Workspace.at(str(tmp_path / "workspace"))
    adopted = adopt_notes(notes, str(tmp_path / "other"), max_bytes=1000, instructions=True)
    assert adopted.copied == ()
    assert [problem.reason.startswith("its name ") for problem in adopted.problems] == [True]
    with Memory.open(tmp_path / "workspace", home=tmp_path / "home") as memory, pytest.raises(PathRefused):
        memory.add("Something.", to=f"memory/{name}")
    assert not [path for path in (tmp_path / "workspace").rglob("*") if path.is_file()]
