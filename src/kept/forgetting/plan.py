"""What to forget: the request, the places that have it, the plan that a person confirms, and the order to carry it out.

The journal keeps an order until all of it is done. It is written before the first change. It has the words in clear,
because a run that finishes the work after a crash needs them. It is overwritten and removed at the end, and
`kept doctor` reports one that was left.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal, Protocol, get_args

from kept.base.digest import digest_bytes
from kept.base.durable import erase_file, replace_erasing
from kept.base.limits import clip, strict_json
from kept.base.values import frozen
from kept.errors import ForgetFailed, UsageError, WriteFailed
from kept.forgetting.needles import Matcher, Needles

Kind = Literal["note", "conversation", "import", "session", "history", "proposal", "schedule", "inbox", "record"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""Kinds of places, in the order in which they are counted. An import is a conversation of another program; a record is
in another file of Kept's own that was set aside."""


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
    """As a search cites it; for a schedule its id, for messages in the inbox the key of their conversation."""
    citation: str
    text: str
    """Text to show."""
    digest: str
    """Hash of the exact text, so that a change is noticed."""
    start_line: int = 1
    lines: int = 1
    whole: bool = False
    """The whole file, not some lines of it; for a transcript line, all that it says."""
    copies: int = 1
    """How often the note has these lines."""
    new: str = ""
    """Text that takes the place of the lines: a list without one of its names."""
    is_property: bool = False
    """Lines of the front matter."""

    @property
    def said(self) -> str:
        """Return the text that goes, as far as it is known: of a transcript line, without its time and speaker."""
        if self.new or self.kind in ("session", "history", "inbox", "record"):
            return ""
        return self.text.partition(": ")[2] if self.path.startswith("sessions/") else self.text


@frozen
class ForgetPlan:
    """Every place that a forget would change, and nothing else changes. Nothing has happened yet."""

    request: ForgetRequest
    places: tuple[Place, ...]
    """Places that have exactly what is to be forgotten."""
    needles: Needles
    """Texts that no file may have afterwards, except in places that were not chosen."""
    unreachable: tuple[str, ...] = ()
    """Places that name it and that Kept does not change."""
    by_tool: bool = False
    candidates: tuple[Place, ...] = ()
    """Places that may be meant too, such as other copies of a cited line. They go only if they are chosen."""
    asked: tuple[Place, ...] = ()
    """Records of the request itself, which go if all places do."""
    kept: tuple[Place, ...] = ()
    """Places that were shown and not chosen."""
    is_partial: bool = False
    """True if the words themselves may stay, because some of their places were not chosen."""

    @property
    def token(self) -> str:
        """Confirms exactly this plan: it differs if anything was added or changed since."""
        fields = [[place.kind, place.citation, place.digest, place.whole, place.new] for place in self.options]
        data = json.dumps([self.needles.words, sorted(fields)], ensure_ascii=True)
        return digest_bytes(data.encode())[:24]

    @property
    def options(self) -> tuple[Place, ...]:
        """Return the places and the candidates, as they are numbered."""
        return (*self.places, *self.candidates)

    def counts(self) -> dict[str, int]:
        """Return the number of places by kind."""
        counts = Counter(place.kind for place in self.places)
        return {kind: counts[kind] for kind in KINDS if counts[kind]}

    def choose(self, answer: str) -> ForgetPlan:
        """Return the plan for an answer: numbers such as '1,3', 'none', or 'all' for all places, or for all candidates
        if there are only these. Raise UsageError for anything else."""
        word, options = answer.strip().lower(), self.options
        if word == "all":
            return self.select(self.places or self.candidates)
        numbers = [] if word == "none" else re.split(r"[\s,]+", word.strip(", "))
        if not all(number.isdecimal() and 0 < int(number) <= len(options) for number in numbers):
            hint = f"Answer with numbers from 1 to {len(options)} such as 1,3, with 'all' or with 'none'."
            raise UsageError(f"'{clip(answer, 40)}' names no places.", hint=hint)
        return self.select([options[int(number) - 1] for number in numbers])

    def select(self, places: Sequence[Place]) -> ForgetPlan:
        """Return a plan for some of the places and candidates. The others are left as they are."""
        chosen = tuple(place for place in self.options if place in places)
        others = tuple(place for place in self.options if place not in places)
        if chosen == self.places:
            return replace(self, candidates=(), kept=others)
        is_partial = not self.places or any(place in self.places for place in others)
        lines = self.needles.lines if any(place.kind == "session" for place in chosen) else ()
        words = self.needles.words if self.places else ()
        needles = Needles.of_texts([*lines, *(place.said for place in chosen)], words)
        asked = () if is_partial else self.asked
        return replace(
            self, places=chosen, needles=needles, candidates=(), asked=asked, kept=others, is_partial=is_partial
        )


def digest_of(text: str | bytes) -> str:
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return digest_bytes(data)[:32]


# the order, and its journal

_VERSION = 1


@frozen
class LineCut:
    """Lines of a note to remove or to replace, provided that their text still has this digest."""

    path: str
    start_line: int
    lines: int
    digest: str
    copies: int = 1
    """How often the note had these lines when they were shown."""
    new: str = ""


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
    others: tuple[tuple[str, str], ...]
    """Kind and path of each place that is neither in a note nor in a conversation."""
    places: tuple[tuple[str, str], ...]
    """Kind and citation of each place, for the receipt."""
    unreachable: tuple[str, ...] = ()
    salt: str = ""
    sha256: str = ""
    """Salted hash of what is removed."""
    by_tool: bool = False
    is_scoped: bool = False
    """True if only a part of the memory was looked at, that of a project or of a person."""
    scope: str = ""
    """Folder of the project or of the person that it is forgotten for; empty for everybody."""
    is_partial: bool = False
    kept: tuple[str, ...] = ()
    """Citations of places that were shown and not chosen."""
    done: tuple[str, ...] = ()
    """Stores that are scrubbed."""
    workspace: str = ""
    """Folder of the notes. The work is finished only there: nobody has agreed to lose notes of another folder."""

    @property
    def needles(self) -> Needles:
        return Needles(self.words, self.lines)

    @property
    def inbox_matcher(self) -> Matcher:
        """Return what finds copies of chosen messages in the inbox. Others may keep the words if some places do."""
        return Matcher(Needles((), self.lines) if self.is_partial else self.needles)

    def chosen(self, kind: Kind) -> frozenset[str]:
        """Return the paths of the places of a kind."""
        return frozenset(path for other, path in self.others if other == kind)


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
    names = ("words", "lines", "notes", "sessions", "done", "kept")
    texts: dict[str, Any] = {name: tuple(map(str, tree.pop(name, ()))) for name in names}
    return ForgetOrder(
        **texts,
        cuts=tuple(LineCut(**cut) for cut in tree.pop("cuts")),
        entries=tuple(EntryCut(**entry) for entry in tree.pop("entries")),
        others=tuple((str(kind), str(path)) for kind, path in tree.pop("others", ())),
        places=tuple((str(kind), str(citation)) for kind, citation in tree.pop("places")),
        unreachable=tuple(map(str, tree.pop("unreachable"))),
        **tree,
    )


def _unreadable(path: str) -> ForgetFailed:
    return ForgetFailed(
        f"{path}: the journal of a forget that was interrupted cannot be read.",
        hint="Forget the same again, then delete that file.",
    )
