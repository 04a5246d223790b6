"""A whole note is edited, in its encoding and with its line ends."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kept.base.digest import digest_bytes
from kept.base.file_lock import locked
from kept.errors import LockBusy, NoteConflict, NoteTooLarge, PathRefused
from kept.notes.line_edit import replace_text, save_text
from kept.notes.workspace import Workspace, decode
from kept.storage.contract import OWN_FOLDER
from kept.storage.files import file_storage
from tests.support.files import write_file
from tests.support.workspaces import open_memory


@pytest.mark.parametrize(
    ("raw", "text", "result"),
    [
        (b"a\nb\n", "a\nc\n", b"a\nc\n"),
        (b"a\r\nb\r\n", "a\nc\n", b"a\r\nc\r\n"),
        (b"a\r\nb\n", "a\nx\nb\n", b"a\r\nx\r\nb\r\n"),
        (b"a\rb\r", "a\nx\nb\n", b"a\rx\rb\r"),
        (b"\xef\xbb\xbfa\nb\n", "a\nc\n", b"\xef\xbb\xbfa\nc\n"),
        (b"a\nb", "a\nb\nc", b"a\nb\nc"),
        (b"a\r\nb", "a\nb\nc\n", b"a\r\nb\r\nc\r\n"),
        (b"a\nb\n", "a\nb", b"a\nb"),
        (b"a\nb\n", "", b""),
        (b"", "a\n", b"a\n"),
        (b"\n\n", "\n\n\n", b"\n\n\n"),
    ],
)
def test_a_text_gets_the_line_ends_of_the_note(raw, text, result):
    assert replace_text(raw, text, "n.md") == result


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_an_encoding_with_a_mark_is_kept(codec):
    raw = "\ufeffa\r\nß\r\n".encode(codec)
    assert replace_text(raw, "a\nß\n水\n", "n.md") == "\ufeffa\r\nß\r\n水\r\n".encode(codec)


def test_a_note_with_bytes_that_cannot_be_shown_is_not_edited():
    for raw in (b"caf\xe9 one\nb\n", b"\xff\xfea\0b"):
        with pytest.raises(PathRefused, match="cannot be edited"):
            replace_text(raw, "two\n", "n.md")


LINES = st.lists(
    st.tuples(st.sampled_from([b"", b"a", "ü".encode(), b"\0"]), st.sampled_from([b"\n", b"\r\n", b"\r"])), max_size=8
)


@given(LINES, st.sampled_from([b"", b"\xef\xbb\xbf"]), st.lists(st.sampled_from(["", "a", "水"]), max_size=8))
def test_the_note_reads_as_the_text_that_was_saved_and_is_the_same_if_that_is(lines, mark, new):
    raw = mark + b"".join(text + end for text, end in lines)
    assert replace_text(raw, decode(raw)[0].replace("\n", "\r\n"), "n.md") == raw
    assert decode(replace_text(raw, "\n".join(new), "n.md"))[0] == "\n".join(new)


def test_a_note_is_saved_only_if_it_is_the_one_that_was_opened(tmp_path):
    workspace = Workspace.at(str(tmp_path))
    file = write_file(tmp_path / "memory/n.md", b"a\r\nb\r\n")
    opened = workspace.read("memory/n.md", max_bytes=1_000)
    assert opened.version == digest_bytes(b"a\r\nb\r\n")
    assert save_text(workspace, "memory/n.md", "a\nc\n", digest=opened.version, max_bytes=1_000)
    assert file.read_bytes() == b"a\r\nc\r\n"
    with pytest.raises(NoteConflict):
        save_text(workspace, "memory/n.md", "a\nd\n", digest=opened.version, max_bytes=1_000)
    assert file.read_bytes() == b"a\r\nc\r\n"
    again = workspace.read("memory/n.md", max_bytes=1_000)
    assert not save_text(workspace, "memory/n.md", "a\nc\n", digest=again.version, max_bytes=1_000)
    with pytest.raises(NoteTooLarge):
        save_text(workspace, "memory/n.md", "x" * 2_000, digest=again.version, max_bytes=1_000)


def test_an_extra_path_is_not_edited(tmp_path):
    extra = write_file(tmp_path / "extra/n.md", b"a\n")
    (tmp_path / "ws").mkdir()
    workspace = replace(Workspace.at(str(tmp_path / "ws")), extra_paths=(str(tmp_path / "extra"),))
    opened = workspace.read(str(extra), max_bytes=1_000)
    with pytest.raises(PathRefused, match="never written"):
        save_text(workspace, str(extra), "b\n", digest=opened.version, max_bytes=1_000)


def test_a_busy_storage_is_no_reason_to_write_a_note_without_its_history(tmp_path, monkeypatch):
    monkeypatch.setattr(file_storage, "LOCK_WAIT_S", 0.05)
    with open_memory(tmp_path) as memory:
        memory.add("The parrot is called Kiwi.")
        lock = tmp_path / "workspace" / OWN_FOLDER / "lock"
        with locked(str(lock), wait_s=0, purpose="writing"), pytest.raises(LockBusy):
            memory.add("Ada likes tea.")
        assert len([*memory.history.changes()]) == 1
    assert "Ada" not in "".join(note.read_text() for note in (tmp_path / "workspace").rglob("*.md"))
