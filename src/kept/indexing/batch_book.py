"""What is under way at a provider's batch API, written down before it can be lost: it is money.

The file is `batches.json` of an agent. It is no index and not derived from anything, so it is not in SQLite. Texts
stand in it as hashes; there are no keys and no words of notes in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kept.durable import make_private_folder, write_atomic
from kept.errors import WriteFailed
from kept.limits import is_count, is_storable, strict_json
from kept.lock import locked
from kept.quarantine import Fault, set_file_aside
from kept.values import frozen

BOOK_NAME = "batches.json"
VERSION = 1
MAX_FAILURES = 2
FORGET_AFTER_S = 30 * 86_400
"""No provider keeps answers that long."""
_LOCK_WAIT_S = 10.0
_LATEST_S = 7_258_118_400
"""The year 2200."""
_HASH = re.compile(r"[0-9a-f]{64}")


@frozen
class Job:
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
class Trouble:
    """How often batches of an embedder have failed in a row, and how the last one did."""

    identity: str
    failures: int
    reason: str


@frozen
class Book:
    jobs: tuple[Job, ...] = ()
    trouble: Trouble | None = None

    def of(self, identity: str, workspace: str) -> tuple[Job, ...]:
        return tuple(job for job in self.jobs if (job.identity, job.workspace) == (identity, workspace))

    def failures(self, identity: str) -> int:
        return self.trouble.failures if self.trouble and self.trouble.identity == identity else 0

    def with_job(self, job: Job) -> Book:
        return replace(self, jobs=(*(one for one in self.jobs if one.key != job.key), job))

    def without(self, job: Job) -> Book:
        return replace(self, jobs=tuple(one for one in self.jobs if one.key != job.key))

    def with_failure(self, identity: str, reason: str) -> Book:
        return replace(self, trouble=Trouble(identity, self.failures(identity) + 1, reason))

    def with_success(self, identity: str) -> Book:
        return replace(self, trouble=None) if self.failures(identity) else self

    def without_old(self, now_s: int) -> Book:
        return replace(self, jobs=tuple(job for job in self.jobs if now_s - job.intended_s < FORGET_AFTER_S))


def jobs_under_way(folder: str, root: str) -> tuple[Job, ...]:
    """Those of a workspace, for showing: nothing is changed, whatever the file is like."""
    try:
        jobs = BookFile(os.path.join(folder, BOOK_NAME)).read().jobs
    except WriteFailed:
        return ()
    return tuple(job for job in jobs if job.workspace == workspace_key(root))


class BookFile:
    """Changes are made under a lock, on what is in the file at that moment: another workspace may use it too."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.notices: list[str] = []
        self.faults: list[Fault] = []
        """What the last reading left out, and why."""

    def read(self) -> Book:
        """Return what can be read; the next change puts the rest aside. Nothing is changed by reading."""
        return self._parse(self._content())

    def change(self, change: Callable[[Book], Book]) -> Book:
        make_private_folder(os.path.dirname(self.path))
        with locked(f"{self.path}.lock", wait_s=_LOCK_WAIT_S, purpose="writing down a batch"):
            content = self._content()
            before = self._parse(content)
            if self.faults:
                self._put_aside(content or b"")
            after = change(before)
            if after != before or self.faults:
                write_atomic(self.path, dump_book(after))
            return after

    def _content(self) -> bytes | None:
        try:
            with open(self.path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise WriteFailed(f"{self.path}: cannot be read ({exc.strerror}).", hint="Check its permissions.") from exc

    def _parse(self, content: bytes | None) -> Book:
        self.faults = []
        if content is None:
            return Book()
        book, reasons = parse_book(content)
        self.faults = [Fault(self.path, None, reason) for reason in reasons]
        return book

    def _put_aside(self, content: bytes) -> None:
        aside = set_file_aside(self.path, content)
        self.notices.append(
            f"It was damaged; {os.path.basename(aside)} is a copy of it. Batches that could not be read are not"
            " collected; their texts may be paid for again."
        )


def dump_book(book: Book) -> bytes:
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


def parse_book(raw: bytes) -> tuple[Book, list[str]]:
    """Return what can be read, and in words what cannot."""
    try:
        tree = strict_json.decode(raw.decode("utf-8"))
    except (ValueError, RecursionError):
        return Book(), ["it is not JSON"]
    match tree:
        case {"version": 1, "jobs": [*jobs], "trouble": trouble}:
            return _parse_parts(jobs, trouble)
    return Book(), ["it is no list of batches"]


def _parse_parts(jobs: list[Any], trouble: Any) -> tuple[Book, list[str]]:
    reasons: list[str] = []
    parsed: list[Job] = []
    for number, tree in enumerate(jobs, 1):
        job = _parse_job(tree)
        if job is None:
            reasons.append(f"batch {number} cannot be read")
        else:
            parsed.append(job)
    failures = _parse_trouble(trouble)
    if trouble is not None and failures is None:
        reasons.append("the count of failures cannot be read")
    return Book(tuple(parsed), failures), reasons


def _parse_job(tree: Any) -> Job | None:
    match tree:
        case {
            "key": str(key),
            "workspace": str(workspace),
            "identity": str(identity),
            "provider": str(provider),
            "intended_s": intended_s,
            "file_id": str() | None as file_id,
            "batch_id": str() | None as batch_id,
            "hashes": [*hashes],
        } if is_count(intended_s, _LATEST_S) and all(map(_is_hash, hashes)):
            texts = (key, workspace, identity, provider, file_id or "", batch_id or "")
            if all(map(is_storable, texts)):
                return Job(key, workspace, identity, provider, intended_s, tuple(hashes), file_id, batch_id)
    return None


def _is_hash(value: Any) -> bool:
    return isinstance(value, str) and _HASH.fullmatch(value) is not None


def _parse_trouble(tree: Any) -> Trouble | None:
    match tree:
        case {"identity": str(identity), "failures": failures, "reason": str(reason)} if is_count(failures):
            return Trouble(identity, failures, reason)
    return None
