"""Protocols of a store of the index. SQLite and PostgreSQL each implement them.

They are named after what callers need. Ranking, evidence, grades and explanations are above them, in one code for all
stores. `phrases` and `rows` have the values that go in and out. Nothing here is imported while Kept runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from kept.errors import StoreError
from kept.records import Filter, Source
from kept.store.file_list import ListedRow, Opening
from kept.store.integrity import Finding
from kept.store.note_tables import LinkRow
from kept.store.phrases import AllOf, CountedPhrase, KeywordMatch, Phrase
from kept.store.rows import ChunkRow, FileRow, FileWrite, IndexCounts

T = TypeVar("T")


class PhraseMatcher(Protocol):
    """The phrases of one query."""

    def find_best(self, limit: int, filters: Filter) -> list[int]:
        """Return the best chunks by BM25 of text and context."""

    def count(self, best: Sequence[int], others: Sequence[int]) -> tuple[list[KeywordMatch], float]:
        """Return how often rows have each phrase, without rows that have none, and the mean length of a chunk.
        ``best`` are rows that `find_best` returned."""


class StoredWords(Protocol):
    """Which chunks of the live generation have which words."""

    def stems(self, text: str) -> list[str]: ...

    def prepare(self, texts: Iterable[str]) -> None:
        """Read what will be asked about these texts at once, where each question is a way to a server."""

    def document_frequency(self, stem: str) -> int: ...

    def document_frequencies(self, stems: Iterable[str]) -> dict[str, int]: ...

    def stems_starting(self, start: str, *, limit: int) -> list[str]: ...

    def texts_with(self, stem: str, *, limit: int) -> list[str]: ...

    def notes_with(self, stem: str, *, limit: int) -> list[str]: ...

    def phrase_frequency(self, phrase: Phrase, *, cap: int) -> int: ...

    def chunk_count(self) -> int: ...

    def remember(self, key: Hashable, work_out: Callable[[], T]) -> T: ...

    def search(self, groups: Sequence[Sequence[CountedPhrase]], *, match_all: bool) -> PhraseMatcher: ...

    def best_with_all(
        self, query: AllOf, *, weights: tuple[float, float], limit: int, filters: Filter
    ) -> list[int]: ...


class StoredVectors(Protocol):
    """Codes of vectors by row."""

    def put(self, codes: Iterable[tuple[int, bytes]]) -> None: ...

    def count(self) -> int: ...

    def nearest(
        self, code: bytes, limit: int, *, among: Sequence[int] | None = None, generation: object = None
    ) -> list[tuple[int, float]]: ...

    def similarities(
        self,
        code: bytes,
        rows: Sequence[int],
        *,
        limit: int | None = None,
        allowed: set[int] | None = None,
        generation: object = None,
    ) -> list[tuple[int, float]]: ...


class StoredNotes(Protocol):
    """Names, tags and links of notes."""

    def paths_named(self, key: str) -> list[tuple[str, int]]: ...

    def names_of(self, path: str) -> list[tuple[str, str]]: ...

    def find_title(self, path: str) -> str | None: ...

    def given_titles(self, paths: Iterable[str]) -> dict[str, list[str]]: ...

    def tags_of(self, path: str) -> list[str]: ...

    def paths_tagged(self, tag: str) -> list[str]: ...

    def links_from(self, path: str) -> list[tuple[str, LinkRow]]: ...

    def links_by_key(self, keys: Iterable[str]) -> list[tuple[str, LinkRow]]: ...

    def all_links(self) -> list[tuple[str, LinkRow]]: ...


class StoredLists(Protocol):
    """Lists of files."""

    def by_time(self, filters: Filter, limit: int, offset: int = 0) -> tuple[list[ListedRow], int]: ...

    def by_change(self, filters: Filter, limit: int, offset: int = 0) -> tuple[list[ListedRow], int]: ...

    def find_opening(self, row: ListedRow) -> Opening | None: ...

    def count_days(self, filters: Filter) -> list[tuple[str, Source, int]]: ...

    def note_headings(self) -> dict[str, str]: ...

    def note_paths(self) -> list[str]: ...

    def channels(self, filters: Filter) -> list[str]: ...

    def has_file(self, filters: Filter) -> bool: ...

    def entry_rows(self, filters: Filter) -> list[tuple[int, str, str, int]]: ...


class StoredGeneration(Protocol):
    """Files and chunks: the live ones, or those that a rebuild fills. Callers hold the transaction."""

    @property
    def vectors(self) -> StoredVectors: ...

    @property
    def notes(self) -> StoredNotes: ...

    @property
    def lists(self) -> StoredLists: ...

    # files

    def file_rows(self) -> dict[tuple[str, str], FileRow]: ...

    def file_states(self) -> set[Any]: ...

    def has_racy_files(self, tick_ns: int, *, but: str | None = None) -> bool: ...

    def note_warnings(self) -> list[tuple[str, str]]: ...

    def touch_file(self, file: FileRow, timestamp_ms: int | None) -> None: ...

    def replace_file(self, write: FileWrite) -> int: ...

    def replace_files(
        self, writes: Sequence[FileWrite], find_code: Callable[[bytes], bytes | None] | None = None
    ) -> int:
        """Replace files, with the vectors of chunks whose codes are found by the hash of their text."""

    def remove_file(self, source: str, path: str) -> int: ...

    def remove_files(self, files: Sequence[tuple[str, str]]) -> int: ...

    def conversation_titles(self, paths: Collection[str]) -> dict[str, str]: ...

    # chunks

    def get_chunks(self, rows: Iterable[int]) -> dict[int, ChunkRow]: ...

    def chunks_around(self, chunk: ChunkRow, *, lines: int) -> list[ChunkRow]: ...

    def spans(self, source: str, path: str, first_line: int, last_line: int) -> list[tuple[int, int]]: ...

    def rows_awaiting_vector(self, source: str, path: str, *, after_line: int = 0) -> list[tuple[int, bytes]]: ...

    def files_awaiting_vectors(self) -> set[tuple[str, str]]: ...

    def rows_matching(self, filters: Filter) -> list[int]: ...

    def count_chunks(self) -> int: ...

    def count_tags(self, filters: Filter) -> list[tuple[str, str, int]]: ...

    def count_by_source(self, filters: Filter) -> dict[str, dict[str, int]]: ...

    def counts(self) -> IndexCounts: ...

    def optimise(self, *, changed_chunks: int) -> None: ...


class StoredEmbeddings(Protocol):
    """Embeddings by embedder and text, kept across rebuilds. Callers hold the transaction."""

    def find(self, identity: str, hashes: Iterable[bytes], dims: int) -> Mapping[bytes, bytes]: ...

    def put(self, identity: str, vectors: Iterable[tuple[bytes, bytes]], *, now_s: int) -> None: ...

    def mark_used(self, identity: str, hashes: Iterable[bytes], *, now_s: int) -> None: ...

    def capacity(self, max_entries: int) -> int:
        """Return how many entries the cache holds if each workspace that uses it may have so many."""

    def evict(self, max_entries: int) -> int: ...

    def count(self) -> int: ...


class StoredIndex(Protocol):
    """The index of one workspace. Threads that share it need a lock of their own."""

    @property
    def path(self) -> str:
        """Where it is, for messages: the path of a file, or the name of a database without secrets."""

    @property
    def batch_scale(self) -> int:
        """How many times more a transaction should write than suits a file."""

    @property
    def why_read_only(self) -> StoreError | None: ...

    @property
    def live(self) -> StoredGeneration: ...

    @property
    def words(self) -> StoredWords: ...

    @property
    def cache(self) -> StoredEmbeddings: ...

    def close(self) -> None: ...

    def is_current(self) -> bool:
        """Return whether this is still the index of the workspace. It may have been deleted or replaced."""

    def reading(self) -> AbstractContextManager[None]:
        """Run several reads that see one state."""

    def writing(self) -> AbstractContextManager[None]:
        """Run a transaction that writes."""

    def indexing(self, *, wait_s: float) -> AbstractContextManager[None]:
        """Keep other processes from indexing the same workspace. Raise LockBusy if one does so for ``wait_s``."""

    def get_meta(self, key: str) -> Any: ...

    def put_meta(self, key: str, value: Any) -> None: ...

    def stored_identity(self) -> str | None: ...

    def generation_number(self) -> int: ...

    def begin_generation(self) -> StoredGeneration: ...

    def switch_to(self, building: Any) -> None: ...

    def drop_leftovers(self) -> None: ...

    def size_bytes(self) -> int: ...

    def find_damage(self) -> list[Finding]:
        """Return what is wrong with the index. Reads all of it."""

    def check_if_quick(self) -> None:
        """Raise StoreDamaged if the index is damaged, unless checking would take long."""

    def describe_checks(self) -> str:
        """Return what protects the stored bytes, for people."""
