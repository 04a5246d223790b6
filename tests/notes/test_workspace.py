"""The notes as files: which are found, which may be named, how they are read and how they are written."""

import datetime as dt
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kept import Memory
from kept.base.durable import write_atomic
from kept.base.records import ENTRY_RULE
from kept.errors import (
    EmptyNote,
    NoteNotFound,
    NoteTooLarge,
    PathRefused,
    WorkspaceError,
    WorkspaceMissing,
    WriteFailed,
)
from kept.notes.workspace import Workspace, encoding_of
from kept.testing import FrozenClock
from tests.support.commands import run_python, start_python
from tests.support.files import largest_file, tree_of, write_file

EXTRA = "memory_search.extra_paths"
LIMIT = "memory_search.max_file_bytes"


def indexed(memory: Memory) -> set[str]:
    """The notes that discovery finds, as they are cited."""
    memory.sync()
    with memory.index_service.inspecting() as (index, _), index.reading():
        return {path for _, path in index.live.file_rows()}


def problems(memory: Memory) -> dict[str, str]:
    return {problem.path: problem.reason for problem in memory.sync().problems}


# discovery


def test_the_notes_of_a_workspace_are_found_and_nothing_else(memory, workspace):
    notes = {
        "MEMORY.md", "memory.md", "USER.md", "SOUL.md", "AGENTS.md",
        "memory/2026-03-14.md", "memory/ideas.md", "memory/a/b/c/deep.md", "memory/SHOUTED.MD",
        "memory/ünïcödé 漢字.md",
    }  # fmt: skip
    others = {
        "README.md", "notes.md", "docs/x.md", "Memory.md", "user.md",
        "memory/x.txt", "memory/x.md.bak", "memory/x", "memory/xmd", "memory/.hidden.md", "memory/.git/x.md",
        "memory/a/.obsidian/x.md", "memories/x.md", "memory.txt", ".memory/x.md",
    }  # fmt: skip
    for path in notes | others:
        write_file(workspace / path, f"# {path}\n")
    assert indexed(memory()) == notes


def test_extra_paths_may_be_files_and_folders_inside_and_outside(memory, workspace, tmp_path):
    write_file(workspace / "docs/guide.md", "x")
    write_file(workspace / "README.md", "x")
    write_file(tmp_path / "shared/sub/x.md", "x")
    write_file(tmp_path / "shared/x.txt", "x")
    write_file(tmp_path / "shared/.hidden/x.md", "x")
    write_file(tmp_path / ".dotted/x.md", "x")
    write_file(tmp_path / "single.md", "x")
    extra = ["docs", "README.md", str(tmp_path / "shared"), str(tmp_path / "single.md"), str(tmp_path / ".dotted")]
    assert indexed(memory(settings={EXTRA: extra})) == {
        "docs/guide.md",
        "README.md",
        str(tmp_path / "shared/sub/x.md"),
        str(tmp_path / "single.md"),
        str(tmp_path / ".dotted/x.md"),
    }


def test_an_extra_path_that_cannot_be_used_is_reported_and_neither_searched_nor_read(memory, workspace, tmp_path):
    write_file(workspace / "MEMORY.md", "x")
    write_file(tmp_path / "real/sub/x.md", "secret")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (workspace / "docs").symlink_to(tmp_path / "real")
    write_file(tmp_path / "x.txt", "x")
    is_link = "extra path is a symbolic link, which is not followed"
    reasons = {
        str(tmp_path / "nowhere"): "extra path does not exist",
        str(tmp_path / "link"): is_link,
        str(tmp_path / "x.txt"): "extra path is neither a folder nor Markdown",
    }
    opened = memory(settings={EXTRA: [*reasons, "docs/sub", "docs/sub/x.md"]})
    assert reasons.items() <= problems(opened).items()
    assert {reason for path, reason in problems(opened).items() if "docs" in path} == {is_link}
    assert indexed(opened) == {"MEMORY.md"}
    for path in (str(tmp_path / "link/sub/x.md"), "docs/sub/x.md"):
        with pytest.raises(PathRefused):
            opened.read(path)


