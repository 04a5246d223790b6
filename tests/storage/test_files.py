"""A storage in a folder: kills, other programs, links, disks that are full or read-only."""

import errno
import json
import os
import shutil
from dataclasses import asdict
from types import SimpleNamespace

import pytest

from kept.errors import LeaseLost, PathRefused, StorageConflict, WorkspaceError, WriteFailed
from kept.storage.contract import OWN_FOLDER, Append, Blank, Erase, Lease, Move, Remove, Rewrite, Write, version_of
from kept.storage.files import steps
from kept.storage.files.file_storage import FileStorage
from kept.storage.files.steps import DISPLACED, JOURNAL, Step
from tests.support.files import write_file
from tests.support.killing import run_until


@pytest.fixture
def root(tmp_path):
    return tmp_path / "root"


@pytest.fixture
def storage(root):
    return FileStorage(str(root))


def dump(storage):
    """Return everything that a reader sees."""
    documents = {info.path: storage.documents.read(info.path).data for info in storage.documents.list()}
    logs = {
        info.name: [(line.start, line.data) for line in storage.logs.read(info.name)] for info in storage.logs.list()
    }
    return documents, logs


def fill(storage):
    storage.commit(
        [Write("a.md", b"1"), Write("b.md", b"2"), Write("c.md", b"3"), Append("s.jsonl", [b"1", b"22", b"3"])]
    )
    return [line.start for line in storage.logs.read("s.jsonl")]


COMMITS = {
    "a write": lambda at: [Write("a.md", b"new", version_of(b"1"))],
    "a new document": lambda at: [Write("deep/er/new.md", b"new")],
    "a line": lambda at: [Append("s.jsonl", [b'{"a": 1}'])],
    "several lines": lambda at: [Append("s.jsonl", [b'{"a": 1}', b'{"b": 2}'])],
    "a new log": lambda at: [Append("new.jsonl", [b'{"a": 1}', b'{"b": 2}'])],
    "a blank": lambda at: [Blank("s.jsonl", at[1], b"-")],
    "a rewritten log": lambda at: [Rewrite("s.jsonl", [b"22", b"4"], erase=True)],
    "a moved log": lambda at: [Move("s.jsonl", "s.jsonl.deleted-1")],
    "a move": lambda at: [Move("a.md", "deep/a.md")],
    "a note with its history": lambda at: [
        Write("objects/ab", b"1"),
        Append("changes.jsonl", [b'{"before": 1}']),
        Write("a.md", b"new", version_of(b"1")),
    ],
    "a forget": lambda at: [
        Blank("s.jsonl", at[0], b""),
        Erase("a.md"),
        Write("b.md", b"", erase=True),
        Blank("s.jsonl", at[1], b""),
    ],
    "many documents": lambda at: [Write(f"many/{number}.md", b"new") for number in range(17)],
    "everything": lambda at: [
        Write("a.md", b"new"),
        Remove("b.md"),
        Move("c.md", "d.md"),
        Append("s.jsonl", [b"4", b"5"]),
        Append("t.jsonl", [b"1"]),
        Write("e.md", b"5"),
    ],
}


@pytest.mark.parametrize("name", COMMITS)
def test_a_commit_that_is_killed_at_any_step_is_done_whole_or_not_at_all(tmp_path, name):
    template = FileStorage(str(tmp_path / "template"))
    changes = COMMITS[name](fill(template))
    before = dump(template)
    after_folder = tmp_path / "after"
    shutil.copytree(template.root, after_folder)
    done = FileStorage(str(after_folder))
    done.commit(changes)
    after = dump(done)
    assert before != after
    step, outcomes, is_finished = 0, [], False
    while not is_finished:
        folder = tmp_path / str(step)
        shutil.copytree(template.root, folder)
        storage = FileStorage(str(folder))
        is_finished = run_until(step, lambda storage=storage: storage.commit(changes))
        seen = dump(storage)
        assert seen in (before, after), step
        outcomes.append(seen == after)
        # Whoever commits next gets the same, and adds to it.
        storage.commit([Write("later.md", b"later"), Append("s.jsonl", [b"later"])])
        documents, logs = dump(storage)
        assert documents.pop("later.md") == b"later"
        assert logs["s.jsonl"].pop()[1] == b"later"
        torn = [path for path in documents if path.startswith(DISPLACED)]
        assert {path: data for path, data in documents.items() if path not in torn} == seen[0]
        assert {key: value for key, value in logs.items() if value} == {
            key: value for key, value in seen[1].items() if value
        }
        step += 1
    assert outcomes[-1]
    assert outcomes == sorted(outcomes), "done, then not done"


