"""Values that several packages share. All are frozen, and have no behaviour beyond describing themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from typing import TYPE_CHECKING, Literal, NamedTuple

from kept.values import frozen

if TYPE_CHECKING:
    import datetime as dt

Source = Literal["memory", "sessions"]
SOURCES: tuple[Source, ...] = ("memory", "sessions")

Progress = Callable[[int, int, str], None]
"""Function that is called with completed, total and a label during long work."""


ENTRY_RULE = "* * *"
"""Line between two entries of a note that were added one after the other. Each is a passage of its own."""
PROJECTS_FOLDER = "memory/projects"
"""Folder in the workspace with the notes of projects, each in a folder of its own."""


PROJECT_MARKER = "PROJECT.md"
"""Note in the folder of a project that names its repository."""


def project_of_path(path: str) -> str | None:
    """Return the project that a note belongs to by its path in the workspace, or None for a shared one."""
    if path[: len(PROJECTS_FOLDER) + 1].lower() != f"{PROJECTS_FOLDER}/":  # some file systems ignore case
        return None
    name, slash, _ = path[len(PROJECTS_FOLDER) + 1 :].partition("/")
    return name if slash else None


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
class ProjectScope:
    """A project that a search is made in: its notes are preferred, and those of other projects are left out."""

    name: str
    """Empty outside all projects: then only what is shared is searched."""
    own_transcripts: frozenset[str] = frozenset()
    """Citations of the conversations in the project."""
    hidden_transcripts: frozenset[str] = frozenset()
    """Citations of the conversations in other projects."""


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
    transcript: str | None = None
    """Citation of the only transcript to search."""
    as_of_ms: int | None = None
    """First moment that is too late: what was written or said from then on is left out, and facts count as they held
    before. Undated notes stay, since nothing tells when their lines were written."""

    def __bool__(self) -> bool:
        named = self.sources or self.path or self.tags or self.is_conversation
        times = (self.since_ms, self.until_ms, self.as_of_ms)
        return bool(named or self.scope or any(moment is not None for moment in times))

    @property
    def is_conversation(self) -> bool:
        """True if only conversations can match."""
        return not (self.session_key is None and self.channel is None and self.transcript is None)


@frozen
class ScorePart:
    """One addend of a score: the parts of a hit add up to its score."""

    name: str
    value: float
    detail: str


Grade = Literal["strong", "likely", "weak"]
"""How sure a search is of a hit. Most strong hits are right, and most weak ones are not."""
GRADES: tuple[Grade, ...] = ("strong", "likely", "weak")
STRONG_FROM, LIKELY_FROM = 0.6, 0.25
"""Lowest relevance of a strong and of a likely hit. `benchmarks/calibration.py` and `kept bench` print how often hits
of each grade are right."""


def grade_of(relevance: float) -> Grade:
    """Return the grade of a relevance. Rounding tolerance: a relevance equal to a bound reaches it."""
    relevance += 1e-9
    return "strong" if relevance >= STRONG_FROM else "likely" if relevance >= LIKELY_FROM else "weak"


@frozen
class Occurrence:
    """Another passage that says the same as a hit, or an older one about the same."""

    path: str
    start_line: int
    end_line: int
    source: Source
    timestamp: str
    """Time of the text (ISO 8601)."""

    @property
    def citation(self) -> str:
        return cite(self.path, self.start_line, self.end_line)


@frozen
class FactValidity:
    """When the fact of a hit holds, as its line says. Days are dates (ISO 8601)."""

    holds: bool
    """True if it holds now, or did at the time that the search is about."""
    since: str | None = None
    """First day on which it holds."""
    until: str | None = None
    """First day on which it no longer holds."""
    was: str | None = None
    """What held before, in the words of the line."""
    checked: str | None = None
    """Day on which somebody saw that it holds."""
    replaced_by: str | None = None
    """Citation of the line that took its place."""
    before: tuple[str, ...] = ()
    """Citations of the lines that it took the place of, the latest first."""


@frozen
class Hit:
    """A passage that answers a query, and how it was found.

    ``path`` and the lines are where it is; ``citation`` is both in one text, which `Memory.read` accepts. ``score`` is
    from 0 to 1; its ``parts`` add up to it. ``timestamp`` is a datetime in local time.
    """

    path: str
    start_line: int
    end_line: int
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

    @property
    def citation(self) -> str:
        return cite(self.path, self.start_line, self.end_line)


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
class TagCount:
    """A tag, and the number of notes that have it or a tag below it."""

    tag: str
    notes: int


@frozen
class TagList:
    """The tags of all notes, in alphabetical order, each after the tags above it."""

    tags: tuple[TagCount, ...]
    degraded: tuple[str, ...] = ()
    """What did not work, for the user. Empty if everything did."""

    def __iter__(self) -> Iterator[TagCount]:
        return iter(self.tags)

    def __len__(self) -> int:
        return len(self.tags)


@frozen
class NoteLink:
    """A link from one note to another."""

    path: str
    """The note that it is in."""
    line: int
    target: str
    """As it is written, without the heading and the label."""
    resolved: str | None = None
    """Path of the note that it means, or None if there is no such note."""
    heading: str = ""
    label: str = ""
    is_embed: bool = False

    @property
    def is_broken(self) -> bool:
        return self.resolved is None

    @property
    def citation(self) -> str:
        return cite(self.path, self.line, self.line)


@frozen
class NoteLinks:
    """The links of one note."""

    path: str
    title: str
    outgoing: tuple[NoteLink, ...] = ()
    """Links in the note, in order."""
    incoming: tuple[NoteLink, ...] = ()
    """Links in other notes to it, by path and line."""
    degraded: tuple[str, ...] = ()
    """What did not work, for the user. Empty if everything did."""


@frozen
class BrokenLinks:
    """Links of all notes to notes that do not exist."""

    links: tuple[NoteLink, ...]
    degraded: tuple[str, ...] = ()
    """What did not work, for the user. Empty if everything did."""

    def __iter__(self) -> Iterator[NoteLink]:
        return iter(self.links)

    def __len__(self) -> int:
        return len(self.links)


@frozen
class FileSummary:
    """A note or a conversation in a list."""

    path: str
    source: Source
    title: str
    excerpt: str
    """The first words after the title, or the first that were said."""
    timestamp: dt.datetime
    """The local time that it is listed under: when its newest part was written or said, or its last change."""
    changed: dt.datetime
    """Local time of the last change of the file."""
    size: int
    """Bytes."""
    session_key: str | None = None
    channel: str | None = None


@frozen
class Listing:
    """Notes and conversations, newest first."""

    files: tuple[FileSummary, ...]
    total: int
    """Number of files that match, with those beyond the limit."""
    degraded: tuple[str, ...] = ()
    """What did not work, for the user. Empty if everything did."""

    def __iter__(self) -> Iterator[FileSummary]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)


@frozen
class SyncReport:
    """Counts and problems of one sync. ``ok`` is False if ``failures`` has any."""

    files: int = 0
    indexed: int = 0
    """Files whose text was new or changed."""
    removed: int = 0
    unchanged: int = 0
    chunks: int = 0
    embedded: int = 0
    """Texts that were embedded. Zero if all were in the cache."""
    cached: int = 0
    pending: int = 0
    """Chunks that are found by word but not yet by meaning, because the embedder failed."""
    rebuilt: str | None = None
    """Reason why the whole index was rebuilt, or None."""
    problems: tuple[Problem, ...] = ()
    failures: tuple[str, ...] = ()
    took_ms: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.failures


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
"""How a new fact relates to an old one: it has the same words, another value, or the same words in another order."""


@frozen
class NearFact:
    """A line that a new fact repeats, or seems to change."""

    path: str
    start_line: int
    end_line: int
    text: str
    relation: FactRelation
    digest: str
    """Digest of its lines, as in ``reference``."""

    @property
    def citation(self) -> str:
        return cite(self.path, self.start_line, self.end_line)

    @property
    def reference(self) -> str:
        """Citation with the digest: `Memory.add` replaces the line only if it still reads the same."""
        return f"{self.citation}@{self.digest}"


@frozen
class Written:
    """Lines of a note that were added."""

    path: str
    start_line: int
    end_line: int
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

    @property
    def citation(self) -> str:
        return self.path if self.is_proposed else cite(self.path, self.start_line, self.end_line)


@frozen
class Usage:
    """Usage of an embedder since it was created."""

    calls: int = 0
    """HTTP calls, including failed ones and retries."""
    retries: int = 0
    texts: int = 0
    tokens: int = 0
    """Count of the provider, or our estimate, which tends to be too high."""


@frozen
class Spending:
    """Usage of one embedder, on one day or by one command."""

    provider: str
    model: str
    day: str = ""
    calls: int = 0
    texts: int = 0
    tokens: int = 0
    cached: int = 0
    """Texts whose vectors were in the cache."""
    retries: int = 0
    cost_usd: float | None = None
    """None if the price is not known."""


@frozen
class BatchUnderWay:
    """Texts in a running job of a provider's batch API."""

    provider: str
    texts: int
    since: dt.datetime
    """Start of the job, local time."""