def test_symbolic_links_are_not_followed(memory, workspace, tmp_path):
    secret = write_file(tmp_path / "outside/secret.md", "secret")
    write_file(workspace / "memory/real.md", "x")
    (workspace / "memory/file.md").symlink_to(secret)
    (workspace / "memory/inside.md").symlink_to(workspace / "memory/real.md")
    (workspace / "memory/folder").symlink_to(secret.parent)
    (workspace / "memory/loop").symlink_to(workspace / "memory")
    (workspace / "memory/dangling.md").symlink_to("nowhere")
    (workspace / "MEMORY.md").symlink_to(secret)
    assert indexed(memory()) == {"memory/real.md"}


def test_what_is_named_like_a_note_and_is_no_file_is_passed_over(memory, workspace):
    write_file(workspace / "memory/folder.md/inner.md", "x")
    os.mkfifo(workspace / "memory/pipe.md")
    os.mkfifo(workspace / "MEMORY.md")
    with socket.socket(socket.AF_UNIX) as sock:
        here = Path.cwd()
        os.chdir(workspace)  # the name of a socket is short
        sock.bind("memory/socket.md")
        os.chdir(here)
        assert indexed(memory()) == {"memory/folder.md/inner.md"}


def test_what_cannot_be_indexed_is_reported_and_the_rest_goes_on(memory, workspace):
    """Root may read everything, so a folder is made too deep for a path to name it."""
    write_file(workspace / "memory/big.md", "x" * 1001)
    write_file(workspace / "memory/fits.md", "x" * 1000)
    with open(os.fsencode(workspace) + b"/memory/\xff\xfe.md", "wb") as file:
        file.write(b"x")
    folder = os.open(workspace / "memory", os.O_RDONLY)
    for _ in range(20):
        os.mkdir("d" * 250, dir_fd=folder)
        inner = os.open("d" * 250, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    opened = memory(settings={LIMIT: 1000})
    assert indexed(opened) == {"memory/fits.md"}
    reasons = problems(opened)
    assert reasons.pop("memory/big.md") == "1,001 bytes, more than the limit of 1,000; not indexed"
    assert reasons.pop("memory/\ufffd\ufffd.md") == "its name is not valid UTF-8"
    assert list(reasons.values()) == ["cannot be read (File name too long)"]
    with pytest.raises(NoteTooLarge):
        opened.read("memory/big.md")


def test_a_workspace_below_a_folder_whose_name_is_not_utf8_works(memory, tmp_path):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe"))
    write_file(folder / "memory/x.md", "the lighthouse keeper")
    for _ in range(2):  # a second workspace of the same agent has an index of its own
        assert [hit.path for hit in memory(workspace=folder).search("lighthouse")] == ["memory/x.md"]
        folder = folder.rename(folder.with_name(folder.name + "2"))


def test_folders_nested_a_thousand_deep_are_walked(memory, workspace):
    folder = os.open(workspace, os.O_RDONLY)
    for name in ["memory", *["d"] * 1200]:
        os.mkdir(name, dir_fd=folder)
        inner = os.open(name, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(os.open("x.md", os.O_WRONLY | os.O_CREAT, dir_fd=folder))
    os.close(folder)
    try:
        assert indexed(memory()) == {"memory/" + "d/" * 1200 + "x.md"}
    finally:
        subprocess.run(["rm", "-rf", workspace / "memory"], check=True)  # pytest's own cleaning does not go so deep


# containment


@pytest.mark.parametrize(
    "path",
    ["../outside.md", "memory/../../outside.md", "memory/../MEMORY.md", "..\\outside.md", "memory\\..\\..\\outside.md",
     "/etc/passwd", "/etc/passwd.md", "{outside}/secret.md", "{workspace}-2/x.md", "memory/link.md",
     "memory/links/secret.md", "memory/links/../x.md", "memory/hop/links/secret.md", "memory/pipe.md",
     "memory/folder.md", "memory/hop", "memory/", ".", "", "/", "memory/x.md\0", "memory/x.md\0.md", "memory/x.txt",
     "memory/x.md/", "memory/x.md ", ".kept.yaml", "memory/" + "x" * 300 + ".md", "x/" * 3000 + "x.md",
     "memory/\ud800.md", "~/secret.md/../x.md"],
)  # fmt: skip
def test_a_path_that_leads_out_or_is_no_note_is_refused(memory, workspace, tmp_path, path):
    outside = tmp_path / "outside"
    write_file(outside / "secret.md", "secret")
    write_file(tmp_path / "outside.md", "secret")
    write_file(workspace / "MEMORY.md", "x")
    write_file(workspace / "memory/x.md", "x")
    (workspace / "memory/link.md").symlink_to(outside / "secret.md")
    (workspace / "memory/links").symlink_to(outside)
    (workspace / "memory/hop").mkdir()
    (workspace / "memory/hop/links").symlink_to(outside)
    (workspace / "memory/folder.md").mkdir()
    os.mkfifo(workspace / "memory/pipe.md")
    path = path.replace("{outside}", str(outside)).replace("{workspace}", str(workspace))
    before = tree_of(tmp_path)
    opened = memory()
    with pytest.raises(PathRefused):
        opened.read(path)
    with pytest.raises(PathRefused):
        opened.add("text", to=path)
    assert tree_of(tmp_path) == before


@pytest.mark.parametrize(
    "path",
    ["memory/%2e%2e%2fx.md", "memory/%00.md", "memory/a\\b.md", "memory/...md", "memory/a..b.md", "memory/ .md",
     "memory/~.md", "memory/'\"$(x)`.md", "memory/-rf.md", "memory/a\nb.md", "memory/x.MD",
     "memory/" + "x" * 252 + ".md"],
)  # fmt: skip
def test_a_strange_name_is_just_a_name(memory, workspace, path):
    write_file(workspace / path, "lighthouse")
    assert memory().read(path).text == "lighthouse"


@pytest.mark.parametrize("path", ["memory/none.md", "none.md", "memory/none/x.md", "memory/%2e%2e/MEMORY.md"])
def test_a_note_that_is_not_there_is_not_found(memory, workspace, path):
    write_file(workspace / "MEMORY.md", "x")
    with pytest.raises(NoteNotFound):
        memory().read(path)


def test_a_note_is_named_by_its_relative_or_absolute_path_and_cited_by_one(memory, workspace, tmp_path):
    write_file(workspace / "memory/x.md", "x")
    extra = write_file(tmp_path / "shared/y.md", "y")
    opened = memory(settings={EXTRA: [str(extra.parent)]})
    for path in ("memory/x.md", "./memory/x.md", "memory//x.md", str(workspace / "memory/x.md")):
        assert opened.read(path).path == "memory/x.md"
    assert opened.read(str(extra)).path == str(extra)


# reading


@pytest.mark.parametrize(
    ("raw", "text", "warning"),
    [
        (b"", "", None),
        (b"\xef\xbb\xbfhello\n", "hello\n", None),
        (b"a\r\nb\rc\nd", "a\nb\nc\nd", None),
        (b"a\r\r\nb", "a\n\nb", None),
        (b"caf\xe9\n", "caf�\n", "not valid UTF-8 at byte 3"),
        (b"a\x00b", "a�b", "NUL"),
        ("a ö\r\n漢".encode("utf-16"), "a ö\n漢", None),
        ("a ö\n".encode("utf-16-be").join([b"\xfe\xff", b""]), "a ö\n", None),
        ("a ö\n漢".encode("utf-32"), "a ö\n漢", None),
        (b"\xff\xfea\x00b", "a�", "not valid UTF-16"),
        ("漢字 ไทย 😀".encode(), "漢字 ไทย 😀", None),
        (b"\xed\xa0\x80", "���", "not valid UTF-8"),
    ],
)
def test_any_bytes_are_read_as_text_and_what_was_replaced_is_reported(workspace, raw, text, warning):
    path = write_file(workspace / "x.md", raw)
    note = Workspace.at(str(workspace)).read("x.md", max_bytes=1000)
    assert (note.text, note.raw) == (text, raw)
    assert (warning in note.warning) if warning else note.warning is None
    assert path.read_bytes() == raw


def test_lines_of_a_note_are_read_exactly(memory, workspace):
    write_file(workspace / "memory/x.md", "".join(f"line {n}\n" for n in range(1, 501)))
    opened = memory()
    passage = opened.read("memory/x.md", start=3, lines=2)
    assert (passage.text, passage.start, passage.lines) == ("line 3\nline 4", 3, 2)
    assert (passage.truncated, passage.next_from) == (True, 5)
    whole = [opened.read("memory/x.md")]
    while (following := whole[-1].next_from) is not None:
        whole.append(opened.read("memory/x.md", start=following))
    assert [passage.lines for passage in whole] == [200, 200, 100]
    assert "\n".join(passage.text for passage in whole) + "\n" == (workspace / "memory/x.md").read_text()


def test_a_passage_is_bounded_however_long_the_lines_are(memory, workspace):
    write_file(workspace / "memory/x.md", "\n".join("y" * 20_000 for _ in range(9)))
    passage = memory().read("memory/x.md")
    assert len(passage.text) <= 61_000
    assert passage.next_from == passage.lines + 1


# writing


def at(hour: int, minute: int, day: int = 14) -> FrozenClock:
    return FrozenClock(dt.datetime(2026, 3, day, hour, minute).astimezone())


def cited(memory: Memory, written) -> str:
    return memory.read(written.path, start=written.start_line, lines=written.end_line - written.start_line + 1).text


def test_the_daily_log_has_a_heading_for_the_day_and_one_for_each_time(memory, workspace):
    clock = at(9, 5)
    opened = memory(clock=clock)
    first = opened.add("Met Ada.")
    clock.move(hours=3)
    second = opened.add("Lunch.\n\n- soup\n- bread\n")
    log = workspace / "memory/2026-03-14.md"
    assert log.read_text() == "# 2026-03-14\n\n## 09:05\n\nMet Ada.\n\n## 12:05\n\nLunch.\n\n- soup\n- bread\n"
    assert cited(opened, first) == "## 09:05\n\nMet Ada."
    assert cited(opened, second) == "## 12:05\n\nLunch.\n\n- soup\n- bread"
    clock.move(hours=12)
    assert opened.add("Next day.").path == "memory/2026-03-15.md"


@pytest.mark.parametrize(
    ("before", "added"),
    [
        ("# Inbox\n- call mum\n", "- buy milk\n"),
        ("* one\n  * below it\n", "* buy milk\n"),
        ("# Inbox\n", "\nbuy milk\n"),
        ("---\ntags: [x]\n---\n", "\nbuy milk\n"),
        ("one\n\n***\n", "\nbuy milk\n"),
        ("1. one\n", "\n* * *\n\nbuy milk\n"),
        ("# Bob\n\n079 123\n", "\n* * *\n\nbuy milk\n"),
    ],
)
def test_a_line_continues_the_list_of_a_note_and_is_else_set_apart(memory, workspace, before, added):
    path = write_file(workspace / "memory/x.md", before)
    opened = memory()
    written = opened.add("buy milk", to="memory/x.md")
    assert path.read_text() == before + added
    assert cited(opened, written) == added.split("\n")[-2]


def test_long_term_memory_is_a_list_that_grows(memory, workspace):
    opened = memory()
    first = opened.add("Ada likes tea.", to="memory")
    second = opened.add("- Bob likes coffee.", to="memory")
    third = opened.add("Carol likes\nboth.", to="memory")
    assert (workspace / "MEMORY.md").read_text() == (
        "# Memory\n\n- Ada likes tea.\n- Bob likes coffee.\n\nCarol likes\nboth.\n"
    )
    assert [cited(opened, written) for written in (first, second, third)] == [
        "- Ada likes tea.",
        "- Bob likes coffee.",
        "Carol likes\nboth.",
    ]
    assert first.citation == "MEMORY.md#L3"
    assert third.citation == "MEMORY.md#L6-L7"


def test_long_term_memory_goes_into_the_file_that_is_there(memory, workspace):
    write_file(workspace / "memory.md", "# Mine\n")
    assert memory().add("x", to="memory").path == "memory.md"
    assert not (workspace / "MEMORY.md").exists()


@pytest.mark.parametrize(
    "before",
    ["", "one", "one\n", "one\n\n", "one\r\n", "one\r", "one\r\rtwo\r", "\r", "one\r\n\r\n",
     "\ufeff", "\ufeffone", "- a\n",
     "\n", " ", "- a", b"\xff\xfd", b"a\x00", "one\n\n\n", "one\r".encode("utf-16"), "\ufeffone\r".encode("utf-16-be")],
)  # fmt: skip
@pytest.mark.parametrize("to", ["memory/x.md", "MEMORY.md", "memory"])
def test_what_was_added_stands_exactly_in_the_lines_that_are_cited(memory, workspace, before, to):
    path = write_file(workspace / ("MEMORY.md" if to == "memory" else to), before)
    raw = path.read_bytes()
    opened = memory()
    for text in ("First line\nsecond line", "- item", "# Heading"):
        written = opened.add(text, to=to)
        assert cited(opened, written) == text
    assert path.read_bytes().startswith(raw)
    assert path.read_bytes().endswith("# Heading\n".encode(encoding_of(raw)[1]))


@pytest.mark.parametrize("text", ["", " ", "\n\n", "\t", "\ufeff"])
def test_nothing_cannot_be_added(memory, workspace, text):
    with pytest.raises(EmptyNote):
        memory().add(text)
    assert tree_of(workspace) == {}


@pytest.mark.parametrize(
    ("text", "kept"),
    [("a\r\nb\rc", "a\nb\nc"), ("a\0b", "a�b"), ("\n\na\n\n", "a"), ("a\udcffb", "a?b"), ("  indented", "  indented")],
)
def test_added_text_is_tidied_so_that_it_reads_back(memory, text, kept):
    opened = memory()
    assert cited(opened, opened.add(text, to="memory/x.md")) == kept


@pytest.mark.parametrize("to", ["notes.md", "docs/x.md", "memory/.hidden/x.md", "memory/.x.md", "Memory.md", "x.md"])
def test_a_note_that_would_not_be_searched_is_not_written(memory, workspace, to):
    with pytest.raises(PathRefused) as caught:
        memory().add("text", to=to)
    assert "would not be searched" in caught.value.message
    assert "memory/" in caught.value.hint
    assert tree_of(workspace) == {}


def test_a_note_is_not_made_too_large_to_be_searched(memory, workspace):
    opened = memory(settings={LIMIT: 1000})
    opened.add("x" * 900, to="memory/x.md")
    before = (workspace / "memory/x.md").read_bytes()
    with pytest.raises(NoteTooLarge):
        opened.add("y" * 200, to="memory/x.md")
    with pytest.raises(NoteTooLarge):
        opened.add("y" * 2000)
    assert (workspace / "memory/x.md").read_bytes() == before
    assert indexed(opened) == {"memory/x.md"}


def test_a_workspace_that_is_gone_is_said_to_be(memory, workspace, tmp_path):
    opened = memory()
    workspace.rename(tmp_path / "elsewhere")
    for action in (lambda: opened.add("x"), opened.sync, opened.status, lambda: opened.search("x")):
        with pytest.raises(WorkspaceMissing):
            action()
    with pytest.raises(WorkspaceMissing):
        memory()


def test_new_notes_and_folders_are_private_and_adding_keeps_the_mode(memory, workspace):
    opened = memory()
    note = workspace / "memory/a/x.md"
    opened.add("one", to="memory/a/x.md")
    assert note.stat().st_mode & 0o777 == 0o600
    assert note.parent.stat().st_mode & 0o777 == 0o700
    note.chmod(0o664)
    opened.add("two", to="memory/a/x.md")
    assert note.stat().st_mode & 0o777 == 0o664


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o664, 0o666, 0o640])
def test_an_atomic_write_keeps_the_mode_whatever_the_umask(workspace, mode):
    path = write_file(workspace / "x.md", "old")
    path.chmod(mode)
    umask = os.umask(0o027)
    try:
        write_atomic(str(path), b"new")
    finally:
        os.umask(umask)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == mode
    assert os.listdir(workspace) == ["x.md"]