def test_the_next_writer_puts_a_torn_line_aside(root, storage):
    storage.commit([Append("s.jsonl", [b'{"a": 1}'])])
    with open(root / "s.jsonl", "ab") as file:
        file.write(b'{"torn": ')
    assert [line.data for line in storage.logs.read("s.jsonl")] == [b'{"a": 1}']
    storage.commit([Append("s.jsonl", [b'{"b": 2}'])])
    assert (root / "s.jsonl").read_bytes() == b'{"a": 1}\n{"b": 2}\n'
    assert (root / DISPLACED / version_of(b'{"torn": ')).read_bytes() == b'{"torn": '
    end = storage.logs.end("s.jsonl")
    with open(root / "s.jsonl", "ab") as file:
        file.write(b'{"whole": 3}')
    with pytest.raises(StorageConflict):  # a line that was not there before
        storage.commit([Append("s.jsonl", [b'{"c": 4}'], end)])
    storage.commit([Append("s.jsonl", [b'{"c": 4}'])])
    assert [json.loads(line.data) for line in storage.logs.read("s.jsonl")] == [
        {"a": 1},
        {"b": 2},
        {"whole": 3},
        {"c": 4},
    ]


def test_an_edit_by_another_program_is_a_change_and_another_version(root, storage):
    storage.commit([Write("a.md", b"1")])
    version = storage.documents.read("a.md").version
    _, cursor = storage.documents.changes()
    (root / "a.md").write_bytes(b"edited")
    (root / "new.md").write_bytes(b"new")
    with pytest.raises(StorageConflict):
        storage.commit([Write("a.md", b"2", version)])
    changed, _ = storage.documents.changes(cursor)
    assert {change.path for change in changed} == {"a.md", "new.md"}
    assert (root / "a.md").read_bytes() == b"edited"


def test_an_edit_within_one_tick_of_the_clock_is_not_missed(root, storage):
    (root).mkdir()
    (root / "a.md").write_bytes(b"1")
    _, cursor = storage.documents.changes()
    handle = os.open(root / "a.md", os.O_WRONLY)
    os.pwrite(handle, b"2", 0)  # the same size, and perhaps the same time
    os.close(handle)
    assert [change.path for change in storage.documents.changes(cursor)[0]] == ["a.md"]


def test_an_edit_between_a_kill_and_the_next_start_wins_and_the_lost_text_is_kept(root, storage):
    storage.commit([Write("a.md", b"1"), Write("b.md", b"2")])
    changes = [Append("s.jsonl", [b"x"]), Write("a.md", b"ours"), Write("b.md", b"ours too")]
    step, journal = 0, root / OWN_FOLDER / "journal"
    while not (journal.exists() and steps.decode_journal(journal.read_bytes())):
        assert not run_until(step, lambda: storage.commit(changes))
        step += 1
    (root / "a.md").write_bytes(b"edited")
    assert storage.documents.read("a.md").data == b"edited"
    assert storage.documents.read("b.md").data == b"ours too"
    assert [line.data for line in storage.logs.read("s.jsonl")] == [b"x"]
    assert (root / DISPLACED / version_of(b"ours")).read_bytes() == b"ours"


def test_an_editor_that_writes_in_the_middle_of_a_long_commit_loses_nothing(root, storage, monkeypatch):
    storage.commit([Write("a.md", b"1"), Write("b.md", b"2")])
    replace = os.replace

    def edit_first(source, target, **options):
        if target == "a.md":
            (root / "b.md").write_bytes(b"edited")
        replace(source, target, **options)

    monkeypatch.setattr(os, "replace", edit_first)
    storage.commit([Write("a.md", b"ours"), Write("b.md", b"ours too")])
    assert storage.documents.read("b.md").data == b"ours too"
    assert (root / DISPLACED / version_of(b"edited")).read_bytes() == b"edited"


