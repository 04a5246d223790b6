"""Embedding many texts through a provider's batch API: jobs are recorded, submitted, polled and collected.

Jobs are recorded in `batches.json` before they are submitted, since a lost job is lost money. The document names texts
by their hashes and holds neither keys nor words of notes. The vectors of a batch go into the embedding cache, where the
sync finds them. If a batch fails, the sync embeds what is missing with ordinary calls; it skips only texts in a running
batch, since those are paid for.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from kept.base.clock import Clock
from kept.base.records import Progress
from kept.base.remote_errors import EmbeddingError, EndpointDown, QuotaExhausted, RemoteError, RequestRefused
from kept.base.values import frozen
from kept.config import Config
from kept.config.schema import BatchSettings
from kept.embedding.batch_api import CALL_TIMEOUTS, MAX_BYTES, SHORT_TIMEOUTS, BatchApi, BatchStatus
from kept.embedding.remote import iter_batches, token_bound
from kept.errors import WorkspaceError
from kept.storage.open import open_agent
from kept.storage.record_store import DAMAGED_ENDING, Book

log = logging.getLogger(__name__)

BATCHES = "batches.json"
# Fewer missing texts than this take a few ordinary calls, which end before a batch has started.
THRESHOLD = 500
MAX_FAILURES = 2
MAX_CREATES = 3
STORE_EVERY = 500
# Every provider ends a batch within two days, successfully or not.
FORGET_AFTER_S = 7 * 86_400
# The year 2200.
_LATEST_S = 7_258_118_400
_HASH = re.compile(r"[0-9a-f]{64}")

StoreVectors = Callable[[Mapping[bytes, bytes]], None]


# the record


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

    def why_off(self, identity: str) -> str:
        """Return why no further batch of an embedder is submitted, or nothing."""
        if self.problem is None or self.problem.identity != identity or self.problem.failures < MAX_FAILURES:
            return ""
        return (
            f"Batch mode is off after {MAX_FAILURES} failures (the last: {self.problem.reason}); texts are sent in"
            " ordinary calls. 'kept index --force' tries it again."
        )

    def with_job(self, job: BatchJob) -> BatchBook:
        return replace(self, jobs=(*self.without(job).jobs, job))

    def without(self, job: BatchJob) -> BatchBook:
        return replace(self, jobs=tuple(other for other in self.jobs if other.key != job.key))

    def after(self, job: BatchJob, failure: str = "") -> BatchBook:
        """Return the book without a job that has ended, well or with a failure."""
        earlier = self.problem if self.problem and self.problem.identity == job.identity else None
        problem = None if earlier else self.problem
        if failure:
            problem = BatchProblem(job.identity, earlier.failures + 1 if earlier else 1, failure)
        return replace(self.without(job), problem=problem)

    def without_unpaid(self, identity: str, now_s: int) -> BatchBook:
        """Drop jobs that were never uploaded, so cannot have been charged, and jobs too old to be collected."""
        jobs = (job for job in self.jobs if job.file_id is not None or job.identity != identity)
        return replace(self, jobs=tuple(job for job in jobs if now_s - job.created_s < FORGET_AFTER_S))


def open_batches(config: Config) -> Book[BatchBook]:
    return Book(open_agent(config), BATCHES, BatchBook)


def read_book(book: Book[BatchBook]) -> BatchBook:
    """Return what can be read of a book, to show it."""
    try:
        return book.read()
    except WorkspaceError:
        return BatchBook()


# the jobs


@dataclass
class _WatchedJob:
    """A job, and what this process knows of it."""

    job: BatchJob
    since_s: float
    creates: int = 0


@dataclass
class BatchRunner:
    """Runs the batches of one embedder for one sync.

    ``force`` tries batches again after they were given up; a sync before a search waits for none.
    """

    api: BatchApi
    settings: BatchSettings
    book: Book[BatchBook]
    clock: Clock
    job_texts: int
    force: bool
    in_search: bool
    problems: list[str] = field(default_factory=list)
    received: set[bytes] = field(default_factory=set)
    """Texts whose vector is in the cache now."""
    pending: frozenset[bytes] = frozenset()
    """Texts in a batch that is running or about to be submitted. They must not be embedded in another way."""
    _texts: Mapping[bytes, str] = field(default_factory=dict)
    _queue: deque[tuple[bytes, ...]] = field(default_factory=deque)
    _active: list[_WatchedJob] = field(default_factory=list)
    _left: list[BatchJob] = field(default_factory=list)
    """Jobs that continue at the provider, but that this run no longer waits for."""

    def __post_init__(self) -> None:
        self.wait = self.settings.wait and not self.in_search
        self._identity = self.api.embedder.identity.key
        self._provider = self.api.embedder.provider
        self.api.timeouts = SHORT_TIMEOUTS if self.in_search else CALL_TIMEOUTS

    def fetch(self, texts: Mapping[bytes, str], store: StoreVectors, progress: Progress | None = None) -> None:
        """Get vectors for texts that have none, if they are many or in a batch already. Never raises RemoteError.

        ``store`` puts vectors into the cache, durably.
        """
        self._texts = texts
        try:
            self._plan()
            while True:
                for watched in tuple(self._active):
                    self._advance(watched, store)
                while self._queue and len(self._active) + len(self._left) < self.settings.concurrency:
                    self._submit(self._queue.popleft())
                if not self._active or not self.wait:
                    break
                if progress:
                    progress(len(self.received), len(texts), f"waiting for {self._provider}")
                self.api.client.policy.sleep(self.settings.poll_interval_ms / 1000)
        except WorkspaceError as exc:
            self._queue.clear()  # a job that cannot be recorded is not submitted
            self.problems.append(exc.message)
        notice = (
            f"It was damaged; {BATCHES}{DAMAGED_ENDING} is a copy of it. Batches that could not be read are not"
            " collected; their texts may be paid for again."
        )
        self.problems[:0] = [notice] * self.book.damaged_copies
        self.book.damaged_copies = 0
        jobs = [watched.job for watched in self._active] + self._left
        submitted = {bytes.fromhex(digest) for job in jobs for digest in job.hashes}
        self.received &= texts.keys()
        self.pending = frozenset(submitted.union(*self._queue) & texts.keys() - self.received)

    def why_pending(self) -> str:
        return f"{self._provider} has {len(self.pending):,} texts in a batch that is not done yet."

    def _plan(self) -> None:
        """Find the jobs that have wanted texts, and share out the other texts if they are many."""
        book = BatchBook()
        if self.book.exists():
            book = self.book.change(lambda book: book.without_unpaid(self._identity, self._time_s()))
        wanted = {key.hex(): key for key in self._texts}
        fresh = dict(self._texts)
        for job in book.of(self._identity):
            if not wanted.keys().isdisjoint(job.hashes):
                self._active.append(_WatchedJob(job, self._now_s()))
                for digest in wanted.keys() & job.hashes:
                    fresh.pop(wanted[digest], None)
        if len(fresh) < THRESHOLD:
            return
        if (off := book.why_off(self._identity)) and not self.force:
            self.problems.append(off)
            return
        # Each job is as full as the limits allow. A text too long for any is left out.
        sizes = {key: len(self.api.encode(request_id(key.hex()), text)) for key, text in fresh.items() if text.strip()}
        fitting = (key for key, size in sizes.items() if size <= MAX_BYTES)
        groups = iter_batches(fitting, sizes.__getitem__, max_texts=self.job_texts, max_weight=MAX_BYTES)
        self._queue.extend(map(tuple, groups))

    def _submit(self, group: tuple[bytes, ...]) -> None:
        job = BatchJob(
            key=f"kept-{uuid.uuid4().hex}",
            identity=self._identity,
            provider=self._provider,
            created_s=self._time_s(),
            hashes=tuple(key.hex() for key in group),
        )
        watched = _WatchedJob(self._record(job), self._now_s())
        self._active.append(watched)
        content = b"".join(self.api.encode(request_id(key.hex()), self._texts[key]) for key in group)
        try:
            watched.job = self._record(replace(job, file_id=self.api.upload(job.key, content)))
        except RemoteError as exc:
            self._give_up(watched, exc)
        else:
            self._create(watched)

    def _advance(self, watched: _WatchedJob, store: StoreVectors) -> None:
        """Look for the batch of a job, create it if there is none, or collect it if it has ended."""
        job = watched.job
        try:
            if job.batch_id is None:
                # It may exist: no text is paid for twice.
                batch_id = self.api.find(job.key)
                if batch_id is None and watched.creates >= MAX_CREATES:
                    self._fail(watched, f"could not be created in {MAX_CREATES} attempts")
                elif batch_id is None:
                    self._create(watched)
                else:
                    watched.job = self._record(replace(job, batch_id=batch_id))
            if watched in self._active and watched.job.batch_id is not None:
                status = self.api.poll(watched.job.batch_id)
                if status.state == "running":
                    self._check_timeout(watched, status)
                else:
                    self._collect(watched, status, store)
        except RemoteError as exc:
            if isinstance(exc, RequestRefused) and not _is_of_account(exc):
                self._give_up(watched, exc)
            else:  # no failure of the batch: it stays recorded, and later syncs poll it
                self._active.remove(watched)
                self._left.append(watched.job)
                self.problems.append(f"A batch could not be polled. {exc.message}")

    def _create(self, watched: _WatchedJob) -> None:
        job = watched.job
        watched.creates += 1
        try:
            batch_id = self.api.create(job.key, job.file_id or "")
        except RequestRefused as exc:
            self._give_up(watched, exc)
        except RemoteError as exc:
            log.info("%s: %s", job.key, exc.message)  # the provider may have created it: the next look finds out
        else:
            watched.job = self._record(replace(job, batch_id=batch_id))

    def _check_timeout(self, watched: _WatchedJob, status: BatchStatus) -> None:
        """Cancel a batch that took twice as long as it may. It has failed."""
        minutes = 2 * self.settings.timeout_minutes
        if self.wait and self._now_s() - watched.since_s >= minutes * 60:
            with suppress(RemoteError):
                self.api.cancel(watched.job.batch_id or "")
            self._fail(watched, f"still {status.word} after {minutes} minutes")

    def _collect(self, watched: _WatchedJob, status: BatchStatus, store: StoreVectors) -> None:
        """Take the vectors of a batch, however it ended. They are in the cache before the job is deleted."""
        job, embedder = watched.job, self.api.embedder
        by_id = {request_id(digest): bytes.fromhex(digest) for digest in job.hashes}
        fresh: dict[bytes, bytes] = {}
        received: set[bytes] = set()
        errors = [status.reason] if status.reason else []
        for custom_id, answer, counted in self.api.iter_answers(status):
            key = by_id.get(custom_id)
            try:
                vector = key and embedder.pack(answer)
            except (RemoteError, EmbeddingError) as exc:
                errors.append(exc.message)
                continue
            if key and vector:
                # Not every provider counts the tokens.
                embedder.count_usage(texts=1, tokens=counted or token_bound(self._texts.get(key, "")))
                fresh[key] = vector
                received.add(key)
            if len(fresh) >= STORE_EVERY:
                store(fresh)
                fresh = {}
        store(fresh)
        self.received |= received
        if status.state == "done" and received:
            self._active.remove(watched)
            self.book.change(lambda book: book.after(job))
        else:
            cause = status.word if status.state == "failed" else "done, but without vectors"
            self._fail(watched, cause, next(iter(errors), ""))

    def _give_up(self, watched: _WatchedJob, exc: RemoteError) -> None:
        """Give up a job after a refused step. If ordinary calls would fail too, it is not a failure of batches."""
        if isinstance(exc, EndpointDown) or _is_of_account(exc):
            self._active.remove(watched)
            self.book.change(lambda book: book.without(watched.job))
            self._queue.clear()
            self.problems.append(f"No batch was created. {exc.message}")
        else:
            status = f" ({exc.status})" if isinstance(exc, RequestRefused) else ""
            self._fail(watched, f"{exc.code.replace('_', ' ')}{status}", exc.message)

    def _fail(self, watched: _WatchedJob, cause: str, detail: str = "") -> None:
        """Record a failure. ``detail`` may quote the texts that were sent, so it is reported but not recorded."""
        job = watched.job
        self._active.remove(watched)
        book = self.book.change(lambda book: book.after(job, cause))
        failure = f"A batch of {len(job.hashes):,} texts failed at {self._provider}: {cause.rstrip('.')}."
        self.problems.append(f"{failure} {detail}".rstrip())
        if off := book.why_off(self._identity):
            self._queue.clear()
            self.problems.append(off)

    def _record(self, job: BatchJob) -> BatchJob:
        self.book.change(lambda book: book.with_job(job))
        return job

    def _time_s(self) -> int:
        return self.clock.time_ns() // 1_000_000_000

    def _now_s(self) -> float:
        return self.api.client.policy.monotonic()


def _is_of_account(exc: RemoteError) -> bool:
    """Return whether the key or the quota is the reason, which ordinary calls need too."""
    return isinstance(exc, QuotaExhausted) or (isinstance(exc, RequestRefused) and exc.status == 401)
