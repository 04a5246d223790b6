"""Big jobs through a provider's batch API: planned purely, written down before they are paid for, then seen through.

What a batch brings goes into the embedding cache, where the ordinary work finds it. Whatever goes wrong, that work
asks for what is missing in its own way; only texts that are in a batch under way are left alone, for they are paid for.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from kept.clock import Clock
from kept.config import RemoteBatch
from kept.embedding.base import Embedder
from kept.embedding.batch import token_bound
from kept.embedding.batch_api import find_batch_api
from kept.embedding.batch_api.base import HURRY, PATIENCE, BatchApi, BatchStatus
from kept.errors import EmbeddingError, EndpointDown, QuotaExhausted, RemoteError, RequestRefused, WorkspaceError
from kept.indexing.batch_book import BOOK_NAME, MAX_FAILURES, Book, BookFile, Job, request_id, workspace_key
from kept.records import Progress
from kept.values import frozen

log = logging.getLogger(__name__)

THRESHOLD = 500
"""Fewer missing texts than this are a few ordinary calls, and done before a batch has begun."""
MAX_CREATES = 3
OUTAGE_S = 180.0
"""How long a provider may be out of reach before a wait for its batches ends. The batches go on without us."""
ABANDON_AFTER_S = 3 * 86_400
"""Every provider ends a batch within two days, one way or the other."""
KEEP_EVERY = 500

Keep = Callable[[Mapping[bytes, bytes]], None]


def plan_groups(
    texts: Iterable[tuple[bytes, str]], encode: Callable[[str, str], bytes], *, max_requests: int, max_bytes: int
) -> list[tuple[bytes, ...]]:
    """The texts of each batch, in order, each as full as the limits allow. A text that none could take is left out."""
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
class Fetched:
    """What became of some texts."""

    vectors: int = 0
    """How many of them have their vector in the cache now."""
    held: frozenset[bytes] = frozenset()
    """Those in a batch that is still under way, or about to be: they are not to be asked for in any other way."""
    reason: str = ""
    problems: tuple[str, ...] = ()


@dataclass
class _Watched:
    """A job, and what this process has seen of it."""

    job: Job
    since_s: float
    timeouts: int = 0
    creates: int = 0
    may_exist: bool = True
    """Whether a batch may have been made of its file without our knowing its id."""
    missed_since_s: float | None = None


@dataclass
class _Run:
    texts: Mapping[bytes, str]
    keep: Keep
    wait: bool
    queue: deque[tuple[bytes, ...]] = field(default_factory=deque)
    active: list[_Watched] = field(default_factory=list)
    left: list[Job] = field(default_factory=list)
    """Jobs that go on, and are no longer waited for."""
    problems: list[str] = field(default_factory=list)
    got: set[bytes] = field(default_factory=set)

    def outcome(self, provider: str) -> Fetched:
        under_way = [watched.job for watched in self.active] + self.left
        named = {bytes.fromhex(digest) for job in under_way for digest in job.hashes}
        held = named.union(*self.queue) & self.texts.keys() - self.got
        reason = f"{provider} has {len(held):,} texts in a batch that is not done yet." if held else ""
        return Fetched(len(self.got & self.texts.keys()), frozenset(held), reason, tuple(self.problems))


class BatchJobs:
    """The batches of one embedder for one workspace."""

    def __init__(self, api: BatchApi, settings: RemoteBatch, path: str, workspace: str, clock: Clock) -> None:
        self.api = api
        self.settings = settings
        self.book = BookFile(path)
        self.workspace = workspace_key(workspace)
        self.clock = clock
        self.force = False
        self.hurry = False

    def prepare(self, *, force: bool, hurry: bool) -> None:
        """``force`` tries batches again where they were given up; ``hurry`` is a search's: nothing is waited for."""
        self.force = force
        self.hurry = hurry
        self.api.patience = HURRY if hurry else PATIENCE

    def fetch(self, texts: Mapping[bytes, str], keep: Keep, progress: Progress | None = None) -> Fetched:
        """Gets vectors for texts that have none, if they are many or were asked for before. Never raises RemoteError.

        ``keep`` puts vectors into the cache, and is durable when it returns.
        """
        run = _Run(texts, keep, wait=self.settings.wait and not self.hurry)
        try:
            self._begin(run)
            self._see_through(run, progress)
        except WorkspaceError as exc:
            run.queue.clear()  # what cannot be written down is not begun
            run.problems.append(exc.message)
        run.problems[:0] = self.book.notices
        self.book.notices.clear()
        return run.outcome(self.api.provider)

    # what there is to do

    def _begin(self, run: _Run) -> None:
        book = self.book.read()
        if self.book.faults or any(job.file_id is None for job in book.of(self._identity, self.workspace)):
            book = self.book.change(self._tidy)
        now_s = self._now_s()
        mine = book.of(self._identity, self.workspace)
        wanted = {key.hex() for key in run.texts}
        run.active = [_Watched(job, now_s) for job in mine if not wanted.isdisjoint(job.hashes)]
        under_way = {bytes.fromhex(digest) for one in run.active for digest in one.job.hashes}
        fresh = {key: text for key, text in run.texts.items() if key not in under_way}
        if len(fresh) < THRESHOLD:
            return
        if book.failures(self._identity) >= MAX_FAILURES and not self.force:
            run.problems.append(_switched_off(book))
            return
        limits = {"max_requests": self.api.max_requests, "max_bytes": self.api.max_bytes}
        run.queue.extend(plan_groups(fresh.items(), self.api.encode, **limits))

    def _tidy(self, book: Book) -> Book:
        """Leaves out what was intended and cannot have been paid for, and what nobody will ever collect."""
        book = book.without_old(self._time_s())
        for job in book.of(self._identity, self.workspace):
            if job.file_id is None:
                book = book.without(job)
        return book

    # seeing it through

    def _see_through(self, run: _Run, progress: Progress | None) -> None:
        while True:
            for watched in tuple(run.active):
                self._look_at(watched, run)
            while run.queue and len(run.active) + len(run.left) < self.settings.concurrency:
                self._submit(run.queue.popleft(), run)
            if not run.active or not run.wait:
                return
            if progress:
                progress(len(run.got), len(run.texts), f"waiting for {self.api.provider}")
            self.api.client.pace.sleep(self.settings.poll_interval_ms / 1000)

    def _submit(self, group: tuple[bytes, ...], run: _Run) -> None:
        job = Job(
            key=f"kept-{uuid.uuid4().hex}",
            workspace=self.workspace,
            identity=self._identity,
            provider=self.api.provider,
            intended_s=self._time_s(),
            hashes=tuple(key.hex() for key in group),
        )
        self.book.change(lambda book: book.without_old(job.intended_s).with_job(job))
        content = b"".join(self.api.encode(request_id(key.hex()), run.texts[key]) for key in group)
        try:
            file_id = self.api.upload(job.key, content)
        except RemoteError as exc:
            self._give_up(job, run, exc)
            return
        watched = _Watched(self._note(replace(job, file_id=file_id)), self._now_s(), may_exist=False)
        run.active.append(watched)
        self._create(watched, run)

    def _look_at(self, watched: _Watched, run: _Run) -> None:
        if watched.job.batch_id is None:
            self._find_or_create(watched, run)
        if watched.job.batch_id is None or watched not in run.active:
            return
        try:
            status = self.api.poll(watched.job.batch_id)
            if status.state == "running":
                watched.missed_since_s = None
                self._mind_the_time(watched, run, status)
            else:
                self._collect(watched.job, status, run)
                run.active.remove(watched)
        except RemoteError as exc:
            self._missed(watched, run, exc)

    def _find_or_create(self, watched: _Watched, run: _Run) -> None:
        """A batch that may have been made is looked for before another is: nothing is paid for twice."""
        job = watched.job
        try:
            found = self.api.find(job.key, job.file_id or "") if watched.may_exist else None
        except RemoteError as exc:
            self._missed(watched, run, exc)
            return
        if found is not None:
            watched.job = self._note(replace(job, batch_id=found))
        elif watched.creates >= MAX_CREATES:
            run.active.remove(watched)
            self._fail(job, run, f"could not be made in {MAX_CREATES} tries", "")
        else:
            self._create(watched, run)

    def _create(self, watched: _Watched, run: _Run) -> None:
        job = watched.job
        watched.may_exist = True
        watched.creates += 1
        try:
            batch_id = self.api.create(job.key, job.file_id or "")
        except RequestRefused as exc:
            run.active.remove(watched)
            self._give_up(job, run, exc)
        except RemoteError as exc:
            # Nobody knows whether it was heard. The next look finds out.
            log.info("%s: %s", job.key, exc.message)
        else:
            watched.job = self._note(replace(job, batch_id=batch_id))
            log.info("%s: batch %s of %d texts", job.key, batch_id, len(job.hashes))

    def _mind_the_time(self, watched: _Watched, run: _Run, status: BatchStatus) -> None:
        """A batch that takes too long is waited for once more. Then it has failed, and is cancelled."""
        if not run.wait or self._now_s() - watched.since_s < self.settings.timeout_minutes * 60:
            return
        watched.timeouts += 1
        watched.since_s = self._now_s()
        if watched.timeouts < 2:
            return
        run.active.remove(watched)
        try:
            self.api.cancel(watched.job.batch_id or "")
        except RemoteError as exc:
            log.info("%s could not be cancelled: %s", watched.job.key, exc.message)
        minutes = 2 * self.settings.timeout_minutes
        self._fail(watched.job, run, f"still {status.word} after {minutes} minutes", "")

    def _missed(self, watched: _Watched, run: _Run, exc: RemoteError) -> None:
        """The provider did not tell. What is wrong with the network or the key is not the batch's fault."""
        now_s = self._now_s()
        if watched.missed_since_s is None:
            watched.missed_since_s = now_s
        if isinstance(exc, RequestRefused) and exc.status != 401:
            run.active.remove(watched)
            self._give_up(watched.job, run, exc)
        elif not exc.retryable or not run.wait or now_s - watched.missed_since_s >= OUTAGE_S:
            self._leave(watched, run, exc)

    def _leave(self, watched: _Watched, run: _Run, exc: RemoteError) -> None:
        """Waits for it no longer. It stays written down, and the next sync asks again, for some days."""
        run.active.remove(watched)
        if self._time_s() - watched.job.intended_s > ABANDON_AFTER_S:
            self._fail(watched.job, run, "nothing was heard of it for days", exc.message)
            return
        run.left.append(watched.job)
        run.problems.append(f"A batch could not be looked at. {exc.message}")

    # what comes of it

    def _collect(self, job: Job, status: BatchStatus, run: _Run) -> None:
        """Takes what is there, however the batch ended. The cache has it before the job is struck off."""
        fresh: dict[bytes, bytes] = {}
        got: set[bytes] = set()
        wrong: list[str] = []
        for key, vector in self._iter_vectors(job, status, run, wrong):
            fresh[key] = vector
            got.add(key)
            if len(fresh) >= KEEP_EVERY:
                run.keep(fresh)
                fresh = {}
        run.keep(fresh)
        run.got |= got
        if status.state == "done" and got:
            self.book.change(lambda book: book.without(job).with_success(self._identity))
        else:
            cause = status.word if status.state == "failed" else "done, but without vectors"
            self._fail(job, run, cause, status.reason or next(iter(wrong), ""))

    def _iter_vectors(
        self, job: Job, status: BatchStatus, run: _Run, wrong: list[str]
    ) -> Iterator[tuple[bytes, bytes]]:
        by_id = job.by_id
        for answer in self.api.iter_answers(status):
            key = by_id.get(answer.id)
            if key is None or answer.vector is None:
                continue
            try:
                vector = self.api.embedder.pack(answer.vector)
            except (RemoteError, EmbeddingError) as exc:
                wrong.append(exc.message)
                continue
            if vector is not None:
                tokens = answer.tokens or token_bound(run.texts.get(key, ""))  # not every provider tells
                self.api.embedder.count_usage(texts=1, tokens=tokens)
                yield key, vector

    def _give_up(self, job: Job, run: _Run, exc: RemoteError) -> None:
        """A step was refused. Where nothing else would work either, it is no failure of batches."""
        if isinstance(exc, EndpointDown | QuotaExhausted) or (isinstance(exc, RequestRefused) and exc.status == 401):
            self.book.change(lambda book: book.without(job))
            run.queue.clear()
            run.problems.append(f"No batch was made. {exc.message}")
        else:
            status = f" ({exc.status})" if isinstance(exc, RequestRefused) else ""
            self._fail(job, run, f"{exc.code.replace('_', ' ')}{status}", exc.message)

    def _fail(self, job: Job, run: _Run, cause: str, detail: str) -> None:
        """``cause`` is written down; ``detail``, which may repeat what it was sent, is only said."""
        book = self.book.change(lambda book: book.without(job).with_failure(self._identity, cause))
        told = f"A batch of {len(job.hashes):,} texts failed at {self.api.provider}: {cause.rstrip('.')}."
        run.problems.append(f"{told} {detail}".rstrip())
        if book.failures(self._identity) >= MAX_FAILURES:
            run.queue.clear()
            run.problems.append(_switched_off(book))

    def _note(self, job: Job) -> Job:
        self.book.change(lambda book: book.with_job(job))
        return job

    @property
    def _identity(self) -> str:
        return self.api.identity.key

    def _time_s(self) -> int:
        return self.clock.time_ns() // 1_000_000_000

    def _now_s(self) -> float:
        return self.api.client.pace.monotonic()


def _switched_off(book: Book) -> str:
    reason = book.trouble.reason if book.trouble else ""
    return (
        f"Batch mode is off after {MAX_FAILURES} failures (the last: {reason}); texts are sent in ordinary calls."
        " 'kept index --force' tries it again."
    )


def make_batch_jobs(
    embedder: Embedder | None, settings: RemoteBatch, folder: str, workspace: str, clock: Clock
) -> BatchJobs | None:
    """None unless batches are enabled and the provider has them."""
    api = find_batch_api(embedder) if settings.enabled else None
    return BatchJobs(api, settings, os.path.join(folder, BOOK_NAME), workspace, clock) if api else None
