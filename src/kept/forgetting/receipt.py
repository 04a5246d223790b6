"""The proof: all bytes are searched for what was forgotten, and a receipt says what was done, without a word of it.

Each file below the home and the workspace is read as it is, whatever its kind, and searched for the text in UTF-8,
UTF-16 and escaped as in JSON. In a database there is no space between two texts, so there a word counts inside of
another one too, unless a text that is stored there explains it: "planning" in a note is not a trace of "ann".
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from typing import Any

import apsw

from kept.base.json_values import to_tree
from kept.base.limits import read_object
from kept.base.sqlite import checksum_vfs
from kept.base.values import frozen
from kept.base.visibility import PRIVATE_FOLDER, PROJECTS_FOLDER
from kept.config import Config
from kept.config.agent_config import FORGETTING
from kept.forgetting.needles import Matcher, Needles, byte_forms, words_of
from kept.forgetting.places import RECEIPTS
from kept.forgetting.plan import ForgetOrder, Outcome
from kept.storage.contract import Append, Storage
from kept.storage.open import open_agent

_BLOCK = 1 << 23
_LETTER = rb"[0-9a-z_\x80-\xff]"
_DATABASE = b"SQLite format 3\0"
_GIT = ".git"
_OWN_COLUMNS = frozenset({"source", "channel", "account_id", "chat_type", "end_reason", "mark", "identity", "k"})
_OWN_FILES = re.compile(r"(?:agents|\.kept)/|[^/]+\.(?:jsonl?|yaml|sqlite|lock|log)\Z")
"""Files below a home or workspace that Kept names."""
_OWN_TABLES = ("meta", "sqlite_sequence")
_PLAIN_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"


@frozen
class LeftOver:
    """A file that still has what was forgotten."""

    path: str
    count: int
    """Occurrences, or 1 if only their presence is known."""


@frozen
class ByteScan:
    files: int
    bytes: int
    lines: int
    """Removed lines that were searched for in all bytes."""


def _search_bytes(config: Config, order: ForgetOrder) -> tuple[ByteScan, list[LeftOver], list[str]]:
    """Search every file below the home and the workspace, and their names, except for models and the journal. Return
    also the files that still have it, and those that cannot be read."""
    needles, roots = order.plan.needles, tuple(filter(None, (config.home, order.workspace)))
    matcher = Matcher(needles)
    # How the texts may be stored, each with a pattern that does not match words inside of others.
    forms = {data: re.escape(data) for line in needles.longest_lines for data in byte_forms(line)}
    for text in needles.words:
        before = rb"(?<!%b)" % _LETTER if text[:1].isalnum() else b""
        after = rb"(?!%b)" % _LETTER if text[-1:].isalnum() else b""
        forms |= {data: before + re.escape(data) + after for data in byte_forms(text)}
    sizes: list[int] = []
    left: list[LeftOver] = []
    unread: list[str] = []
    journal = os.path.join(config.paths.folder, FORGETTING)
    for path in iter_all_files(roots, frozenset((config.models_folder, journal))):
        inside = next(os.path.relpath(path, root) for root in roots if path.startswith(root + os.sep))
        try:
            count, size = _search_file(path, forms, needles)
        except OSError:
            unread.append(path)
            continue
        sizes.append(size)
        count += not _OWN_FILES.match(inside) and matcher.has_words(words_of(inside))
        if count and (order.scope is None or _is_shared(path, order.workspace)):
            left.append(LeftOver(path, count))
    return ByteScan(len(sizes), sum(sizes), len(needles.longest_lines)), left, unread


def _is_shared(path: str, workspace: str) -> bool:
    """Return whether who sees only a part of the memory may learn what a file has."""
    hidden = tuple(os.path.join(workspace, name, "") for name in (PROJECTS_FOLDER, PRIVATE_FOLDER, ".kept"))
    return bool(workspace) and path.startswith(os.path.join(workspace, "")) and not path.startswith(hidden)


def iter_all_files(roots: Iterable[str], leave_out: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield every regular file below the roots, hidden ones too, but not the objects of git, which are compressed."""
    seen = set(leave_out)
    for root in roots:
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(name for name in folders if name != _GIT and os.path.join(folder, name) not in seen)
            for path in sorted({os.path.join(folder, name) for name in names} - seen):
                with suppress(OSError):
                    if stat.S_ISREG(os.lstat(path).st_mode):
                        seen.add(path)  # one of the roots may be in the other
                        yield path


def _search_file(path: str, forms: Mapping[bytes, bytes], needles: Needles) -> tuple[int, int]:
    """Return the number of occurrences in a file, and its size."""
    longest = max(map(len, forms), default=1)
    count = size = 0
    tail = b""
    with open(path, "rb") as file:
        is_database = file.peek(len(_DATABASE)).startswith(_DATABASE)
        while block := file.read(_BLOCK):
            size += len(block)
            data = tail + block.lower()
            count += _count(data, forms, is_database) - _count(tail, forms, is_database)
            tail = data[-(longest + 1) :]
    return (0 if count and is_database and _is_explained(path, needles) else count), size


def _count(data: bytes, forms: Mapping[bytes, bytes], any_place: bool) -> int:
    present = ((form, pattern) for form, pattern in forms.items() if form in data)
    return sum(data.count(form) if any_place else len(re.findall(pattern, data)) for form, pattern in present)


