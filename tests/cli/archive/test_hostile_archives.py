"""An archive that was made to do harm is refused with one line, and changes nothing."""

import gzip
import os
import tarfile
from pathlib import Path

import pytest

from kept.cli.archive.archive_file import check_archive
from kept.errors import ArchiveDamaged, ArchiveError, ArchiveRefused
from tests.support.archives import agent_record, craft, file_record, manifest, plain, restore, special
from tests.support.files import tree_of, write_file

NAMES = [
    "/etc/passwd", "../escape.md", "notes/main/../../escape.md", "notes/main/./a.md", "notes/main//a.md",
    "notes/main/", "notes/..", "notes/main", "notes/../main/a.md", "notes/-bad name/a.md", "elsewhere/main/a.md",
    "config.yaml/a", "notes/main/.git/hooks/post-commit", "notes/main/.obsidian/plugins/x.js", "notes/main/.env",
    "notes/main/memory/.hidden.md", "notes/main/.kept/.hidden", "notes/main/.kept/index.sqlite",
    "notes/main/.kept/storage/journal", "agents/main/index.sqlite", "agents/main/index.sqlite-wal",
    "agents/main/index.sqlite.lock", "agents/main/watcher-ab.jsonl", "agents/main/service.env",
    "agents/main/gateway-token.json", "agents/main/.bashrc", "agents/main/run.sh", "agents/main/a/b/c/d/e.jsonl",
    "service.env", f"notes/main/{'x' * 256}.md", "elsewhere/two\nlines.md",
    f"notes/main/{'/'.join(['d' * 200] * 30)}/a.md",
]  # fmt: skip
KINDS = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE]


@pytest.fixture
def refused(tmp_path):
    """Restore an archive over a home with notes, and return the error. Nothing may have changed."""
    home = tmp_path / "home"
    write_file(home / "workspace/MEMORY.md", "Mine.\n")

    def run(path: Path) -> ArchiveError:
        before = tree_of(tmp_path)
        with pytest.raises(ArchiveError) as raised:
            restore(path, home)
        assert tree_of(tmp_path) == before
        assert "\n" not in str(raised.value)
        assert raised.value.hint
        return raised.value

    return run


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_no_export_writes_is_refused(refused, tmp_path, name):
    good = plain("notes/main/memory/good.md", b"Good.\n")
    info = tarfile.TarInfo(name)
    assert isinstance(refused(craft(tmp_path / "bad.tar", good, (info, b""))), ArchiveRefused)


@pytest.mark.parametrize("kind", KINDS)
def test_links_devices_pipes_and_folders_are_refused(refused, tmp_path, kind):
    error = refused(craft(tmp_path / "bad.tar", special("notes/main/memory/a.md", kind, "/etc/passwd")))
    assert isinstance(error, ArchiveRefused)


def test_a_name_that_is_there_twice_is_refused(refused, tmp_path):
    first, second = plain("notes/main/a.md", b"one"), plain("notes/main/a.md", b"two")
    assert "twice" in refused(craft(tmp_path / "bad.tar", first, second)).message


def test_a_file_that_is_also_a_folder_is_refused(refused, tmp_path):
    members = plain("notes/main/memory/a", b"x"), plain("notes/main/memory/a/b.md", b"y")
    assert "both a file and a folder" in refused(craft(tmp_path / "bad.tar", *members)).message


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"notes/main/a.md": file_record(b"other")}, "does not match its checksum"),
        ({"notes/main/a.md": file_record(b"text", size=5)}, "does not match its checksum"),
        ({}, "is not in the manifest"),
        ({"notes/main/a.md": file_record(b"text"), "notes/main/b.md": file_record(b"")}, "is missing"),
        ({"notes/main/a.md": file_record(b"text", mtime_ns=1 << 80)}, "manifest is damaged"),
        ({"notes/main/a.md": file_record(b"text", sha256=None)}, "manifest is damaged"),
        ({"notes/main/a.md": {}}, "manifest is damaged"),
        (["notes/main/a.md"], "manifest is damaged"),
    ],
)
def test_a_manifest_that_does_not_agree_is_refused(refused, tmp_path, files, reason):
    error = refused(craft(tmp_path / "bad.tar", plain("notes/main/a.md", b"text"), files=files))
    assert isinstance(error, ArchiveDamaged)
    assert reason in error.message


FILES = {"notes/main/a.md": file_record(b"text")}