@pytest.mark.parametrize("kind", ["file", "folder", "pipe", "directory"])
def test_nothing_is_read_or_written_through_a_link(tmp_path, root, storage, kind):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.md").write_bytes(b"secret")
    storage.commit([Write("memory/other.md", b"1")])
    path = "memory/link/a.md" if kind == "folder" else "memory/a.md"
    match kind:
        case "file":
            (root / "memory/a.md").symlink_to(outside / "a.md")
        case "folder":
            (root / "memory/link").symlink_to(outside)
        case "pipe":
            os.mkfifo(root / "memory/a.md")
        case "directory":
            (root / "memory/a.md").mkdir()
    with pytest.raises(PathRefused):
        storage.documents.read(path)
    for change in (Write(path, b"x"), Erase(path), Move("memory/other.md", path)):
        with pytest.raises((PathRefused, WriteFailed, StorageConflict)):
            storage.commit([change, Write("b.md", b"x")])
    assert [info.path for info in storage.documents.list()] == ["memory/other.md"]
    assert (outside / "a.md").read_bytes() == b"secret"
    assert os.listdir(outside) == ["a.md"]


def refuse(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_changes_nothing(storage, monkeypatch):
    start = fill(storage)
    before = dump(storage)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        for changes in COMMITS.values():
            with pytest.raises(WriteFailed):
                storage.commit(changes(start))
    assert dump(storage) == before
    with monkeypatch.context() as patch:
        patch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=100, f_frsize=4096))
        with pytest.raises(WriteFailed):
            storage.commit(COMMITS["everything"](start))
    assert dump(storage) == before


def test_a_disk_that_fails_in_the_middle_of_a_commit_lets_it_be_finished_later(storage, monkeypatch):
    changes = COMMITS["everything"](fill(storage))
    with monkeypatch.context() as patch:
        append = steps.append_in
        patch.setattr(
            steps, "append_in", lambda folder, name, data: refuse() if name == "t.jsonl" else append(folder, name, data)
        )
        with pytest.raises(WriteFailed, match="finished as soon as"):
            storage.commit(changes)
        assert storage.documents.read("a.md").data == b"new"
    documents, logs = dump(storage)
    assert documents == {"a.md": b"new", "d.md": b"3", "e.md": b"5"}
    assert [data for _, data in logs["s.jsonl"]] == [b"1", b"22", b"3", b"4", b"5"]


def test_a_commit_that_fails_after_mere_additions_is_taken_back(root, storage, monkeypatch):
    before = fill(storage) and dump(storage)
    write = steps.replacing_in
    with monkeypatch.context() as patch:
        patch.setattr(
            steps,
            "replacing_in",
            lambda folder, name, **options: refuse() if name == "a.md" else write(folder, name, **options),
        )
        with pytest.raises(WriteFailed) as failure:
            storage.commit([Write("new.md", b"1"), Append("s.jsonl", [b"4"]), Write("a.md", b"changed")])
    assert "finished" not in (failure.value.hint or "")
    assert not (root / OWN_FOLDER / "journal").exists()
    assert dump(storage) == before


def test_what_cannot_be_listed_is_reported_and_its_neighbours_are_listed(root, storage, monkeypatch):
    storage.commit([Write("a/1.md", b"1"), Write("b/2.md", b"2")])
    opened = os.open

    def open_others(path, flags, *args, dir_fd=None, **options):
        if path == "a":
            raise OSError(errno.EACCES, "Permission denied")
        return opened(path, flags, *args, dir_fd=dir_fd, **options)

    monkeypatch.setattr(os, "open", open_others)
    refused = []
    assert [info.path for info in storage.documents.list(on_refused=lambda path, exc: refused.append(path))] == [
        "b/2.md"
    ]
    assert refused == ["a"]
    with pytest.raises(WorkspaceError):
        list(storage.documents.list())


def test_the_storage_of_a_folder_of_others_writes_nothing(root):
    root.mkdir()
    (root / "a.md").write_bytes(b"1")
    storage = FileStorage(str(root), is_read_only=True)
    assert storage.documents.read("a.md").data == b"1"
    with pytest.raises(PathRefused):
        storage.commit([Write("a.md", b"2")])
    assert os.listdir(root) == ["a.md"]


