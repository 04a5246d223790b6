"""Finds and mends unreadable records in all canonical files but transcripts, which have their own check."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from kept.clock import Clock
from kept.config import Config
from kept.errors import KeptError, LockBusy
from kept.indexing.batch_book import BatchBookFile
from kept.ledger import Ledger, open_embedding_ledger, open_model_ledger
from kept.lock import locked
from kept.quarantine import DAMAGED_ENDING, Fault, count_set_aside
from kept.responder.inbox import Inbox


def find_faults(config: Config, clock: Clock) -> list[Fault]:
    """Return the records that cannot be read. Change nothing."""
    faults: list[Fault] = []
    faults += _read(config.paths.inbox, lambda: _inbox_faults(config, clock))
    for ledger in _ledgers(config, clock):
        faults += _read(ledger.path, ledger.faults)
    book = BatchBookFile(config.paths.batches)
    faults += _read(book.path, lambda: _book_faults(book))
    return faults


def mend_faults(config: Config, clock: Clock) -> None:
    """Move unreadable records into quarantine. A record that cannot be moved now is found again the next time."""
    for ledger in _ledgers(config, clock):
        _try(ledger.mend)
    _try(lambda: _mend_book(BatchBookFile(config.paths.batches)))
    _try(lambda: _mend_inbox(config, clock))


def count_quarantined(config: Config) -> dict[str, int]:
    """Return the number of quarantined lines by file."""
    folder = config.paths.folder
    names = (
        sorted(name for name in os.listdir(folder) if name.endswith(DAMAGED_ENDING)) if os.path.isdir(folder) else []
    )
    paths = [os.path.join(folder, name) for name in names]
    return {path: count_set_aside(path.removesuffix(DAMAGED_ENDING)) for path in paths if os.path.isfile(path)}


def _ledgers(config: Config, clock: Clock) -> Sequence[Ledger[Any]]:
    return open_embedding_ledger(config, clock), open_model_ledger(config, clock)


def _inbox_faults(config: Config, clock: Clock) -> list[Fault]:
    return Inbox(config.paths.inbox, clock=clock, read_only=True).faults


def _book_faults(book: BatchBookFile) -> list[Fault]:
    book.read()
    return book.faults


def _mend_book(book: BatchBookFile) -> None:
    if _book_faults(book):
        book.change(lambda unchanged: unchanged)


def _mend_inbox(config: Config, clock: Clock) -> None:
    """Open the inbox, which mends it, unless a gateway is running: that did the same when it started."""
    if _inbox_faults(config, clock):
        try:
            with locked(os.path.join(config.home, "gateway.lock"), wait_s=0, purpose="mending the inbox"):
                Inbox(config.paths.inbox, clock=clock)
        except LockBusy:
            pass


def _read(path: str, find: Callable[[], list[Fault]]) -> list[Fault]:
    """Return the faults of a file. A file that cannot be opened is one fault, so that the others are still checked."""
    try:
        return find()
    except KeptError as exc:
        return [Fault(path, None, exc.message)]


def _try(mend: Callable[[], None]) -> None:
    try:
        mend()
    except KeptError:
        pass