@pytest.mark.parametrize(
    "listed",
    [
        b"{}",
        b"not json",
        b"[" * 100_000,
        manifest(FILES, version=3),
        manifest(FILES, format="other"),
        manifest(FILES, agents="main"),
        manifest(FILES, agents=[{"name": "main"}]),
        manifest(FILES, agents=[agent_record(name="../x")]),
        manifest(FILES, agents=[agent_record(layout="x")]),
        manifest(FILES, agents=[agent_record(notes=1)]),
        manifest(FILES, created="yesterday"),
        manifest(FILES, created="0001-01-01T00:00:00+14:00"),
        manifest(FILES, created="2026-03-02T00:00:00"),
    ],
)
def test_a_malformed_manifest_is_refused(refused, tmp_path, listed):
    refused(craft(tmp_path / "bad.tar", plain("notes/main/a.md", b"text"), listed=listed))


def test_something_after_the_manifest_is_refused(refused, tmp_path):
    members = plain("manifest.json", manifest({})), plain("notes/main/a.md", b"text")
    assert "follows its manifest" in refused(craft(tmp_path / "bad.tar", *members)).message


@pytest.mark.parametrize("size", [1 << 28, 1 << 33, 1 << 40])
def test_a_bomb_is_refused_before_it_is_unpacked(refused, tmp_path, size):
    info = tarfile.TarInfo("notes/main/memory/a.md")
    info.size = size
    path = write_file(tmp_path / "bomb.tar.gz", gzip.compress(info.tobuf() + bytes(1 << 20)))
    assert "unpacks to far more" in refused(path).message


def test_a_large_extended_header_is_refused_without_reading_it_into_memory(refused, tmp_path):
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 1 << 30
    data = gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20))
    assert "header in it is too large" in refused(write_file(tmp_path / "bad.tar.gz", data)).message
    for text in (b"9999999 path=x\n", b"x path=x\n", b"3 p\n", b"24 GNU.sparse.size=1000\n", b"11 \xff\xfe=a\xff\n\n"):
        info.size = len(text)
        file = plain("notes/main/a.md", b"text")[0].tobuf() + b"text".ljust(512, b"\0")
        refused(write_file(tmp_path / "bad.tar", info.tobuf() + text.ljust(512, b"\0") + file + bytes(1024)))


def test_a_sparse_file_is_refused(refused, tmp_path):
    info = tarfile.TarInfo("notes/main/a.md")
    info.pax_headers = {"GNU.sparse.map": "0,4", "GNU.sparse.size": "1000000", "GNU.sparse.name": "notes/main/a.md"}
    info.size = 4
    assert "not a plain file" in refused(craft(tmp_path / "bad.tar", (info, b"text"))).message


def test_a_link_in_the_workspace_is_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "home/workspace").mkdir(parents=True)
    os.symlink(outside, tmp_path / "home/workspace/memory")
    craft(tmp_path / "kept.tar", plain("notes/main/memory/a.md", b"text"), plain("notes/main/MEMORY.md", b"text"))
    report = restore(tmp_path / "kept.tar", tmp_path / "home")
    assert [problem.reason for problem in report.kept] == ["something that is not a file is in its place"]
    assert tree_of(outside) == {}
    assert (tmp_path / "home/workspace/MEMORY.md").exists()


@pytest.mark.parametrize("name", ["two\nlines.md", "\x1b]52;c;eA==\x07.md", "folder\u2028/a.md", "SOUL\u200b.md"])
def test_a_note_whose_name_kept_would_not_give_is_left_out_and_named(tmp_path, name):
    home = tmp_path / "home"
    craft(tmp_path / "kept.tar", plain(f"notes/main/memory/{name}", b"text"), plain("notes/main/MEMORY.md", b"text"))
    report = restore(tmp_path / "kept.tar", home)
    assert [problem.reason.startswith("its name ") for problem in report.kept] == [True]
    assert tree_of(home / "workspace").keys() == {"MEMORY.md"}
    write_file(home / "workspace/memory" / name, "text")
    assert restore(tmp_path / "kept.tar", home).kept == ()


def test_what_is_not_an_archive_is_refused(refused, tmp_path):
    os.mkfifo(tmp_path / "pipe.tar")
    for path in (tmp_path / "nothing.tar", tmp_path, write_file(tmp_path / "text.tar", "x" * 3000)):
        with pytest.raises(ArchiveRefused):
            check_archive(str(path))
    with pytest.raises(ArchiveRefused, match="not a file"):
        check_archive(str(tmp_path / "pipe.tar"))
    with tarfile.open(tmp_path / "other.tar", "w") as tar:
        tar.addfile(*plain("other/a.md"))
    with pytest.raises(ArchiveRefused, match="not a name that 'kept export' gives"):
        check_archive(str(tmp_path / "other.tar"))