def test_an_atomic_write_that_fails_leaves_no_trace(workspace):
    (workspace / "x.md").mkdir()
    with pytest.raises(WorkspaceError):
        write_atomic(str(workspace / "x.md"), b"new")
    assert os.listdir(workspace) == ["x.md"]
    write_file(workspace / "y.md", "a file where a folder should be")
    with pytest.raises(WorkspaceError):
        write_atomic(str(workspace / "y.md" / "z.md"), b"new")


def test_a_full_disk_leaves_every_note_as_it_was(workspace, home):
    notes = {"memory/x.md": b"one\ntwo", "MEMORY.md": b"x" * 1999}
    for path, raw in notes.items():
        write_file(workspace / path, raw)
    none = {"memory_search.provider": "none"}
    with largest_file(2000), Memory.open(workspace, home=home, settings=none) as opened:
        for to in ("memory/x.md", "memory", "memory/new.md"):
            with pytest.raises(WriteFailed):
                opened.add("y" * 5000, to=to)
        with pytest.raises(WriteFailed):
            write_atomic(str(workspace / "MEMORY.md"), b"y" * 5000)
    left = {path: raw for path, raw in tree_of(workspace).items() if not path.startswith(".kept") and raw is not None}
    assert left == notes


WITHOUT_PRIVILEGE = """
import ctypes, json, os, sys
from kept import KeptError, Memory
from kept.testing import FakeEmbedder
workspace, home = sys.argv[1:]
if os.geteuid() == 0:  # root without its capabilities is bound by modes like everybody else
    header, nothing = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None).capset(header, nothing) == 0
memory = Memory.open(workspace, home=home, embedder=FakeEmbedder())
os.chmod(workspace + "/memory/closed", 0)
os.chmod(workspace + "/memory/unreadable.md", 0)
report = memory.sync()
said = {"problems": [[one.path, one.reason.rpartition(": ")[2].rstrip(".")] for one in report.problems]}
for name in ("memory/unreadable.md", "memory/closed/x.md"):
    for job, action in (("read", lambda: memory.read(name)), ("add", lambda: memory.add("x", to=name))):
        try:
            action()
        except KeptError as error:
            said[f"{job} {name}"] = error.code
os.chmod(workspace, 0o500)
try:
    memory.add("x", to="memory")
except KeptError as error:
    said["add to a closed workspace"] = error.code
os.chmod(workspace, 0)
try:
    memory.add("x")
except KeptError as error:
    said["add to a hidden workspace"] = error.code
os.chmod(workspace, 0o700)
os.chmod(workspace + "/memory/closed", 0o700)
print(json.dumps(said))
"""