@frozen
class ModelSpending:
    """Usage of one chat model for one purpose, on one day or by one call."""

    provider: str
    model: str
    purpose: str
    day: str = ""
    calls: int = 0
    input: int = 0
    output: int = 0
    cached: int = 0
    """Input tokens that the provider had cached."""
    failures: int = 0

    @property
    def tokens(self) -> int:
        return self.input + self.output


@frozen
class Heal:
    """Repairs of a damaged derived file, on one day or just now."""

    file: str
    action: str
    """``mended`` inside the file, or ``replaced`` by a new one."""
    day: str = ""
    times: int = 0
    embeddings: int = 0
    """Embeddings that were salvaged from the damaged file."""
    lost: int = 0
    """Embeddings that could not be read, as far as they could be counted."""


@frozen
class Preview:
    """Work and cost of a sync that was not run."""

    texts: int
    cached: int
    to_embed: int
    tokens: int
    """Estimated."""
    provider: str
    model: str | None
    cost_usd: float | None
    files: int = 0
    removed: int = 0
    rebuild: str | None = None


@frozen
class Status:
    """The state of one agent's memory."""

    workspace: str
    index_path: str
    agent: str
    provider: str
    requested_provider: str
    model: str | None
    dims: int | None
    cache_max_entries: int
    backend: str = "builtin"
    """Backend that answers searches first."""
    files: int = 0
    chunks: int = 0
    source_counts: dict[str, dict[str, int]] = field(default_factory=dict)
    dirty: bool = False
    changed_files: int = 0
    pending: int = 0
    index_bytes: int = 0
    cache_entries: int = 0
    last_sync: dt.datetime | None = None
    """None if there was none."""
    spending: tuple[Spending, ...] = ()
    """Usage of embedders by day, oldest first."""
    batches: tuple[BatchUnderWay, ...] = ()
    model_spending: tuple[ModelSpending, ...] = ()
    """Usage of chat models by day, oldest first."""
    heals: tuple[Heal, ...] = ()
    """Repairs of the index or the session catalogue by day, oldest first."""
    model_budget_tokens: int | None = None
    model_tokens_today: int = 0
    degraded: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