def test_two_names_of_one_file_are_told(root, storage):
    storage.commit([Write("a.md", b"1"), Write("b.md", b"2")])
    os.link(root / "a.md", root / "c.md")
    os.symlink("b.md", root / "d.md")
    assert storage.documents.is_same("a.md", "c.md")
    assert storage.documents.is_same("b.md", "d.md")
    assert not storage.documents.is_same("a.md", "b.md")
    assert not storage.documents.is_same("a.md", "never.md")
    storage.commit([Write("a.md", b"more")])
    assert (root / "c.md").read_bytes() == b"1", "a file is replaced, never written through"


def test_a_read_only_folder_can_be_read(root, storage):
    fill(storage)
    before = dump(storage)
    shutil.rmtree(root / ".kept")
    root.chmod(0o500)
    try:
        assert dump(FileStorage(str(root))) == before
        if os.geteuid():  # root may write anyway
            with pytest.raises(WriteFailed):
                storage.commit([Write("a.md", b"new")])
    finally:
        root.chmod(0o700)


def test_a_missing_root_is_empty_and_made_by_the_first_commit(root, storage):
    assert dump(storage) == ({}, {})
    assert not root.exists()
    storage.commit([Write("a.md", b"1")])
    assert (root / "a.md").stat().st_mode & 0o777 == 0o600


def test_a_frozen_holder_cannot_write_after_its_successor(root, storage):
    with storage.lease("gateway", wait_s=0) as lease:
        # As if the lock had been lost, on a network file system: another process got the next number.
        (root / OWN_FOLDER / "leases/gateway").write_bytes(b"%020d" % (lease.number + 1))
        with pytest.raises(LeaseLost):
            storage.commit([Write("a.md", b"1")], lease=lease)
    with pytest.raises(LeaseLost):
        storage.commit([Write("a.md", b"1")], lease=Lease("never", 1))
    assert dump(storage) == ({}, {})


def test_a_lease_ends_with_its_process(storage):
    assert run_until(99, lambda: storage.lease("gateway", wait_s=0).__enter__())
    with storage.lease("gateway", wait_s=0) as lease:
        assert lease.number == 2


def journal_of(*steps: Step) -> bytes:
    heads = [{**asdict(step), "data": len(step.data)} for step in steps]
    body = json.dumps(heads).encode() + b"\n" + b"".join(step.data for step in steps)
    return version_of(body).encode() + b"\n" + body


def test_a_journal_that_somebody_else_made_reaches_nothing_outside_the_folder(tmp_path):
    root = tmp_path / "root"
    write_file(root / "a.md", "1")
    journals = [journal_of(Step("write", name, b"pwned")) for name in ("../evil.sh", "/evil.sh", ".kept/storage/lock")]
    hostile = b'[{"data": 0, "unknown": 1}]\n'
    journals.append(version_of(hostile).encode() + b"\n" + hostile)
    for journal in journals:
        (root / JOURNAL).parent.mkdir(parents=True, exist_ok=True)
        (root / JOURNAL).write_bytes(journal)
        assert FileStorage(str(root)).documents.read("a.md").data == b"1"
        assert not (root / JOURNAL).exists()
    assert not (tmp_path / "evil.sh").exists()


def test_a_link_in_place_of_the_journal_is_dropped(tmp_path):
    root = tmp_path / "root"
    (root / JOURNAL).parent.mkdir(parents=True)
    (root / JOURNAL).symlink_to("/nonexistent")
    storage = FileStorage(str(root))
    storage.commit([Append("s.jsonl", [b"1"])])
    assert [line.data for line in storage.logs.read("s.jsonl")] == [b"1"]


def test_a_link_at_a_name_of_the_journal_leaves_everything_else_readable(tmp_path):
    root = tmp_path / "root"
    write_file(root / "a.md", "1")
    write_file(tmp_path / "outside.md", "theirs")
    (root / "link.md").symlink_to(tmp_path / "outside.md")
    (root / JOURNAL).parent.mkdir(parents=True)
    (root / JOURNAL).write_bytes(journal_of(Step("write", "link.md", b"ours"), Step("write", "b.md", b"2")))
    storage = FileStorage(str(root))
    assert [storage.documents.read(path).data for path in ("a.md", "b.md")] == [b"1", b"2"]
    assert (tmp_path / "outside.md").read_text() == "theirs"
    assert [storage.documents.read(info.path).data for info in storage.documents.list(".kept/displaced")] == [b"ours"]
