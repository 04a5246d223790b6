"""What to forget: the request, the places that have it, the plan that a person confirms, and the order to carry it out.

The journal keeps an order until all of it is done. It is written before the first change. It has the words in clear,
because a run that finishes the work after a crash needs them. It is overwritten and removed at the end, and
`kept doctor` reports one that was left.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal, Protocol

from kept.digest import digest_bytes
from kept.durable import erase_file, replace_erasing
from kept.errors import ForgetFailed, WriteFailed
from kept.forgetting.needles import Needles
from kept.limits import strict_json
from kept.values import frozen

Kind = Literal["note", "conversation", "import", "session", "record", "history", "proposal"]
KINDS: tuple[Kind, ...] = ("note", "conversation", "import", "session", "history", "proposal", "record")
"""Kinds of places, in the order in which they are shown. An import is a conversation of another program; a record is
in a file of Kept's own, such as the inbox."""
CHOSEN: tuple[Kind, ...] = ("note", "conversation", "import", "session")
"""Kinds that a person can choose from. The others have copies of them."""


@frozen
class ForgetRequest:
    """Request to forget. Exactly one field is set."""

    query: str | None = None
    """Words, or a citation."""
    session: str | None = None
    person: str | None = None
    before_ms: int | None = None


@frozen
class Place:
    """A passage, a transcript line, a whole note or a whole session that is to go."""

    kind: Kind
    path: str
    """As a search cites it."""
    citation: str
    text: str
    """Text to show."""
    digest: str
    """Hash of the exact text, so that a change is noticed."""
    start_line: int = 1
    lines: int = 1
    whole: bool = False
    """The whole file, not some lines of it; for a transcript line, all that it says."""


@frozen
class ForgetPlan:
    """Every place that a forget would change. Nothing has happened yet."""

    request: ForgetRequest
    places: tuple[Place, ...]
    needles: Needles
    """Texts that no file may have afterwards."""
    unreachable: tuple[str, ...] = ()
    """Places that name it and that Kept does not change."""
    by_tool: bool = False

    @property
    def token(self) -> str:
        """Confirms exactly this plan: it differs if anything was added or changed since."""
        fields = [[place.kind, place.citation, place.digest, place.whole] for place in self.places]
        data = json.dumps([self.needles.words, sorted(fields)], ensure_ascii=True)
        return digest_bytes(data.encode())[:24]

    @property
    def choices(self) -> tuple[Place, ...]:
        """Places that a person can choose from, in the order in which they are shown."""
        return tuple(place for place in self.places if place.kind in CHOSEN)

    def counts(self) -> dict[str, int]:
        """Return the number of places by kind."""
        counts = Counter(place.kind for place in self.places)
        return {kind: counts[kind] for kind in KINDS if counts[kind]}

    def select(self, places: Sequence[Place]) -> ForgetPlan:
        """Return a plan for some of the places. Words are not searched for elsewhere then: the rest may keep them."""
        lines = Needles.of_texts([place.text for place in places])
        return replace(self, places=tuple(places), needles=lines)


def digest_of(text: str | bytes) -> str:
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return digest_bytes(data)[:32]


# the order, and its journal

_VERSION = 1


@frozen
class LineCut:
    """Lines of a note to remove, provided that their text still has this digest."""

    path: str
    start_line: int
    lines: int
    digest: str


@frozen
class EntryCut:
    """Line of a transcript that loses its text: what matches, or ``whole`` all that it says."""

    path: str
    line: int
    digest: str
    whole: bool


@frozen
class ForgetOrder:
    id: str
    started: str
    request: str
    """Kind of the request: query, citation, session, person, before."""
    words: tuple[str, ...]
    lines: tuple[str, ...]
    cuts: tuple[LineCut, ...]
    entries: tuple[EntryCut, ...]
    notes: tuple[str, ...]
    """Notes that go as a whole."""
    sessions: tuple[str, ...]
    """Ids of sessions that go as a whole."""
    places: tuple[tuple[str, str], ...]
    """Kind and citation of each place, for the receipt."""
    unreachable: tuple[str, ...] = ()
    salt: str = ""
    sha256: str = ""
    """Salted hash of what is removed."""
    by_tool: bool = False
    is_scoped: bool = False
    """True if notes outside of a project were not looked at."""
    done: tuple[str, ...] = ()
    """Stores that are scrubbed."""
    workspace: str = ""
    """Folder of the notes. The work is finished only there: nobody has agreed to lose notes of another folder."""

    @property
    def needles(self) -> Needles:
        return Needles(self.words, self.lines)

    @property
    def words_only(self) -> Needles:
        """Needles for notes and transcripts: copies of removed lines there are places of their own."""
        return Needles(self.words)


@frozen
class ScrubResult:
    """Outcome of scrubbing one store."""

    removed: int = 0
    changed: tuple[str, ...] = ()
    """Citations of places that changed since they were shown, and were left alone."""
    unreachable: tuple[str, ...] = ()
    is_complete: bool = True
    """False if the store has to be scrubbed again, for the reason in ``unreachable``."""

    def __add__(self, other: ScrubResult) -> ScrubResult:
        return ScrubResult(
            self.removed + other.removed,
            self.changed + other.changed,
            self.unreachable + other.unreachable,
            self.is_complete and other.is_complete,
        )


def erase_files(paths: Iterable[str]) -> ScrubResult:
    """Erase files, and report those that cannot be erased."""
    result = ScrubResult()
    for path in paths:
        try:
            erase_file(path)
        except WriteFailed as exc:
            result += ScrubResult(unreachable=(exc.message,), is_complete=False)
        else:
            result += ScrubResult(removed=1)
    return result


class ForgetStore(Protocol):
    """A place where Kept keeps text. Scrubbing twice does no harm: a run after a crash repeats the last one."""

    @property
    def name(self) -> str: ...

    def scrub(self, order: ForgetOrder) -> ScrubResult: ...


# the journal


def write_journal(path: str, order: ForgetOrder) -> None:
    data = json.dumps({"version": _VERSION, **asdict(order)}, ensure_ascii=True).encode()
    replace_erasing(path, data + b"\n")


def read_journal(path: str) -> ForgetOrder | None:
    """Return the forget that is under way or was interrupted, or None. Raise ForgetFailed if it cannot be read."""
    try:
        with open(path, "rb") as file:
            data = file.read()
        if data.startswith(b"\0"):
            return None  # everything was done, and the journal was being overwritten
        tree = strict_json.decode(data.decode())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as exc:
        raise _unreadable(path) from exc
    try:
        return _parse(tree)
    except (TypeError, KeyError, ValueError, AttributeError) as exc:
        raise _unreadable(path) from exc


def _parse(tree: dict[str, Any]) -> ForgetOrder:
    if tree.pop("version") != _VERSION:
        raise ValueError
    names = ("words", "lines", "notes", "sessions", "done")
    texts: dict[str, Any] = {name: tuple(map(str, tree.pop(name))) for name in names}
    return ForgetOrder(
        **texts,
        cuts=tuple(LineCut(**cut) for cut in tree.pop("cuts")),
        entries=tuple(EntryCut(**entry) for entry in tree.pop("entries")),
        places=tuple((str(kind), str(citation)) for kind, citation in tree.pop("places")),
        unreachable=tuple(map(str, tree.pop("unreachable"))),
        **tree,
    )


def _unreadable(path: str) -> ForgetFailed:
    return ForgetFailed(
        f"{path}: the journal of a forget that was interrupted cannot be read.",
        hint="Forget the same again, then delete that file.",
    )
