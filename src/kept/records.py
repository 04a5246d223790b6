"""Values that cross folders. All frozen; none of them knows how to do anything but describe itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Literal

from kept.values import frozen

Source = Literal["memory", "sessions"]
SOURCES: tuple[Source, ...] = ("memory", "sessions")

Progress = Callable[[int, int, str], None]
"""Called with completed, total and a label while something long is running."""


def cite(path: str, start_line: int, end_line: int) -> str:
    """How a passage is named: path#L3-L9, or path#L3 for one line."""
    return f"{path}#L{start_line}" if start_line == end_line else f"{path}#L{start_line}-L{end_line}"


@frozen
class SourceFile:
    """A note or a transcript as the file system shows it: enough to tell whether it changed, without reading it."""

    path: str
    """The name it is cited by: relative to the workspace, or absolute for an extra path outside it."""
    absolute: str
    source: Source
    size: int
    mtime_ns: int
    ctime_ns: int


@frozen
class Problem:
    """Something about one path that the user should know; the rest of the work went on."""

    path: str
    reason: str


@frozen
class Chunk:
    """A passage of a note. ``text`` is what is shown and cited, exactly lines ``start_line`` to ``end_line``."""

    start_line: int
    end_line: int
    text: str
    heading: str
    """The headings above it, outermost first, joined by ' > '."""
    embed_text: str
    """What is embedded: the heading path and the text below it. Neither line numbers nor the file's name are
    in it, so that shifting a text or renaming its file finds the embedding that is already there."""


@frozen
class Gap:
    """A text that got no vector, and why. Its row holds zeros, which are no vector: never store or compare them."""

    row: int
    reason: str
    temporary: bool
    """Whether asking again later can help. A text that the provider refuses stays refused."""


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
    """What a search is limited to. Empty fields do not limit."""

    sources: tuple[str, ...] = ()
    path: str | None = None
    """A glob over cited paths, where '*' crosses folders; or a path or folder by name."""
    since_ms: int | None = None
    until_ms: int | None = None
    session_key: str | None = None
    channel: str | None = None

    def __bool__(self) -> bool:
        named = self.sources or self.path or self.session_key is not None or self.channel is not None
        return bool(named or self.since_ms is not None or self.until_ms is not None)


@frozen
class ScorePart:
    """One addend of a score. The parts of a hit add up to its score."""

    name: str
    value: float
    detail: str


@frozen
class Hit:
    path: str
    start_line: int
    end_line: int
    score: float
    vector_score: float | None
    text_score: float | None
    snippet: str
    source: Source
    timestamp: str
    """When it was said, or written: the date of a daily note, else when the file was last changed (ISO 8601)."""
    heading: str = ""
    """The headings above it, or whose conversation it is from, as channel:person."""
    parts: tuple[ScorePart, ...] = ()
    session_key: str | None = None
    channel: str | None = None

    @property
    def citation(self) -> str:
        return cite(self.path, self.start_line, self.end_line)


DropReason = Literal[
    "below min_score", "beyond max_results", "near-duplicate", "shown with a better hit", "gone from disk"
]


@frozen
class Dropped:
    """A candidate that was not returned, and why."""

    citation: str
    score: float
    reason: DropReason


@frozen
class SearchResult:
    hits: tuple[Hit, ...]
    degraded: tuple[str, ...] = ()
    """What did not work, in words. Empty when everything did."""
    provider: str = "none"
    model: str | None = None
    took_ms: float = 0.0
    dropped: tuple[Dropped, ...] = ()

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)


@frozen
class SyncReport:
    files: int = 0
    indexed: int = 0
    """Files whose text was new or changed."""
    removed: int = 0
    unchanged: int = 0
    chunks: int = 0
    embedded: int = 0
    """Texts given to the embedder. Zero when the cache knew them all."""
    cached: int = 0
    pending: int = 0
    """Chunks that are found by word but not yet by meaning, because the embedder failed."""
    rebuilt: str | None = None
    """Why the whole index was built anew, when it was."""
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


@frozen
class Written:
    """Where a text that was added now stands."""

    path: str
    start_line: int
    end_line: int

    @property
    def citation(self) -> str:
        return cite(self.path, self.start_line, self.end_line)


@frozen
class Usage:
    """What an embedder has used since it was made."""

    calls: int = 0
    """HTTP calls, failed ones and retries among them."""
    retries: int = 0
    texts: int = 0
    tokens: int = 0
    """As the provider counts them; where it does not say, our estimate, which is rather too high."""


@frozen
class Spending:
    """What was asked of one embedder, on one day or by one command."""

    provider: str
    model: str
    day: str = ""
    calls: int = 0
    texts: int = 0
    tokens: int = 0
    cached: int = 0
    """Texts that did not have to be embedded, because their vectors were known."""
    retries: int = 0
    cost_usd: float | None = None
    """None where the price is not known."""


@frozen
class BatchUnderWay:
    """Texts that were given to a provider's batch API and whose vectors are not here yet."""

    provider: str
    texts: int
    since: str
    """When it was begun (ISO 8601)."""


@frozen
class ModelSpending:
    """What was asked of one chat model for one purpose, on one day or by one call."""

    provider: str
    model: str
    purpose: str
    day: str = ""
    calls: int = 0
    input: int = 0
    output: int = 0
    cached: int = 0
    """Tokens of the input that the provider had seen before."""
    failures: int = 0

    @property
    def tokens(self) -> int:
        return self.input + self.output


@frozen
class Heal:
    """How often a derived file was found damaged and mended, on one day or just now."""

    file: str
    action: str
    """``mended`` inside the file, or ``replaced`` by a new one."""
    day: str = ""
    times: int = 0
    embeddings: int = 0
    """Embeddings that the new file has from the damaged one."""
    lost: int = 0
    """Embeddings that could not be read, as far as they could be counted."""


@frozen
class Preview:
    """What a sync would do, and what that would cost."""

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
    """What answers searches first."""
    files: int = 0
    chunks: int = 0
    source_counts: dict[str, dict[str, int]] = field(default_factory=dict)
    dirty: bool = False
    changed_files: int = 0
    pending: int = 0
    index_bytes: int = 0
    cache_entries: int = 0
    last_sync: str | None = None
    spending: tuple[Spending, ...] = ()
    """What embedding has used, by day, oldest first."""
    batches: tuple[BatchUnderWay, ...] = ()
    model_spending: tuple[ModelSpending, ...] = ()
    """The same of chat models."""
    heals: tuple[Heal, ...] = ()
    """When the index or the catalogue of sessions was damaged and mended, by day, oldest first."""
    model_budget_tokens: int | None = None
    model_tokens_today: int = 0
    degraded: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
