"""One bad record in a ledger or in the batch book: the others count."""

import json
import os
from pathlib import Path

import pytest

from kept.base.reports import ModelSpending, Spending
from kept.index.batches import BatchBook, BatchJob, BatchProblem, read_book
from kept.models.ledger import Ledger, tokens_of_day
from kept.storage.files.file_storage import FileStorage
from kept.storage.record_store import Book, dump_book
from kept.testing import FrozenClock
from tests.support.damaged_commands import Commands
from tests.support.mutations import flipped_bits, wrong_fields


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture
def folder(home: Path) -> Path:
    made = home / "agents" / "main"
    made.mkdir(parents=True)
    return made


def model_line(**more) -> ModelSpending:
    return ModelSpending("good", "m", "reply", "2026-03-14", **more)


def test_absurd_numbers_in_a_ledger_use_up_no_budget(home, folder):
    ledger = Ledger(FileStorage(str(folder)), "models.jsonl", FrozenClock(), ModelSpending)
    assert ledger.record(model_line(calls=1, input=100)) is None
    victim = json.dumps({"provider": "victim", "model": "m", "purpose": "reply", "day": "2026-03-14", "input": 5})
    wrong = [*wrong_fields(json.loads(victim)), *flipped_bits(victim.encode())]
    with (folder / "models.jsonl").open("ab") as file:
        file.write(b"\n".join(wrong) + b"\n")
    assert ledger.record(model_line(calls=1, input=20)) is None
    spent = ledger.by_day()
    (good,) = [line for line in spent if line.provider == "good"]
    assert (good.calls, good.input) == (2, 120)
    assert 120 <= tokens_of_day(spent, "2026-03-14") < 120 + 100 * len(wrong)


def test_what_is_recorded_after_a_torn_line_counts(folder):
    ledger = Ledger(FileStorage(str(folder)), "ledger.jsonl", FrozenClock(), Spending)
    ledger.record(Spending("openai", "m", tokens=100))
    path = folder / "ledger.jsonl"
    whole = path.read_bytes()
    for size in range(len(whole) + 1):
        path.write_bytes(whole + whole[:size])
        ledger.record(Spending("openai", "m", tokens=5_000))
        complete = len(whole) - 1 <= size  # all but its line break is enough
        assert sum(line.tokens for line in ledger.by_day()) == (5_200 if complete else 5_100), size
        assert ledger.open_log().find_faults() == []


def test_doctor_names_a_line_of_a_ledger(home, folder, workspace):
    ledger = Ledger(FileStorage(str(folder)), "models.jsonl", FrozenClock(), ModelSpending)
    ledger.record(model_line(calls=1, input=100))
    path = folder / "models.jsonl"
    before = path.read_bytes()
    bad = json.dumps({"provider": "x", "model": "m", "purpose": "reply", "day": "2026-03-14", "input": 10**19})
    path.write_bytes(before + bad.encode() + b"\n")
    commands = Commands(home, workspace)
    assert "models.jsonl, line 2" in commands.run("doctor")
    assert "10,000,000,000,000,000,000" not in commands.run("status")


def book_in(folder: Path) -> Book[BatchBook]:
    return Book(FileStorage(str(folder)), "batches.json", BatchBook)


def job(key: str) -> BatchJob:
    return BatchJob(key, "i", "openai", 1_773_500_000, ("ab" * 32,), "file-1", "batch-1")


def test_one_bad_batch_leaves_the_others_under_way(home, folder, workspace):
    path = folder / "batches.json"
    book = json.loads(dump_book(BatchBook((job("good"), job("victim")), BatchProblem("i", 1, "expired"))))
    good, victim = book["jobs"]
    for wrong in wrong_fields(victim):
        path.write_bytes(json.dumps({**book, "jobs": [good, "@"]}).encode().replace(b'"@"', wrong))
        if b"1e999" in wrong or b"NaN" in wrong or b"Infinity" in wrong:
            continue  # is not JSON, and with it nothing in the file is
        assert "good" in [one.key for one in read_book(book_in(folder)).jobs], wrong
    commands = Commands(home, workspace)
    commands.run("status")
    path.write_bytes(json.dumps({**book, "jobs": [{"key": 1}, good]}).encode())
    before = path.read_bytes()
    assert "batches.json: job 1 cannot be read" in commands.run("doctor")
    book_in(folder).change(lambda unchanged: unchanged)
    assert [one.key for one in book_in(folder).read().jobs] == ["good"]
    assert Path(f"{path}.damaged").read_bytes() == before
