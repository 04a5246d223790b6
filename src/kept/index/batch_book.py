"""Jobs at a provider's batch API, recorded in `batches.json` before they are submitted: a lost job is lost money.

The document names texts by their hashes and holds neither keys
nor words of notes.
"""

from __future__ import annotations

import re
from dataclasses import replace

from kept.base.values import frozen
from kept.config import Config
from kept.errors import WorkspaceError
from kept.storage.open import open_agent
from kept.storage.record_store import DAMAGED_ENDING, Book

BATCHES = "batches.json"
MAX_FAILURES = 2
FORGET_AFTER_S = 7 * 86_400
"""Every provider ends a batch within two days, successfully or not."""
_LATEST_S = 7_258_118_400
"""The year 2200."""
_HASH = re.compile(r"[0-9a-f]{64}")


@frozen
class BatchJob:
    """One batch. Recorded before the upload; again with the uploaded file; again with the batch created from it.

    Without a ``file_id``, nothing can have been charged. With a file but without a ``batch_id``, the batch may exist:
    the provider's list of batches, which contains ``key``, decides.
    """

    key: str
    identity: str
    """Identity of the embedder, whose vectors no other can use."""
    provider: str
    created_s: int
    hashes: tuple[str, ...]
    file_id: str | None = None
    batch_id: str | None = None

    def check(self) -> None:
        """Raise ValueError for a job that cannot have been recorded."""
        if not 0 <= self.created_s <= _LATEST_S or not all(map(_HASH.fullmatch, self.hashes)):
            raise ValueError("not a job")

    @property
    def by_id(self) -> dict[str, bytes]:
        """Hashes of the texts by the id of their request."""
        return {request_id(digest): bytes.fromhex(digest) for digest in self.hashes}


def request_id(digest: str) -> str:
    """Return the id of a text in a batch. Half of its hash is unique, and short enough for every provider."""
    return digest[:32]


@frozen
class BatchProblem:
    """Number of batches of an embedder that failed in a row, and the reason of the last failure."""

    identity: str
    failures: int
    reason: str


@frozen
class BatchBook:
    """Content of `batches.json`."""

    jobs: tuple[BatchJob, ...] = ()
    problem: BatchProblem | None = None

    def of(self, identity: str) -> tuple[BatchJob, ...]:
        return tuple(job for job in self.jobs if job.identity == identity)

    def failures(self, identity: str) -> int:
        return self.problem.failures if self.problem and self.problem.identity == identity else 0

    def why_off(self, identity: str) -> str:
        """Return why no further batch of an embedder is submitted, or nothing."""
        if self.problem is None or self.failures(identity) < MAX_FAILURES:
            return ""
        return (
            f"Batch mode is off after {MAX_FAILURES} failures (the last: {self.problem.reason}); texts are sent in"
            " ordinary calls. 'kept index --force' tries it again."
        )

    def with_job(self, job: BatchJob) -> BatchBook:
        return replace(self, jobs=(*self.without(job).jobs, job))

    def without(self, job: BatchJob) -> BatchBook:
        return replace(self, jobs=tuple(other for other in self.jobs if other.key != job.key))

    def with_failure(self, identity: str, reason: str) -> BatchBook:
        return replace(self, problem=BatchProblem(identity, self.failures(identity) + 1, reason))

    def with_success(self, identity: str) -> BatchBook:
        return replace(self, problem=None) if self.failures(identity) else self

    def without_old(self, now_s: int) -> BatchBook:
        return replace(self, jobs=tuple(job for job in self.jobs if now_s - job.created_s < FORGET_AFTER_S))


def open_batches(config: Config) -> Book[BatchBook]:
    return Book(open_agent(config), BATCHES, BatchBook)


def read_book(book: Book[BatchBook]) -> BatchBook:
    """Return what can be read of a book, to show it."""
    try:
        return book.read()
    except WorkspaceError:
        return BatchBook()


def take_notices(book: Book[BatchBook]) -> list[str]:
    """Return what to say about damage since the last call."""
    count, book.damaged_copies = book.damaged_copies, 0
    notice = (
        f"It was damaged; {book.name}{DAMAGED_ENDING} is a copy of it. Batches that could not be read are not"
        " collected; their texts may be paid for again."
    )
    return [notice] * count
