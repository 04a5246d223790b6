"""Embedding many texts through a provider's batch API: jobs are planned, recorded, submitted, polled and collected.

The vectors of a batch go into the embedding cache, where the sync finds them. If a batch fails, the sync embeds what
is missing with ordinary calls; it skips only texts in a running batch, since those are paid for.
"""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from kept.base.clock import Clock
from kept.base.records import Progress
from kept.base.remote_errors import EmbeddingError, EndpointDown, QuotaExhausted, RemoteError, RequestRefused
from kept.base.values import frozen
from kept.config import BatchSettings
from kept.embedding.batch_api import CALL_TIMEOUTS, MAX_BYTES, SHORT_TIMEOUTS, BatchApi, BatchStatus
from kept.embedding.remote import token_bound
from kept.errors import WorkspaceError
from kept.index.batch_book import BatchBook, BatchJob, request_id, take_notices
from kept.storage.record_store import Book

log = logging.getLogger(__name__)

THRESHOLD = 500
"""Fewer missing texts than this take a few ordinary calls, which end before a batch has started."""
MAX_CREATES = 3
OUTAGE_S = 180.0
"""Time that a provider may be unreachable before waiting for its batches ends. The batches continue there."""
STORE_EVERY = 500

StoreVectors = Callable[[Mapping[bytes, bytes]], None]


def plan_groups(
    texts: Iterable[tuple[bytes, str]], encode: Callable[[str, str], bytes], *, max_requests: int, max_bytes: int
) -> list[tuple[bytes, ...]]:
    """Return the texts of each batch, in order, each as full as the limits allow. Texts too long for any are left
    out."""
    groups: list[tuple[bytes, ...]] = []
    group: list[bytes] = []
    size = 0
    for key, text in texts:
        length = len(encode(request_id(key.hex()), text))
        if length > max_bytes or not text.strip():
            continue
        if group and (len(group) >= max_requests or size + length > max_bytes):
            groups.append(tuple(group))
            group, size = [], 0
        group.append(key)
        size += length
    return [*groups, tuple(group)] if group else groups


@frozen
class FetchedVectors:
    """Result of `BatchRunner.fetch`."""

    vectors: int = 0
    """Number of texts whose vector is in the cache now."""
    pending: frozenset[bytes] = frozenset()
    """Texts in a batch that is running or about to be submitted. They must not be embedded in another way."""
    reason: str = ""
    problems: tuple[str, ...] = ()


@dataclass
class _WatchedJob:
    """A job, and what this process knows of it."""

    job: BatchJob
    since_s: float
    heard_s: float
    """Time of the last answer about it."""
    creates: int = 0


@dataclass
class _BatchRun:
    texts: Mapping[bytes, str]
    store: StoreVectors
    wait: bool
    queue: deque[tuple[bytes, ...]] = field(default_factory=deque)
    active: list[_WatchedJob] = field(default_factory=list)
    abandoned: list[BatchJob] = field(default_factory=list)
    """Jobs that continue at the provider, but that this run no longer waits for."""
    problems: list[str] = field(default_factory=list)
    received: set[bytes] = field(default_factory=set)

    def outcome(self, provider: str) -> FetchedVectors:
        jobs = [watched.job for watched in self.active] + self.abandoned
        submitted = {bytes.fromhex(digest) for job in jobs for digest in job.hashes}
        pending = submitted.union(*self.queue) & self.texts.keys() - self.received
        reason = f"{provider} has {len(pending):,} texts in a batch that is not done yet." if pending else ""
        return FetchedVectors(len(self.received & self.texts.keys()), frozenset(pending), reason, tuple(self.problems))


