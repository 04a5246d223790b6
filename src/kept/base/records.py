"""Values that several packages share: passages, citations, filters, hits and their grades. All are frozen, and have no
behaviour beyond describing themselves. Values about the index are in `reports`, lists of notes, tags and links in
`listings`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from kept.base.values import frozen
from kept.base.visibility import PRIVATE_FOLDER, PROJECTS_FOLDER, ProjectScope, Viewer, project_of_path

if TYPE_CHECKING:
    import datetime as dt

Source = Literal["memory", "sessions"]
SOURCES: tuple[Source, ...] = ("memory", "sessions")

Grade = Literal["strong", "likely", "weak"]
"""How sure a search is of a hit. Most strong hits are right, and most weak ones are not."""
GRADES: tuple[Grade, ...] = ("strong", "likely", "weak")
STRONG_FROM, LIKELY_FROM = 0.6, 0.25
"""Lowest relevance of a strong and of a likely hit. `benchmarks/calibration.py` and `kept bench` print how often hits
of each grade are right."""

Progress = Callable[[int, int, str], None]
"""Function that is called with completed, total and a label during long work."""


ENTRY_RULE = "* * *"
"""Line between two entries of a note that were added one after the other. Each is a passage of its own."""


def is_fact_list(path: str) -> bool:
    """Return whether a note is a list of unrelated facts, as MEMORY.md and USER.md: each item is a passage."""
    return path.rpartition("/")[2].lower() in ("memory.md", "user.md")


def cite(path: str, start_line: int, end_line: int) -> str:
    """Return the citation of a passage: path#L3-L9, or path#L3 for one line."""
    return f"{path}#L{start_line}" if start_line == end_line else f"{path}#L{start_line}-L{end_line}"


def parse_citation(text: str) -> tuple[str, int, int] | None:
    """Return path, first and last line of a citation, or None for a text that is not one."""
    if "#" not in text:
        return None
    import re

    match = re.fullmatch(r"(.+)#L(\d{1,9})(?:-L?(\d{1,9}))?", text, re.IGNORECASE | re.DOTALL)
    return (match[1], int(match[2]), int(match[3] or match[2])) if match else None


class SourceFile(NamedTuple):
    """A note or a transcript with its size and times: enough to tell whether it changed without reading it.

    A tuple, because a scan makes one for every file.
    """

    path: str
    """Name in citations: relative to the workspace, or absolute for an extra path outside it."""
    absolute: str
    source: Source
    size: int
    mtime_ns: int
    ctime_ns: int


@frozen
class Problem:
    """A problem with one path that the user should know of. The rest of the work went on."""

    path: str
    reason: str


@frozen
class Chunk:
    """A passage of a note. ``text`` is exactly lines ``start_line`` to ``end_line``; it is shown and cited."""

    start_line: int
    end_line: int
    text: str
    heading: str
    """Headings above it, outermost first, joined by ' > '."""
    embed_text: str
    """Text to embed: the heading path and the text below it. It has neither line numbers nor the file's name, so that
    a text that moved, or whose file was renamed, is found in the embedding cache."""


@frozen
class Gap:
    """A text without a vector, and the reason. Its row holds zeros, which must not be stored or compared."""

    row: int
    reason: str
    temporary: bool
    """True if asking again later can help. A text that the provider refuses stays refused."""


@frozen
class Matrix:
    """Rows of little-endian float32, packed. A plain buffer, so that a search needs no numpy."""

    dims: int
    data: bytes
    gaps: tuple[Gap, ...] = ()

    def __len__(self) -> int:
        return len(self.data) // (4 * self.dims) if self.dims else 0

    def __iter__(self) -> Iterator[bytes]:
        step = 4 * self.dims
        return (self.data[at : at + step] for at in range(0, len(self.data), step))