def _is_explained(path: str, needles: Needles) -> bool:
    """Return whether no stored text has a match, and the schema or a text have the letters inside of other words."""
    matcher = Matcher(needles)
    inside = [text.casefold() for text in needles.words]
    has_letters = False
    for text, is_own in _stored_texts(path):
        if not is_own and matcher.matches(text):
            return False
        has_letters = has_letters or any(part in text.casefold() for part in inside)
    return has_letters


def _stored_texts(path: str) -> Iterator[tuple[str, bool]]:
    """Yield every text in a database, and whether it is Kept's own, such as the schema. One that cannot be read has
    none to explain anything."""
    flags = apsw.SQLITE_OPEN_READONLY
    with suppress(apsw.Error), closing(apsw.Connection(path, flags=flags, vfs=checksum_vfs())) as db:
        yield from ((sql, True) for (sql,) in db.execute("SELECT sql FROM sqlite_schema") if sql)
        for (table,) in db.execute(_PLAIN_TABLES).fetchall():
            columns = [row[1] for row in db.execute("SELECT * FROM pragma_table_info(?)", (table,))]
            quoted = str(table).replace('"', '""')
            for row in db.execute(f'SELECT * FROM "{quoted}"'):
                for column, value in zip(columns, row, strict=True):
                    if not isinstance(value, str):
                        continue
                    if column in ("path", "file"):  # of a path, the names that people gave
                        value = words_of(value)
                    elif column in ("key", "session_key") and value.startswith("agent:"):
                        value = value.rpartition(":")[2]  # of a key, who the conversation is with
                    yield value, table in _OWN_TABLES or column in _OWN_COLUMNS


_HIDDEN = "(a name that was forgotten)"
_MOST_PLACES = 1_000
_NOT_REACHED = (
    "archives of 'kept export', backups, snapshots and copies in other folders",
    "the history of a git repository that the notes are in, and where it was pushed to",
    "the original files of imported conversations",
    "what providers of models and chat services keep of what was sent to them",
    "conversations that a running program has in memory, until it ends",
)
"""Places outside of Kept that may have copies."""


@frozen
class ForgetReceipt:
    id: str
    at: str
    request: str
    """query, citation, session, person or before."""
    places: tuple[tuple[str, str], ...]
    """Kind and citation of each place."""
    salt: str
    sha256: str
    """Hash of the salt and what was removed. With the text, it can be shown to be the same."""
    searched: ByteScan
    """Files and lines that were searched afterwards."""
    left: tuple[LeftOver, ...]
    unreachable: tuple[str, ...]
    changed: tuple[str, ...]
    """Places that had changed since they were shown, and were left alone."""
    kept: tuple[str, ...]
    """Places that were shown and not chosen."""
    is_finished: bool
    """False if a part has to be done again; the next command tries."""

    def counts(self) -> dict[str, int]:
        return dict(Counter(kind for kind, _ in self.places))


def make_receipt(config: Config, order: ForgetOrder, outcome: Outcome, *, at: str) -> ForgetReceipt:
    """Search all bytes. Return the receipt, with names that were forgotten replaced in paths."""
    plan, matcher = order.plan, Matcher(order.plan.needles)
    searched, left, unread = _search_bytes(config, order)

    def is_named(text: str) -> bool:
        return matcher.matches(text) or matcher.matches(re.sub(r"[/_-]", " ", text))

    def hide(text: str) -> str:
        """Return a path or a reason with the parts hidden that name it."""
        if not is_named(text):
            return text
        parts = "/".join(_HIDDEN if is_named(part) else part for part in text.split("/"))
        return _HIDDEN if is_named(parts) else parts

    reasons = (f"{path}: cannot be read" for path in unread)
    unreachable = dict.fromkeys((*outcome.missed, *outcome.refused, *plan.unreachable, *_NOT_REACHED, *reasons))
    return ForgetReceipt(
        order.id,
        at,
        plan.request,
        tuple((place.kind, hide(place.citation)) for place in plan.places[:_MOST_PLACES]),
        order.salt,
        order.sha256,
        searched,
        left=tuple(LeftOver(hide(file.path), file.count) for file in left),
        unreachable=tuple(map(hide, unreachable)),
        changed=tuple(map(hide, dict.fromkeys(outcome.changed))),
        kept=tuple(hide(place.citation) for place in plan.kept),
        is_finished=not outcome.missed,
    )


def receipt_json(receipt: ForgetReceipt) -> dict[str, Any]:
    tree: dict[str, Any] = to_tree(receipt)
    places = [{"kind": kind, "citation": citation} for kind, citation in receipt.places]
    return tree | {"counts": receipt.counts(), "places": places, "finished": tree.pop("is_finished")}


def save_receipt(agent: Storage, receipt: ForgetReceipt) -> None:
    agent.commit([Append(RECEIPTS, [json.dumps(receipt_json(receipt), separators=(",", ":")).encode()])])


def read_receipts(config: Config) -> list[dict[str, Any]]:
    """Return the receipts of an agent, oldest first. A damaged line is skipped."""
    trees = (read_object(line.data) for line in open_agent(config).logs.read(RECEIPTS))
    return [tree for tree in trees if isinstance(tree.get("id"), str)]
