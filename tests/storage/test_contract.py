"""What every storage does: the same tests run on all of them."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from kept.errors import DocumentNotFound, LeaseLost, LockBusy, NoteTooLarge, PathRefused, StorageConflict, UsageError
from kept.storage.contract import (
    ABSENT,
    START,
    Append,
    Blank,
    Erase,
    LogPosition,
    Move,
    Remove,
    Rewrite,
    Write,
    version_of,
)


def texts(storage, prefix=""):
    return {info.path: storage.documents.read(info.path).data for info in storage.documents.list(prefix)}


def lines(storage, name, start=START):
    return [line.data for line in storage.logs.read(name, start)]


def test_a_document_is_written_read_listed_and_removed(storage):
    storage.commit([Write("memory/ideas.md", b"one\n")])
    document = storage.documents.read("memory/ideas.md")
    assert (document.data, document.version) == (b"one\n", version_of(b"one\n"))
    (info,) = storage.documents.list()
    assert (info.path, info.size) == ("memory/ideas.md", 4)
    assert info == document.info == storage.documents.find("memory/ideas.md")
    with pytest.raises(NoteTooLarge):
        storage.documents.read("memory/ideas.md", max_bytes=3)
    storage.commit([Remove("memory/ideas.md")])
    assert texts(storage) == {}
    with pytest.raises(DocumentNotFound):
        storage.documents.read("memory/ideas.md")
    assert storage.documents.find("memory/ideas.md") is None


def test_documents_and_logs_are_listed_by_prefix_in_the_order_of_their_paths(storage):
    paths = ["a.md", "a/b.md", "a/b/c.md", "a0.md", "b/x.md"]
    storage.commit([Write(path, b"x") for path in reversed(paths)])
    storage.commit([Append("b/x.jsonl", [b"1"]), Append("a/y.jsonl", [b"2"])])
    assert [info.path for info in storage.documents.list()] == sorted(paths)
    assert [info.path for info in storage.documents.list("a/b")] == ["a/b.md", "a/b/c.md"]
    assert [info.name for info in storage.logs.list()] == ["a/y.jsonl", "b/x.jsonl"]
    assert [info.name for info in storage.logs.list("b")] == ["b/x.jsonl"]


def test_folders_and_documents_that_are_not_chosen_are_not_looked_at(storage):
    storage.commit(
        [Write(path, b"1") for path in ("a/b/1.md", "a/b/2.txt", "a/x/3.md", "a/x/y/4.md", "a/5.md", "z.md")]
    )
    seen = {}

    def choose(folder, names):
        seen[folder] = {name: is_folder for name, is_folder in names.items() if name != ".kept"}
        return [
            name
            for name, is_folder in names.items()
            if name.endswith(".md") or (is_folder and name not in ("x", ".kept"))
        ]

    assert [info.path for info in storage.documents.list(choose=choose)] == ["a/5.md", "a/b/1.md", "z.md"]
    assert seen == {
        "": {"a": True, "z.md": False},
        "a": {"b": True, "x": True, "5.md": False},
        "a/b": {"1.md": False, "2.txt": False},
    }
    seen.clear()
    assert [info.path for info in storage.documents.list("a/", choose=choose)] == ["a/5.md", "a/b/1.md"]
    assert set(seen) == {"a", "a/b"}


def test_a_copy_keeps_the_time_of_what_it_is_a_copy_of(storage):
    storage.commit([Write("a.md", b"1", modified_ns=1_600_000_000_000_000_000), Write("b.md", b"2")])
    assert storage.documents.find("a.md").modified_ns == 1_600_000_000_000_000_000
    assert storage.documents.find("b.md").modified_ns > 1_700_000_000_000_000_000


def test_a_document_is_moved_and_erased(storage):
    storage.commit([Write("a.md", b"12")])
    storage.commit([Move("a.md", "deep/er/b.md")])
    assert texts(storage) == {"deep/er/b.md": b"12"}
    storage.commit([Erase("deep/er/b.md"), Erase("never.md")])
    assert texts(storage) == {}


@pytest.mark.parametrize("change", [Write, Remove])
def test_a_change_of_another_version_is_refused(storage, change):
    storage.commit([Write("a.md", b"1")])
    arguments = (b"2",) if change is Write else ()
    for expected in (ABSENT, version_of(b"0")):
        with pytest.raises(StorageConflict):
            storage.commit([change("a.md", *arguments, expected)])
    assert texts(storage) == {"a.md": b"1"}
    storage.commit([change("a.md", *arguments, version_of(b"1"))])
    assert texts(storage) == ({"a.md": b"2"} if change is Write else {})


def test_a_move_never_replaces_a_document(storage):
    storage.commit([Write("a.md", b"1"), Write("b.md", b"2")])
    with pytest.raises(StorageConflict):
        storage.commit([Move("a.md", "b.md")])
    with pytest.raises(DocumentNotFound):
        storage.commit([Move("c.md", "d.md")])
    with pytest.raises(StorageConflict):
        storage.commit([Move("a.md", "c.md", version_of(b"0"))])
    assert texts(storage) == {"a.md": b"1", "b.md": b"2"}


def test_a_commit_makes_all_its_changes_or_none(storage):
    storage.commit([Write("a.md", b"1"), Append("log.jsonl", [b"x"])])
    changes = [Write("b.md", b"2"), Append("log.jsonl", [b"y"]), Remove("a.md"), Write("c.md", b"3", version_of(b"no"))]
    with pytest.raises(StorageConflict):
        storage.commit(changes)
    assert texts(storage) == {"a.md": b"1"}
    assert lines(storage, "log.jsonl") == [b"x"]
    storage.commit(changes[:3])
    assert texts(storage) == {"b.md": b"2"}
    assert lines(storage, "log.jsonl") == [b"x", b"y"]


def test_a_commit_without_changes_changes_nothing(storage):
    assert storage.commit([]) == {}
    assert texts(storage) == {}


# logs


def test_a_log_is_read_from_any_position_forwards_and_backwards(storage):
    end = storage.commit([Append("s.jsonl", [b"one", b"", b"three"])])["s.jsonl"]
    storage.commit([Append("s.jsonl", [b"four"])])
    found = list(storage.logs.read("s.jsonl"))
    assert [line.data for line in found] == [b"one", b"", b"three", b"four"]
    assert list(storage.logs.read_back("s.jsonl")) == found[::-1]
    assert lines(storage, "s.jsonl", end) == [b"four"]
    assert lines(storage, "s.jsonl", found[1].start) == [b"", b"three", b"four"]
    assert [line.end for line in found[:-1]] == [line.start for line in found[1:]]
    assert storage.logs.end("s.jsonl") == found[-1].end
    assert lines(storage, "none.jsonl") == list(storage.logs.read_back("none.jsonl")) == []


def test_long_logs_are_read_backwards_in_blocks(storage):
    added = [b"%d " % number * (number % 7 * 3_000) for number in range(60)]
    storage.commit([Append("long.jsonl", added)])
    assert [line.data for line in storage.logs.read_back("long.jsonl")] == added[::-1]
    assert lines(storage, "long.jsonl") == added


def test_lines_are_found_backwards_by_what_they_have(storage):
    storage.commit([Append("s.jsonl", [b"%d %s" % (number, b"x" * 50) for number in range(5_000)])])
    expected = [line for line in storage.logs.read_back("s.jsonl") if b"4321 " in line.data or b"17 x" in line.data]
    assert list(storage.logs.read_back("s.jsonl", having=[b"4321 ", b"17 x"])) == expected


def test_an_append_at_another_end_is_refused(storage):
    end = storage.commit([Append("s.jsonl", [b"one"], START)])["s.jsonl"]
    with pytest.raises(StorageConflict):
        storage.commit([Append("s.jsonl", [b"two"], START)])
    storage.commit([Append("s.jsonl", [b"two"], end)])
    assert lines(storage, "s.jsonl") == [b"one", b"two"]


def test_positions_survive_blanking(storage):
    storage.commit([Append("s.jsonl", [b'"aaaa"', b'"bbbb"', b'"cccc"', b'"dddd"'])])
    found = list(storage.logs.read("s.jsonl"))
    storage.commit([Blank("s.jsonl", found[1].start, b'""'), Blank("s.jsonl", found[2].start, b"")])
    assert lines(storage, "s.jsonl") == [b'"aaaa"', b'""    ', b"      ", b'"dddd"']
    assert lines(storage, "s.jsonl", found[3].start) == [b'"dddd"']
    assert [line.start for line in storage.logs.read_back("s.jsonl", found[2].end)] == [
        found[2].start,
        found[1].start,
        found[0].start,
    ]


def test_the_lines_of_a_rewritten_log_come_after_its_old_end(storage):
    end = storage.commit([Append("s.jsonl", [b"one", b"two"])])["s.jsonl"]
    for added in ([b"three", b"four"], [], [b"five"]):
        with pytest.raises(StorageConflict):
            storage.commit([Rewrite("s.jsonl", added, LogPosition(1))])
        new_end = storage.commit([Rewrite("s.jsonl", added, end, erase=True)])["s.jsonl"]
        assert lines(storage, "s.jsonl") == lines(storage, "s.jsonl", end) == added
        assert [line.data for line in storage.logs.read_back("s.jsonl")] == added[::-1]
        assert new_end.offset == end.offset + sum(len(line) + 1 for line in added)
        assert storage.logs.end("s.jsonl") == new_end
        end = new_end
    (line,) = storage.logs.read("s.jsonl")
    storage.commit([Blank("s.jsonl", line.start, b"-")])
    storage.commit([Append("s.jsonl", [b"six"], end)])
    assert lines(storage, "s.jsonl") == [b"-   ", b"six"]
    storage.commit([Rewrite("new.jsonl", [b"1"])])
    assert storage.logs.end("new.jsonl") == LogPosition(2)


def test_a_log_tells_whether_it_has_only_grown(storage):
    def generations() -> set[int]:
        listed = {info.name: info.generation for info in storage.logs.list()}
        return {storage.logs.find("s.jsonl").generation, listed["s.jsonl"]}

    storage.commit([Append("s.jsonl", [b"one", b"two"]), Append("other.jsonl", [b"1"])])
    storage.commit([Append("s.jsonl", [b"three"])])
    assert generations() == {0}
    first, second = list(storage.logs.read("s.jsonl"))[:2]
    state = storage.logs.find("s.jsonl").state
    storage.commit([Blank("s.jsonl", first.start, b""), Blank("s.jsonl", second.start, b"")])
    assert generations() == {1}
    assert storage.logs.find("s.jsonl").state != state
    storage.commit([Rewrite("s.jsonl", [b"four"])])
    assert generations() == {2}
    assert storage.logs.find("other.jsonl").generation == 0


def test_only_a_whole_line_is_blanked(storage):
    storage.commit([Append("s.jsonl", [b"one", b"two"])])
    inside, second = LogPosition(1), list(storage.logs.read("s.jsonl"))[1].start
    for position in (inside, LogPosition(99)):
        with pytest.raises(StorageConflict):
            storage.commit([Blank("s.jsonl", position, b"")])
    with pytest.raises(UsageError):
        storage.commit([Blank("s.jsonl", second, b"longer than before")])
    assert lines(storage, "s.jsonl") == [b"one", b"two"]
    assert lines(storage, "s.jsonl", inside) == [b"two"]


def test_a_log_is_found_moved_and_removed_as_a_whole(storage):
    storage.commit([Append("s.jsonl", [b"one"]), Append("t.jsonl", [b"two"])])
    assert storage.logs.find("s.jsonl").size == 4
    assert storage.logs.find("none.jsonl") is None
    storage.commit([Move("s.jsonl", "old/s.jsonl.deleted-1"), Erase("t.jsonl")])
    assert [info.name for info in storage.logs.list()] == ["old/s.jsonl.deleted-1"]
    assert lines(storage, "old/s.jsonl.deleted-1") == [b"one"]
    assert texts(storage) == {}
    for change in (Move("old/s.jsonl.deleted-1", "a.md"), Move("a.md", "a.jsonl")):
        with pytest.raises(PathRefused):
            storage.commit([change])
    storage.commit([Remove("old/s.jsonl.deleted-1")])
    assert list(storage.logs.list()) == []


# what is not allowed


@pytest.mark.parametrize(
    "path",
    [
        "", "/etc/passwd", "../out.md", "a/../../out.md", "a//b.md", "./a.md", "a/", "a\0.md", "x" * 256,
        "y/" * 1_600 + "a", ".kept/storage/lock", ".kept/storage", "\ud83d.md",
    ],
)  # fmt: skip
def test_names_that_are_not_inside_the_storage_are_refused(storage, path):
    for change in (Write(path, b"x"), Remove(path), Move("a.md", path), Erase(path)):
        with pytest.raises(PathRefused):
            storage.commit([change])
    with pytest.raises(PathRefused):
        storage.documents.read(path)
    with pytest.raises(PathRefused):
        storage.commit([Append(f"{path}/a.jsonl", [b"x"])])
    assert texts(storage) == {}


def test_a_commit_that_contradicts_itself_is_refused(storage):
    for changes in (
        [Write("a.md", b"1"), Write("a.md", b"2")],
        [Write("a.md", b"1"), Move("b.md", "a.md")],
        [Append("a.jsonl", [b"1"]), Rewrite("a.jsonl", [])],
        [Append("a.jsonl", [b"two\nlines"])],
    ):
        with pytest.raises(UsageError):
            storage.commit(changes)
    for change in (Write("a.jsonl", b""), Append("a.md", [b""])):
        with pytest.raises(PathRefused):
            storage.commit([change])
    assert texts(storage) == {}


# cursors, leases, many at once


def test_changes_are_told_by_cursor(storage):
    storage.commit([Write("a.md", b"1"), Write("b.md", b"2")])
    changed, cursor = storage.documents.changes()
    assert {change.path for change in changed} == {"a.md", "b.md"}
    storage.commit([Write("a.md", b"3"), Move("b.md", "c.md")])
    changed, cursor = storage.documents.changes(cursor)
    assert {change.path: change.info is None for change in changed} == {"a.md": False, "b.md": True, "c.md": False}
    storage.commit([Remove("a.md"), Append("s.jsonl", [b"1"])])
    changed, _ = storage.documents.changes(cursor)
    assert [change.path for change in changed if change.info is None] == ["a.md"]


def test_a_lease_has_one_holder_and_a_higher_number_each_time(storage):
    with storage.lease("gateway", wait_s=0) as first:
        storage.commit([Write("a.md", b"1")], lease=first)
        with pytest.raises(LockBusy), storage.lease("gateway", wait_s=0):
            pass
        with storage.lease("index", wait_s=0) as other:
            storage.commit([Write("b.md", b"1")], lease=other)
    with pytest.raises(LeaseLost):
        storage.commit([Write("a.md", b"2")], lease=first)
    with storage.lease("gateway", wait_s=0) as second:
        assert second.number > first.number
        with pytest.raises(LeaseLost):
            storage.commit([Write("a.md", b"3")], lease=first)
        storage.commit([Write("a.md", b"4")], lease=second)
    assert texts(storage)["a.md"] == b"4"


def test_many_at_once_lose_nothing(storage):
    def add(number):
        storage.commit([Append("s.jsonl", [b"%d" % number])])
        while True:
            document = storage.documents.read("count.md")
            try:
                storage.commit([Write("count.md", b"%d" % (int(document.data) + 1), document.version)])
                return
            except StorageConflict:
                pass

    storage.commit([Write("count.md", b"0")])
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(40)))
    assert storage.documents.read("count.md").data == b"40"
    assert sorted(map(int, lines(storage, "s.jsonl"))) == list(range(40))