@frozen
class Filter:
    """Limits of a search. Empty fields do not limit."""

    sources: tuple[str, ...] = ()
    path: str | None = None
    """A glob over cited paths, where '*' crosses folders; or a path or folder by name."""
    since_ms: int | None = None
    until_ms: int | None = None
    session_key: str | None = None
    channel: str | None = None
    tags: tuple[str, ...] = ()
    """Keys of tags. A passage has to have all of them."""
    scope: ProjectScope | None = None
    viewer: Viewer | None = None
    transcript: str | None = None
    """Citation of the only transcript to search."""
    as_of_ms: int | None = None
    """First moment that is too late: what was written or said from then on is left out, and facts count as they held
    before. Undated notes stay, since nothing tells when their lines were written."""

    def __bool__(self) -> bool:
        bounds = (self.since_ms, self.until_ms, self.as_of_ms, self.session_key, self.channel, self.transcript)
        groups = self.sources or self.path or self.tags or self.scope or self.viewer
        return bool(groups) or any(bound is not None for bound in bounds)

    def sees_note(self, path: str) -> bool:
        """Return whether a note is neither in another project nor somebody else's."""
        if self.scope is not None and project_of_path(path) not in (None, self.scope.name):
            return False
        return self.viewer is None or self.viewer.sees_note(path)

    @property
    def own_folders(self) -> list[str]:
        """Folders with notes of the project and of the viewer, which come before the shared ones."""
        project = [f"{PROJECTS_FOLDER}/{self.scope.name}"] if self.scope and self.scope.name else []
        return [*project, *([f"{PRIVATE_FOLDER}/{self.viewer.folder}"] if self.viewer else [])]

    @property
    def is_conversation(self) -> bool:
        """True if only conversations can match."""
        return not (self.session_key is None and self.channel is None and self.transcript is None)


@frozen
class CitedLines:
    """Lines of a note or a transcript."""

    path: str
    start_line: int
    end_line: int

    @property
    def citation(self) -> str:
        return cite(self.path, self.start_line, self.end_line)


@frozen
class ScorePart:
    """One addend of a score: the parts of a hit add up to its score."""

    name: str
    value: float
    detail: str


@frozen
class Occurrence(CitedLines):
    """Another passage that says the same as a hit, or an older one about the same."""

    source: Source
    timestamp: str
    """Time of the text (ISO 8601)."""


@frozen
class FactValidity:
    """Time in which the fact of a hit holds, as its line says. Days are dates (ISO 8601)."""

    holds: bool
    """True if it holds now, or did at the time that the search is about."""
    since: str | None = None
    """First day on which it holds."""
    until: str | None = None
    """First day on which it no longer holds."""
    was: str | None = None
    """What held before, in the words of the line."""
    replaced_by: str | None = None
    """Citation of the line that took its place."""
    before: tuple[str, ...] = ()
    """Citations of the lines that it took the place of, the latest first."""


@frozen
class Hit(CitedLines):
    """A passage that answers a query, and how it was found.

    ``path`` and the lines are where it is; ``citation`` is both in one text, which `Memory.read` accepts. ``score`` is
    from 0 to 1; its ``parts`` add up to it. ``timestamp`` is a datetime in local time.
    """

    score: float
    vector_score: float | None
    text_score: float | None
    snippet: str
    source: Source
    timestamp: dt.datetime
    """Local time of the text: of its entry, or ``created`` in the note's properties, or the date of a daily note,
    or the last change of the file."""
    heading: str = ""
    """Headings above it; for a conversation, channel:person."""
    parts: tuple[ScorePart, ...] = ()
    session_key: str | None = None
    channel: str | None = None
    listed: bool = False
    """True in a list of a time, where nothing is ranked: the score is 1."""
    grade: Grade = "strong"
    """How sure the search is of this hit. Recency and time words move a hit up, but do not change its grade."""
    also_in: tuple[Occurrence, ...] = ()
    """Messages that repeat this note."""
    newer_than: tuple[Occurrence, ...] = ()
    """Older passages about the same with other values."""
    project: str | None = None
    """Project that the note or conversation belongs to; None if it is shared."""
    title: str | None = None
    """Title of the conversation. None for a note, and for a conversation without one."""
    other_words: tuple[str, ...] = ()
    """Words of it that stand for words of the query, such as database for databse."""
    validity: FactValidity | None = None
    """When the fact holds that matches best; None if its line does not say."""
    further: tuple[Hit, ...] = ()
    """Further passages of the same note, best first. A note is one hit, however many of its passages match."""


