"""An archive that was made to do harm is refused with one line, and changes nothing."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest

from kept.archive.examination import examine_archive
from kept.archive.unpacking import restore_archive
from kept.errors import ArchiveDamaged, ArchiveError, ArchiveIncomplete, ArchiveRefused
from tests.support.archives import craft, file_record, header, plain, special
from tests.support.files import tree_of, write_file

NAMES = [
    "/etc/passwd",
    "../escape.md",
    "notes/main/../../escape.md",
    "notes/main/./a.md",
    "notes/main//a.md",
    "notes/main/",
    "notes/..",
    "notes/main",
    "notes/../main/a.md",
    "notes/-bad name/a.md",
    "elsewhere/main/a.md",
    "config.yaml/a",
    "notes/main/.git/hooks/post-commit",
    "notes/main/.obsidian/plugins/x.js",
    "notes/main/.env",
    "notes/main/memory/.hidden.md",
    "notes/main/.kept/.hidden",
    "notes/main/.kept/index.sqlite",
    "agents/main/index.sqlite",
    "agents/main/index.sqlite-wal",
    "agents/main/index.sqlite.lock",
    "agents/main/watcher-ab.jsonl",
    "agents/main/service.env",
    "agents/main/gateway-token.json",
    "agents/main/.bashrc",
    "agents/main/run.sh",
    "agents/main/a/b/c/d/e.jsonl",
    "service.env",
    f"notes/main/{'x' * 256}.md",
    "elsewhere/two\nlines.md",
    f"notes/main/{'/'.join(['d' * 200] * 30)}/a.md",
]
KINDS = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE]


@pytest.fixture
def refused(tmp_path):
    """Restore an archive over a home with notes, and return the error. Nothing may have changed."""
    home = tmp_path / "home"
    write_file(home / "workspace/MEMORY.md", "Mine.\n")

    def run(path: Path) -> ArchiveError:
        before = tree_of(tmp_path)
        with pytest.raises(ArchiveError) as raised:
            restore_archive(str(path), home=str(home), overwrite=True)
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
    one = [file_record("notes/main/a.md", b"one")]
    assert "twice" in refused(craft(tmp_path / "bad.tar", first, second, records=one)).message
    assert "twice" in refused(craft(tmp_path / "bad2.tar", first, records=one * 2)).message


def test_a_file_that_is_also_a_folder_is_refused(refused, tmp_path):
    members = plain("notes/main/memory/a", b"x"), plain("notes/main/memory/a/b.md", b"y")
    assert "both a file and a folder" in refused(craft(tmp_path / "bad.tar", *members)).message


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([file_record("notes/main/a.md", b"other")], "does not match its checksum"),
        ([file_record("notes/main/a.md", b"text", size=5)], "does not match its checksum"),
        ([], "is not in the manifest"),
        ([file_record("notes/main/a.md", b"text"), file_record("notes/main/b.md", b"")], "is missing"),
        ([file_record("notes/main/a.md", b"text", stored=False)], "says that it is not"),
        ([file_record("notes/main/a.md", b"text", size=-1)], "manifest is damaged"),
        ([file_record("notes/main/a.md", b"text", mtimeNs=1 << 80)], "manifest is damaged"),
        ([file_record("notes/main/a.md", b"text", sha256="zz")], "manifest is damaged"),
        ([file_record("notes/main/a.md", b"text", stored=1)], "manifest is damaged"),
        ([{"path": "notes/main/a.md"}], "manifest is damaged"),
    ],
)
def test_a_manifest_that_does_not_agree_is_refused(refused, tmp_path, records, reason):
    error = refused(craft(tmp_path / "bad.tar", plain("notes/main/a.md", b"text"), records=records))
    assert isinstance(error, ArchiveDamaged)
    assert reason in error.message


@pytest.mark.parametrize(
    "head",
    [
        b"{}",
        b"not json",
        b"[" * 100_000,
        header(version=2),
        header(format="other"),
        header(agents="main"),
        header(agents=[{"name": "main"}]),
        header(agents=[{"name": "../x", "notes": "main", "workspace": None, "layout": "kept"}]),
        header(agents=[{"name": "main", "notes": "main", "workspace": None, "layout": "x"}]),
        header(base={"id": 1}),
        header(id=None),
        header(created="yesterday"),
        header(created="0001-01-01T00:00:00+14:00"),
        header(created="2026-03-02T00:00:00"),
    ],
)
def test_a_malformed_header_is_refused(refused, tmp_path, head):
    refused(craft(tmp_path / "bad.tar", plain("notes/main/a.md", b"text"), head=head))


def test_a_bomb_is_refused(refused, tmp_path):
    head = plain("archive.json", header())[0].tobuf() + header() + bytes(-len(header()) % 512)
    info = tarfile.TarInfo("notes/main/memory/a.md")
    info.size = 1 << 40
    raw = io.BytesIO()
    with gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=1) as out:
        out.write(head + info.tobuf())
        for _ in range(110):
            out.write(bytes(1 << 20))
    path = write_file(tmp_path / "bomb.tar.gz", raw.getvalue())
    assert "unpacks to far more" in refused(path).message


def test_a_large_extended_header_is_refused_without_reading_it_into_memory(refused, tmp_path):
    info = tarfile.TarInfo("archive.json")
    info.type, info.size = tarfile.XHDTYPE, 1 << 40
    raw = info.tobuf(tarfile.GNU_FORMAT)
    assert "extended header" in refused(write_file(tmp_path / "bad.tar", raw + bytes(2048))).message
    for text in (b"9999999 path=x\n", b"x path=x\n", b"3 p\n", b"24 GNU.sparse.size=1000\n", b"11 \xff\xfe=a\xff\n\n"):
        info.size = len(text)
        data = info.tobuf() + text.ljust(512, b"\0") + plain("archive.json")[0].tobuf() + bytes(1024)
        refused(write_file(tmp_path / "bad.tar", data))


def test_an_archive_without_its_base_is_refused_and_names_it(refused, tmp_path):
    base = {"id": "cd", "file": "full.tar", "created": "2026-03-01T00:00:00+00:00"}
    error = refused(craft(tmp_path / "bad.tar", plain("notes/main/a.md", b"text"), head=header(base=base)))
    assert isinstance(error, ArchiveIncomplete)
    assert "full.tar of 2026-03-01" in error.message
    craft(tmp_path / "full.tar", head=header(id="other"))
    assert isinstance(refused(tmp_path / "bad.tar"), ArchiveIncomplete)
    craft(tmp_path / "circle.tar", head=header(base={"id": "ab", "file": "circle.tar", "created": "x"}))
    assert "circle" in refused(tmp_path / "circle.tar").message
    up = {"id": "cd", "file": "../full.tar", "created": "x"}
    write_file(tmp_path / "full.tar", b"")
    assert isinstance(refused(craft(tmp_path / "up.tar", head=header(base=up))), ArchiveIncomplete)


def test_a_base_that_lacks_a_file_is_refused(refused, tmp_path):
    craft(tmp_path / "full.tar", plain("notes/main/a.md", b"old"), head=header(id="full"))
    base = {"id": "full", "file": "full.tar", "created": "x"}
    absent = [file_record("notes/main/a.md", b"new", stored=False)]
    error = refused(craft(tmp_path / "inc.tar", head=header(base=base), records=absent))
    assert "in none of the archives" in error.message


def test_an_archive_does_not_choose_the_folder_that_its_notes_go_to(tmp_path):
    target = tmp_path / "chosen"
    agents = [{"name": "main", "notes": "main", "workspace": str(target), "layout": "vault"}]
    craft(tmp_path / "bad.tar", plain("notes/main/run.desktop", b"x"), head=header(agents=agents))
    restore_archive(str(tmp_path / "bad.tar"), home=str(tmp_path / "home"))
    assert not target.exists()
    assert (tmp_path / "home/workspace/run.desktop").exists()


def test_a_link_in_the_workspace_is_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "home/workspace").mkdir(parents=True)
    os.symlink(outside, tmp_path / "home/workspace/memory")
    craft(tmp_path / "kept.tar", plain("notes/main/memory/a.md", b"text"), plain("notes/main/MEMORY.md", b"text"))
    report = restore_archive(str(tmp_path / "kept.tar"), home=str(tmp_path / "home"), overwrite=True)
    assert [problem.reason for problem in report.kept] == ["a symbolic link is in its place"]
    assert tree_of(outside) == {}
    assert (tmp_path / "home/workspace/MEMORY.md").exists()


def test_what_is_not_an_archive_is_refused(refused, tmp_path):
    os.mkfifo(tmp_path / "pipe.tar")
    for path in (tmp_path / "nothing.tar", tmp_path, write_file(tmp_path / "text.tar", "x" * 3000)):
        with pytest.raises(ArchiveRefused):
            examine_archive(str(path))
    with pytest.raises(ArchiveRefused, match="not a file"):
        examine_archive(str(tmp_path / "pipe.tar"))
    with tarfile.open(tmp_path / "other.tar", "w") as tar:
        tar.addfile(*plain("notes/main/a.md"))
    with pytest.raises(ArchiveRefused, match="not an archive of Kept"):
        examine_archive(str(tmp_path / "other.tar"))