def test_what_may_not_be_read_or_written_is_reported_and_the_rest_goes_on(workspace, home):
    write_file(workspace / "memory/fine.md", "x")
    write_file(workspace / "memory/closed/x.md", "x")
    write_file(workspace / "memory/unreadable.md", "x")
    ended = run_python(WITHOUT_PRIVILEGE, workspace, home)
    assert ended.stderr == ""
    assert json.loads(ended.stdout) == {
        "problems": [
            ["memory/closed", "cannot be read (Permission denied)"],
            ["memory/unreadable.md", "cannot be read (Permission denied)"],
        ],
        "read memory/unreadable.md": "workspace",
        "add memory/unreadable.md": "workspace",
        "read memory/closed/x.md": "workspace",
        "add memory/closed/x.md": "workspace",
        "add to a closed workspace": "write_failed",
        "add to a hidden workspace": "workspace",
    }


ADDS_MANY = """
import json, sys
from kept import Memory
workspace, home, name, count = json.loads(sys.argv[1])
with Memory.open(workspace, home=home, settings={"memory_search.provider": "none"}) as memory:
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(count):
        text = f"begin {name} {number}\\n{name * 3000}\\nend {name} {number}"
        written = memory.add(text, to="memory/log.md")
        print(json.dumps([written.start_line, written.end_line, text]), flush=True)
"""


def test_entries_added_by_several_processes_at_once_all_land_whole(memory, workspace, home):
    names, count = "abcd", 15
    writers = [start_python(ADDS_MANY, json.dumps([str(workspace), str(home), name, count])) for name in names]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    entries = [json.loads(line) for writer in writers for line in writer.communicate(timeout=60)[0].splitlines()]
    assert [writer.returncode for writer in writers] == [0] * len(names)
    lines = (workspace / "memory/log.md").read_text().split("\n")
    assert len(entries) == len(names) * count
    for start, end, text in entries:
        assert "\n".join(lines[start - 1 : end]) == text
    assert len([line for line in lines if line not in ("", ENTRY_RULE)]) == 3 * len(names) * count


@pytest.mark.kills
def test_a_writer_that_was_killed_holds_no_lock(memory, workspace):
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from kept.base.durable import locked\n"
            "with locked(sys.argv[1], wait_s=5, purpose='testing'): print('held', flush=True); sys.stdin.readline()",
            workspace,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout.readline() == b"held\n"
        os.kill(holder.pid, signal.SIGKILL)
    assert memory().add("x").path.startswith("memory/")
