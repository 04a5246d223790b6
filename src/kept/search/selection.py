"""Choosing the hits from the ranking: the threshold, one hit for each note, near-duplicates, and the text of a hit.

An utterance alone is short, and often means nothing without the one it answers. So its neighbours are shown with it, as
many as a snippet has room for, those that fit the query better first. The cited lines are those that are shown, and no
utterance is shown twice. A snippet is the part of a longer text with the most matches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field

from kept.base.records import GRADES, DropReason, Filter, grade_of
from kept.base.values import frozen
from kept.index.sqlite.rows import ChunkRow
from kept.search.candidates import MESSAGE_LABEL
from kept.search.scores import Scored
from kept.search.weights import UNRELATED_BELOW

MAX_CHARS = 700
"""Characters in a snippet."""
DUPLICATE_SHARE = 0.85
"""Two texts that share this much of their words are near-duplicates."""
DUPLICATE_WORTH = 0.9
"""Share of its own score that a near-duplicate in another note is worth."""
_TOLERANCE = 1e-9
"""Rounding tolerance: a score equal to min_score passes, in whatever order its parts were added up."""
_NOTHING = 1e-6
"""A candidate with a word of the query is related if it has any relevance at all."""
_WORD = re.compile(r"\w+")

Neighbours = Callable[[ChunkRow], Sequence[ChunkRow]]
"""Returns the chunks around one in its file, itself included, in order."""
Window = tuple[ChunkRow, ...]
"""The chunks that are shown for a hit, in the order of their lines."""


def select_hits(
    ranked: Sequence[Scored],
    windows: Windows,
    *,
    min_score: float,
    max_results: int,
    repeats: Mapping[int, int],
    bystanders: Collection[int],
) -> Selection:
    """Return the hits, best first, and the reason why each other candidate is dropped.

    A note is one hit. Further passages of it are shown under its hit if they are among the best ``max_results``
    passages of all, so they never take the place of another note. A near-duplicate of a better hit goes after the
    other hits of its grade, but for those that fit much less, and is returned only if there is room. ``repeats`` has
    the row of the note that a message repeats: if the note is a hit, the message is a further occurrence of it, and
    ``bystanders``, which are found only by such messages, are left out.
    """
    selection = Selection(windows, max_results)
    for scored in ranked:
        row = scored.chunk.row
        # Related is what has a word in common with the query, or a similarity in meaning.
        if scored.relevance < (UNRELATED_BELOW if scored.text is None else _NOTHING):
            selection.dropped.append((scored, "unrelated"))
        elif repeats.get(row) in windows.shown:
            selection.also_in.setdefault(repeats[row], []).append(scored.chunk)
        elif scored.relevance < min_score - _TOLERANCE:
            selection.dropped.append((scored, "below min_score"))
        # What stands beside an echo of a note came up only because of the echo.
        elif selection.also_in and row in bystanders:
            selection.dropped.append((scored, "shown with a better hit"))
        else:
            selection.consider(scored)
    if selection.duplicates:
        selection.add_duplicates()
    return selection


@frozen
class Selection:
    """The hits that are chosen so far. Candidates are considered best first."""

    windows: Windows
    max_results: int
    hits: list[tuple[Scored, Window]] = field(default_factory=list)
    dropped: list[tuple[Scored, DropReason]] = field(default_factory=list)
    rows: set[int] = field(default_factory=set)
    """Rows of all hits and further passages."""
    also_in: dict[int, list[ChunkRow]] = field(default_factory=dict)
    """Row of a hit or of a further passage, and messages that repeat it and are shown below it."""
    further: dict[int, list[Scored]] = field(default_factory=dict)
    """Row of a hit, and further passages of the same note, best first."""
    duplicates: list[Scored] = field(default_factory=list)
    """Near-duplicates of hits that are waiting for the other hits of their grade."""
    _words: list[frozenset[str]] = field(default_factory=list)
    """Words of each passage that is shown, to compare others with."""
    _hit_of_note: dict[str, int] = field(default_factory=dict)
    """Path of a note, and row of its hit."""

    def consider(self, scored: Scored) -> None:
        if self.windows.shows(scored.chunk):
            self.dropped.append((scored, "shown with a better hit"))
        elif self._is_full(scored.chunk):
            self.dropped.append((scored, "beyond max_results"))
        else:
            words = frozenset(_WORD.findall(scored.chunk.text.lower()))
            if any(_are_alike(words, others) for others in self._words):
                self.duplicates.append(scored)
            else:
                # What waits has to be placed now: a candidate that fits less must not push it out.
                if self.duplicates:
                    self.add_duplicates(before=scored)
                self._add(scored, words, full="beyond max_results")

    def _is_full(self, chunk: ChunkRow) -> bool:
        """Return whether there is no room for a chunk: as a further passage of a hit, or as a hit."""
        return len(self.rows if chunk.path in self._hit_of_note else self.hits) >= self.max_results

    def _add(self, scored: Scored, words: frozenset[str], *, full: DropReason) -> None:
        chunk = scored.chunk
        if self._is_full(chunk):  # near-duplicates took the room
            self.dropped.append((scored, full))
            return
        self.rows.add(chunk.row)
        self._words.append(words)
        window = self.windows.open(chunk)
        hit_row = self._hit_of_note.get(chunk.path)
        if hit_row is not None:
            self.further.setdefault(hit_row, []).append(scored)
            return
        # A note is one hit with further passages. In a conversation, each message is about something of its own.
        if chunk.source != "sessions":
            self._hit_of_note[chunk.path] = chunk.row
        self.hits.append((scored, window))

    def add_duplicates(self, *, before: Scored | None = None) -> None:
        """Add the near-duplicates, or only those that are better than a candidate."""
        for scored in [other for other in self.duplicates if before is None or _is_better_duplicate(other, before)]:
            self.duplicates.remove(scored)
            if self.windows.shows(scored.chunk):
                self.dropped.append((scored, "shown with a better hit"))
            else:
                self._add(scored, frozenset(), full="near-duplicate")


def _is_better_duplicate(duplicate: Scored, other: Scored) -> bool:
    """Return whether a near-duplicate is of a better grade than another candidate, or fits much better: what repeats a
    passage of another note or conversation may still be the answer."""
    if GRADES.index(grade_of(duplicate.relevance)) < GRADES.index(grade_of(other.relevance)):
        return True
    if duplicate.unscaled is None or other.unscaled is None:
        return False
    return DUPLICATE_WORTH * duplicate.unscaled > other.unscaled


def _are_alike(left: frozenset[str], right: frozenset[str]) -> bool:
    if not left or not right:
        return left == right
    shared = len(left & right)
    return shared >= DUPLICATE_SHARE * (len(left) + len(right) - shared)


@frozen
class Windows:
    """The chunks shown for each hit. Open them in the order of the hits, so that the best hit chooses first."""

    neighbours: Neighbours
    scores: Mapping[int, float]
    filters: Filter
    shown: set[int] = field(default_factory=set)
    """Rows that are shown, as a hit or as the neighbour of one."""
    lines: set[tuple[str, int]] = field(default_factory=set)
    """Path and line of each message that is shown, whole or in part."""

    def shows(self, chunk: ChunkRow) -> bool:
        """Return whether a chunk is shown already, or another piece of the same message."""
        return chunk.row in self.shown or (chunk.path, chunk.start_line) in self.lines

    def open(self, chunk: ChunkRow) -> Window:
        """Return the chunk of a hit with the neighbours that are shown with it."""
        window = self._grow(chunk) if chunk.source == "sessions" else (chunk,)
        self.shown.update(shown.row for shown in window)
        if chunk.source == "sessions":
            self.lines.update((shown.path, shown.start_line) for shown in window)
        return window

    def _grow(self, chunk: ChunkRow) -> Window:
        around = self.neighbours(chunk)
        first = last = next(at for at, neighbour in enumerate(around) if neighbour.row == chunk.row)
        room = MAX_CHARS - len(chunk.text)
        while room > 0:
            fitting = [at for at in (last + 1, first - 1) if self._may_join(around, at, room)]
            if not fitting:
                break
            # Of two equal neighbours `max` takes the first, which is the later one: that is where an answer is.
            best = max(fitting, key=lambda at: self.scores.get(around[at].row, 0.0))
            room -= len(around[best].text) + 1
            first, last = min(first, best), max(last, best)
        return tuple(around[first : last + 1])

    def _may_join(self, around: Sequence[ChunkRow], at: int, room: int) -> bool:
        if not 0 <= at < len(around):
            return False
        neighbour, since, until = around[at], self.filters.since_ms, self.filters.until_ms
        # Pieces of one message are not joined: neither has the white space between them.
        beside = (around[near].start_line for near in (at - 1, at + 1) if 0 <= near < len(around))
        is_whole = neighbour.start_line not in beside
        fits = not self.shows(neighbour) and len(neighbour.text) < room
        is_since = since is None or neighbour.timestamp_ms >= since
        return is_whole and fits and is_since and (until is None or neighbour.timestamp_ms < until)


def make_message_snippet(text: str, words: Iterable[str]) -> str:
    """Return the part of a conversation that is shown. A part of a long message keeps its speaker and time."""
    label = re.match(MESSAGE_LABEL, text) if len(text) > MAX_CHARS else None
    if label is None:
        return make_snippet(text, words)
    head = label[0].removesuffix("… ")
    part = make_snippet(text[label.end() :], words, limit=MAX_CHARS - len(head) - 1)
    return f"{head}{'…' if label['continues'] and not part.startswith('…') else ''}{part}"


def make_snippet(text: str, words: Iterable[str], *, limit: int = MAX_CHARS) -> str:
    """Return the text if it is short, or else the part of it with the most matches, cut at lines or words."""
    if len(text) <= limit:
        return text
    start = _densest_window(text, words, limit)
    line_break = text.rfind("\n", max(0, start - 80), start + 1)
    space = text.rfind(" ", max(0, start - 40), start + 1)
    if line_break >= 0:
        start = line_break + 1
    elif space >= 0:  # the line is long
        start = space + 1
    end = min(len(text), start + limit)
    lead = "…" if start > 0 else ""
    tail = "…" if end < len(text) else ""
    return lead + text[start : end - len(lead) - len(tail)].strip() + tail


def _densest_window(text: str, words: Iterable[str], limit: int) -> int:
    """Return the start of the window with the most of the words, then with the most matches."""
    # A word is matched by its start, because endings may differ, but as a whole if it has a digit.
    spellings = (word for phrase in words for word in phrase.split())
    stems = {word if any(map(str.isdigit, word)) else word[: max(4, len(word) - 3)] for word in spellings}
    starts = _find_any(text, stems)
    best, best_count = 0, (0, 0)
    end = 0
    for at, (start, _) in enumerate(starts):
        end = max(end, at)
        while end < len(starts) and starts[end][0] < start + limit * 3 // 4:
            end += 1
        count = len({stem for _, stem in starts[at:end]}), end - at
        if count > best_count:
            best, best_count = start, count
    return max(0, best - limit // 8)  # a match is understood by what stands before it


def _find_any(text: str, stems: Iterable[str]) -> list[tuple[int, str]]:
    """Return where any of the stems begins in a text, in order, and which, without those inside another that begins
    before.

    Of several that begin at one place, the first in sorted order counts. A pattern of the stems would find the same,
    but compiling it takes longer.
    """
    lower = text.lower()
    if len(lower) != len(text):  # a few letters are two in lower case, and later positions would be wrong
        lower = "".join(letter.lower() if len(letter.lower()) == 1 else letter for letter in text)
    stem_at: dict[int, str] = {}
    for stem in map(str.lower, sorted(stems)):
        at = lower.find(stem)
        while at >= 0:
            stem_at.setdefault(at, stem)
            at = lower.find(stem, at + 1)
    starts: list[tuple[int, str]] = []
    end = 0
    for at in sorted(stem_at):
        if at >= end:
            starts.append((at, stem_at[at]))
            end = at + len(stem_at[at])
    return starts