@dataclass
class BatchRunner:
    """Runs the batches of one embedder."""

    api: BatchApi
    settings: BatchSettings
    book: Book[BatchBook]
    clock: Clock
    job_texts: int
    force: bool = False
    in_search: bool = False

    def prepare(self, *, force: bool, in_search: bool) -> None:
        """Set up the next sync. ``force`` tries batches again after they were given up; a search waits for none."""
        self.force = force
        self.in_search = in_search
        self.api.timeouts = SHORT_TIMEOUTS if in_search else CALL_TIMEOUTS

    def fetch(
        self, texts: Mapping[bytes, str], store: StoreVectors, progress: Progress | None = None
    ) -> FetchedVectors:
        """Get vectors for texts that have none, if they are many or in a batch already. Never raises RemoteError.

        ``store`` puts vectors into the cache, durably.
        """
        run = _BatchRun(texts, store, wait=self.settings.wait and not self.in_search)
        try:
            self._plan(run)
            self._run_jobs(run, progress)
        except WorkspaceError as exc:
            run.queue.clear()  # a job that cannot be recorded is not submitted
            run.problems.append(exc.message)
        run.problems[:0] = take_notices(self.book)
        return run.outcome(self.api.embedder.provider)

    # planning

    def _plan(self, run: _BatchRun) -> None:
        book = self.book.change(self._without_unpaid) if self.book.exists() else BatchBook()
        now_s = self._now_s()
        mine = book.of(self._identity)
        hashes = {key.hex() for key in run.texts}
        run.active = [_WatchedJob(job, now_s, now_s) for job in mine if not hashes.isdisjoint(job.hashes)]
        submitted = {bytes.fromhex(digest) for watched in run.active for digest in watched.job.hashes}
        fresh = {key: text for key, text in run.texts.items() if key not in submitted}
        if len(fresh) < THRESHOLD:
            return
        if (off := book.why_off(self._identity)) and not self.force:
            run.problems.append(off)
            return
        run.queue.extend(plan_groups(fresh.items(), self.api.encode, max_requests=self.job_texts, max_bytes=MAX_BYTES))

    def _without_unpaid(self, book: BatchBook) -> BatchBook:
        """Drop jobs that were never uploaded, so cannot have been charged, and jobs too old to be collected."""
        book = book.without_old(self._time_s())
        for job in book.of(self._identity):
            if job.file_id is None:
                book = book.without(job)
        return book

    # submitting and polling

    def _run_jobs(self, run: _BatchRun, progress: Progress | None) -> None:
        while True:
            for watched in tuple(run.active):
                self._poll(watched, run)
            while run.queue and len(run.active) + len(run.abandoned) < self.settings.concurrency:
                self._submit(run.queue.popleft(), run)
            if not run.active or not run.wait:
                return
            if progress:
                progress(len(run.received), len(run.texts), f"waiting for {self.api.embedder.provider}")
            self.api.client.policy.sleep(self.settings.poll_interval_ms / 1000)

    def _submit(self, group: tuple[bytes, ...], run: _BatchRun) -> None:
        job = BatchJob(
            key=f"kept-{uuid.uuid4().hex}",
            identity=self._identity,
            provider=self.api.embedder.provider,
            created_s=self._time_s(),
            hashes=tuple(key.hex() for key in group),
        )
        self._record(job)
        content = b"".join(self.api.encode(request_id(key.hex()), run.texts[key]) for key in group)
        try:
            file_id = self.api.upload(job.key, content)
        except RemoteError as exc:
            self._give_up(job, run, exc)
            return
        now_s = self._now_s()
        watched = _WatchedJob(self._record(replace(job, file_id=file_id)), now_s, now_s)
        run.active.append(watched)
        self._create(watched, run)

    def _poll(self, watched: _WatchedJob, run: _BatchRun) -> None:
        try:
            if watched.job.batch_id is None:
                self._find_or_create(watched, run)
            if watched.job.batch_id is None or watched not in run.active:
                return
            status = self.api.poll(watched.job.batch_id)
            if status.state == "running":
                watched.heard_s = self._now_s()
                self._check_timeout(watched, run, status)
            else:
                self._collect(watched.job, status, run)
                run.active.remove(watched)
        except RemoteError as exc:
            self._handle_poll_error(watched, run, exc)

    def _find_or_create(self, watched: _WatchedJob, run: _BatchRun) -> None:
        """Look for a batch that may exist before creating another: no text is paid for twice."""
        job = watched.job
        batch_id = self.api.find(job.key)
        if batch_id is not None:
            watched.job = self._record(replace(job, batch_id=batch_id))
        elif watched.creates >= MAX_CREATES:
            run.active.remove(watched)
            self._fail(job, run, f"could not be created in {MAX_CREATES} attempts", "")
        else:
            self._create(watched, run)

    def _create(self, watched: _WatchedJob, run: _BatchRun) -> None:
        job = watched.job
        watched.creates += 1
        try:
            batch_id = self.api.create(job.key, job.file_id or "")
        except RequestRefused as exc:
            run.active.remove(watched)
            self._give_up(job, run, exc)
        except RemoteError as exc:
            # The provider may have created it. The next poll finds out.
            log.info("%s: %s", job.key, exc.message)
        else:
            watched.job = self._record(replace(job, batch_id=batch_id))

    def _check_timeout(self, watched: _WatchedJob, run: _BatchRun, status: BatchStatus) -> None:
        """Cancel a batch that took twice as long as it may. It has failed."""
        minutes = 2 * self.settings.timeout_minutes
        if not run.wait or self._now_s() - watched.since_s < minutes * 60:
            return
        run.active.remove(watched)
        try:
            self.api.cancel(watched.job.batch_id or "")
        except RemoteError as exc:
            log.info("%s could not be cancelled: %s", watched.job.key, exc.message)
        self._fail(watched.job, run, f"still {status.word} after {minutes} minutes", "")

    def _handle_poll_error(self, watched: _WatchedJob, run: _BatchRun, exc: RemoteError) -> None:
        """Handle a failed poll. A problem of the network or the key is not a failure of the batch: it stays recorded,
        and later syncs poll it."""
        if not _is_of_account(exc) and isinstance(exc, RequestRefused):
            run.active.remove(watched)
            self._give_up(watched.job, run, exc)
        elif not exc.retryable or not run.wait or self._now_s() - watched.heard_s >= OUTAGE_S:
            run.active.remove(watched)
            run.abandoned.append(watched.job)
            run.problems.append(f"A batch could not be polled. {exc.message}")

    # collecting

    def _collect(self, job: BatchJob, status: BatchStatus, run: _BatchRun) -> None:
        """Take the vectors of a batch, however it ended. They are in the cache before the job is deleted."""
        fresh: dict[bytes, bytes] = {}
        received: set[bytes] = set()
        errors: list[str] = []
        for key, vector in self._iter_vectors(job, status, run, errors):
            fresh[key] = vector
            received.add(key)
            if len(fresh) >= STORE_EVERY:
                run.store(fresh)
                fresh = {}
        run.store(fresh)
        run.received |= received
        if status.state == "done" and received:
            self.book.change(lambda book: book.without(job).with_success(self._identity))
        else:
            cause = status.word if status.state == "failed" else "done, but without vectors"
            self._fail(job, run, cause, status.reason or next(iter(errors), ""))

    def _iter_vectors(
        self, job: BatchJob, status: BatchStatus, run: _BatchRun, errors: list[str]
    ) -> Iterator[tuple[bytes, bytes]]:
        by_id = job.by_id
        for custom_id, answer, counted in self.api.iter_answers(status):
            key = by_id.get(custom_id)
            if key is None:
                continue
            try:
                vector = self.api.embedder.pack(answer)
            except (RemoteError, EmbeddingError) as exc:
                errors.append(exc.message)
                continue
            if vector is not None:
                tokens = counted or token_bound(run.texts.get(key, ""))  # not every provider counts them
                self.api.embedder.count_usage(texts=1, tokens=tokens)
                yield key, vector

    def _give_up(self, job: BatchJob, run: _BatchRun, exc: RemoteError) -> None:
        """Give up a job after a refused step. If ordinary calls would fail too, it is not a failure of batches."""
        if isinstance(exc, EndpointDown) or _is_of_account(exc):
            self.book.change(lambda book: book.without(job))
            run.queue.clear()
            run.problems.append(f"No batch was created. {exc.message}")
        else:
            status = f" ({exc.status})" if isinstance(exc, RequestRefused) else ""
            self._fail(job, run, f"{exc.code.replace('_', ' ')}{status}", exc.message)

    def _fail(self, job: BatchJob, run: _BatchRun, cause: str, detail: str) -> None:
        """Record a failure. ``detail`` may quote the texts that were sent, so it is reported but not recorded."""
        book = self.book.change(lambda book: book.without(job).with_failure(self._identity, cause))
        failure = f"A batch of {len(job.hashes):,} texts failed at {self.api.embedder.provider}: {cause.rstrip('.')}."
        run.problems.append(f"{failure} {detail}".rstrip())
        if off := book.why_off(self._identity):
            run.queue.clear()
            run.problems.append(off)

    def _record(self, job: BatchJob) -> BatchJob:
        self.book.change(lambda book: book.with_job(job))
        return job

    @property
    def _identity(self) -> str:
        return self.api.embedder.identity.key

    def _time_s(self) -> int:
        return self.clock.time_ns() // 1_000_000_000

    def _now_s(self) -> float:
        return self.api.client.policy.monotonic()


def _is_of_account(exc: RemoteError) -> bool:
    """Return whether the key or the quota is the reason, which ordinary calls need too."""
    return isinstance(exc, QuotaExhausted) or (isinstance(exc, RequestRefused) and exc.status == 401)
