"""What is under way at a provider's batch API, written down before it can be lost: it is money.

The file is `batches.json` of an agent. It is no index and not derived from anything, so it is not in SQLite. Texts
stand in it as hashes; there are no keys and no words of notes in it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kept.durable import make_private_folder, write_atomic
from kept.errors import WriteFailed
from kept.lock import locked
from kept.values import frozen

BOOK_NAME = "batches.json"
VERSION = 1
MAX_FAILURES = 2
FORGET_AFTER_S = 30 * 86_400
"""No provider keeps answers that long."""
_LOCK_WAIT_S = 10.0


@frozen
class BatchJob:
    """One batch. Written as an intention first; then with the file that was uploaded; then with the batch made of it.

    Until there is a ``file_id`` nothing can have been paid for. With a file and without a ``batch_id`` nobody knows,
    and the provider's list of batches, in which ``key`` stands, decides.
    """

    key: str
    workspace: str
    """A hash of where it is: an agent may have several, and each has its own index."""
    identity: str
    """Of the embedder: its answers are of no use to another."""
    provider: str
    intended_s: int
    hashes: tuple[str, ...]
    file_id: str | None = None
    batch_id: str | None = None

    @property
    def by_id(self) -> dict[str, bytes]:
        return {request_id(digest): bytes.fromhex(digest) for digest in self.hashes}


def workspace_key(root: str) -> str:
    return hashlib.sha256(os.fsencode(root)).hexdigest()[:16]


def request_id(digest: str) -> str:
    """What a text is called in a batch. Half of its hash is enough to tell it apart, and short enough for everyone."""
    return digest[:32]


@frozen
class BatchProblem:
    """How often batches of an embedder have failed in a row, and how the last one did."""

    identity: str
    failures: int
    reason: str


@frozen
class BatchBook:
    jobs: tuple[BatchJob, ...] = ()
    trouble: BatchProblem | None = None

    def of(self, identity: str, workspace: str) -> tuple[BatchJob, ...]:
        return tuple(job for job in self.jobs if (job.identity, job.workspace) == (identity, workspace))

    def failures(self, identity: str) -> int:
        return self.trouble.failures if self.trouble and self.trouble.identity == identity else 0

    def with_job(self, job: BatchJob) -> BatchBook:
        return replace(self, jobs=(*(one for one in self.jobs if one.key != job.key), job))

    def without(self, job: BatchJob) -> BatchBook:
        return replace(self, jobs=tuple(one for one in self.jobs if one.key != job.key))

    def with_failure(self, identity: str, reason: str) -> BatchBook:
        return replace(self, trouble=BatchProblem(identity, self.failures(identity) + 1, reason))

    def with_success(self, identity: str) -> BatchBook:
        return replace(self, trouble=None) if self.failures(identity) else self

    def without_old(self, now_s: int) -> BatchBook:
        return replace(self, jobs=tuple(job for job in self.jobs if now_s - job.intended_s < FORGET_AFTER_S))


def jobs_under_way(folder: str, root: str) -> tuple[BatchJob, ...]:
    """Those of a workspace, for showing: nothing is changed, whatever the file is like."""
    try:
        with open(os.path.join(folder, BOOK_NAME), "rb") as file:
            jobs = parse_book(file.read()).jobs
    except (OSError, ValueError, RecursionError):
        return ()
    return tuple(job for job in jobs if job.workspace == workspace_key(root))


class BatchBookFile:
    """Changes are made under a lock, on what is in the file at that moment: another workspace may use it too."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.notices: list[str] = []

    def read(self) -> BatchBook:
        """A file that cannot be understood is put aside and reported; the work goes on without it."""
        try:
            with open(self.path, "rb") as file:
                return parse_book(file.read())
        except FileNotFoundError:
            return BatchBook()
        except OSError as exc:
            raise WriteFailed(f"{self.path}: cannot be read ({exc.strerror}).", hint="Check its permissions.") from exc
        except (ValueError, RecursionError):
            self._put_aside()
            return BatchBook()

    def change(self, change: Callable[[BatchBook], BatchBook]) -> BatchBook:
        make_private_folder(os.path.dirname(self.path))
        with locked(f"{self.path}.lock", wait_s=_LOCK_WAIT_S, purpose="writing down a batch"):
            before = self.read()
            after = change(before)
            if after != before:
                write_atomic(self.path, dump_book(after))
            return after

    def _put_aside(self) -> None:
        aside = f"{self.path}.damaged"
        try:
            os.replace(self.path, aside)
        except OSError as exc:
            raise WriteFailed(f"{self.path} is damaged and cannot be put aside ({exc.strerror}).") from exc
        self.notices.append(
            f"It was damaged and is now {os.path.basename(aside)}. Batches that were under way are not collected;"
            " their texts may be paid for again."
        )


def dump_book(book: BatchBook) -> bytes:
    jobs = [
        {
            "key": job.key,
            "workspace": job.workspace,
            "identity": job.identity,
            "provider": job.provider,
            "intended_s": job.intended_s,
            "file_id": job.file_id,
            "batch_id": job.batch_id,
            "hashes": list(job.hashes),
        }
        for job in book.jobs
    ]
    trouble = book.trouble and {
        "identity": book.trouble.identity,
        "failures": book.trouble.failures,
        "reason": book.trouble.reason,
    }
    return json.dumps({"version": VERSION, "trouble": trouble, "jobs": jobs}, indent=1).encode() + b"\n"


def parse_book(raw: bytes) -> BatchBook:
    """Raises ValueError unless every part is as it was written."""
    match json.loads(raw):
        case {"version": 1, "jobs": [*jobs], "trouble": trouble}:
            return BatchBook(tuple(map(_parse_job, jobs)), _parse_trouble(trouble))
    raise ValueError("not a list of batches")


def _parse_job(tree: Any) -> BatchJob:
    match tree:
        case {
            "key": str(key),
            "workspace": str(workspace),
            "identity": str(identity),
            "provider": str(provider),
            "intended_s": int(intended_s),
            "file_id": str() | None as file_id,
            "batch_id": str() | None as batch_id,
            "hashes": [*hashes],
        }:
            if not all(isinstance(one, str) and len(bytes.fromhex(one)) == 32 for one in hashes):
                raise ValueError("not a hash")
            return BatchJob(key, workspace, identity, provider, intended_s, tuple(hashes), file_id, batch_id)
    raise ValueError("not a batch")


def _parse_trouble(tree: Any) -> BatchProblem | None:
    match tree:
        case None:
            return None
        case {"identity": str(identity), "failures": int(failures), "reason": str(reason)}:
            return BatchProblem(identity, failures, reason)
    raise ValueError("not a count of failures")
