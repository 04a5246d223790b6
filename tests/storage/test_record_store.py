"""Books and logs of records: one that is damaged costs only itself, and two writers lose nothing."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from kept.base.values import frozen
from kept.errors import StorageConflict
from kept.storage.contract import Append, Blank, Storage, Write
from kept.storage.record_store import Book, RecordLog, load_key


@frozen
class Shelf:
    titles: tuple[str, ...] = ()


def parse(line: bytes) -> int:
    number = json.loads(line)
    if not isinstance(number, int):
        raise ValueError("it is not a number")
    return number


def test_changes_at_the_same_time_are_all_made(storage: Storage):
    def add(title: str) -> None:
        Book(storage, "shelf.json", Shelf).change(lambda shelf: Shelf((*shelf.titles, title)))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, map(str, range(20))))
    assert sorted(Book(storage, "shelf.json", Shelf).read().titles, key=int) == [*map(str, range(20))]


def test_a_book_is_read_again_only_after_a_change_and_a_damaged_one_is_copied_by_its_next_writer(storage: Storage):
    book, other = (Book(storage, "shelf.json", Shelf) for _ in range(2))
    assert book.read() == Shelf()
    other.change(lambda shelf: Shelf(("Emma",)))
    assert book.read() is book.read()
    assert book.read() == Shelf(("Emma",))
    storage.commit([Write("shelf.json", b'{"version": 1, "titles": ["Emma", 5]}')])
    assert (book.read(), [str(fault) for fault in book.faults]) == (
        Shelf(("Emma",)),
        ["shelf.json: title 2 cannot be read"],
    )
    other.change(lambda shelf: shelf)
    assert (book.read(), book.faults) == (Shelf(("Emma",)), [])
    assert storage.documents.read("shelf.json.damaged").data == b'{"version": 1, "titles": ["Emma", 5]}'


def test_lines_that_cannot_be_read_are_left_out_and_set_aside_once_by_a_rewrite(storage: Storage):
    for _ in range(2):
        storage.commit([Append("numbers.jsonl", [b"1", b"x", b"2", b"x", b'"y"', b"3"])])
    third = [*storage.logs.read("numbers.jsonl")][2]
    storage.commit([Blank("numbers.jsonl", third.start, b"")])
    log = RecordLog(storage, "numbers.jsonl", parse)
    assert [*log.read()] == [1, 3, 1, 2, 3]
    assert str(log.faults[2]) == "numbers.jsonl, line 5: it is not a number"
    log.rewrite([b"10"])
    log.append([b"11"], expected_end=log.end)
    assert [*RecordLog(storage, "numbers.jsonl", parse).read()] == [10, 11]
    assert [line.data for line in storage.logs.read("numbers.jsonl.damaged")] == [b"x", b'"y"']


def test_a_rewrite_after_another_process_appended_is_refused(storage: Storage):
    log = RecordLog(storage, "numbers.jsonl", parse)
    assert [*log.read()] == []
    storage.commit([Append("numbers.jsonl", [b"1"])])
    with pytest.raises(StorageConflict):
        log.rewrite([])


def test_a_key_is_made_once_and_again_if_it_is_damaged(storage: Storage):
    key = load_key(storage, "web.key")
    assert (len(key), load_key(storage, "web.key")) == (32, key)
    storage.commit([Write("web.key", key[:5])])
    assert len(load_key(storage, "web.key")) == 32