@frozen
class SeenTail:
    """The end of a transcript, from a line on, that the caller of a search has before it."""

    path: str
    """Path by which a search cites the transcript."""
    first_line: int

    def has(self, hit: Hit) -> bool:
        return hit.path == self.path and hit.end_line >= self.first_line


DropReason = Literal[
    "unrelated",
    "below min_score",
    "beyond max_results",
    "near-duplicate",
    "shown with a better hit",
    "asks the same",
    "gone from disk",
    "later than as_of",
]


@frozen
class Dropped:
    """A candidate that was not returned, and the reason."""

    citation: str
    score: float
    reason: DropReason


@frozen
class ListedPeriod:
    """The time that a list of hits is from."""

    since: dt.datetime | None
    """Local time; None has no beginning."""
    until: dt.datetime | None
    """The first moment after it."""
    text: str
    """How the query was read: "yesterday = 2026-11-15"."""
    total: int
    """Number of entries from that time. The hits are the latest of them."""


@frozen
class SearchResult:
    """Hits, best first. Iterate over it, or index it."""

    hits: tuple[Hit, ...]
    degraded: tuple[str, ...] = ()
    """Problems to show to the user. Empty if everything worked."""
    provider: str = "none"
    model: str | None = None
    took_ms: float = 0.0
    dropped: tuple[Dropped, ...] = ()
    period: ListedPeriod | None = None
    """Set if the query was only a time: the hits are a list of that time, oldest first."""

    @property
    def passages(self) -> tuple[Hit, ...]:
        """All passages in reading order: each hit, and then the further passages of its note."""
        return tuple(passage for hit in self.hits for passage in (hit, *hit.further))

    @property
    def answered(self) -> Literal["yes", "unsure", "no"]:
        """Whether the hits answer the query: "yes" with a strong hit, "unsure" with a likely one, else "no"."""
        grades = {hit.grade for hit in self.hits}
        return "yes" if "strong" in grades else "unsure" if "likely" in grades else "no"

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __getitem__(self, index: int) -> Hit:
        return self.hits[index]

    def __len__(self) -> int:
        return len(self.hits)


@frozen
class Passage:
    """Lines of a note or a transcript, as `kept get` shows them."""

    path: str
    start: int
    lines: int
    text: str
    truncated: bool = False
    next_from: int | None = None


FactRelation = Literal["repeats", "changes", "restates"]
"""How a new fact relates to an old one: it has the same words, another value, or says the same in other words."""


@frozen
class NearFact(CitedLines):
    """A line that a new fact repeats, or seems to change."""

    text: str
    relation: FactRelation
    digest: str
    """Digest of its lines, as in ``reference``."""

    @property
    def reference(self) -> str:
        """Citation with the digest: `Memory.add` replaces the line only if it still reads the same."""
        return f"{self.citation}@{self.digest}"


@frozen
class Written(CitedLines):
    """Lines of a note that were added."""

    is_new: bool = True
    """False if nothing was written, because these lines say the same already."""
    replaced: str | None = None
    """Citation of the line that the new one replaces. It is struck through and dated."""
    near: tuple[NearFact, ...] = ()
    """Lines that the text repeats or seems to change, repetitions first."""
    degraded: tuple[str, ...] = ()
    """Reasons why the history lacks the change, although the note has it."""
    review: str | None = None
    """Id of the change in the review, if a person reviews it."""
    is_proposed: bool = False
    """True if nothing was written yet, because a person has to accept it first. There are no lines then."""
    is_waiting: bool = False
    """True if the server could not be reached: this machine sends the text later, and there is no note yet."""

    @property
    def citation(self) -> str:
        return self.path if self.is_proposed or self.is_waiting else cite(self.path, self.start_line, self.end_line)


def grade_of(relevance: float) -> Grade:
    """Return the grade of a relevance. Rounding tolerance: a relevance equal to a bound reaches it."""
    relevance += 1e-9
    return "strong" if relevance >= STRONG_FROM else "likely" if relevance >= LIKELY_FROM else "weak"
