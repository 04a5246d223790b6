"""Repetitions: passages that repeat the query, a note, or each other in other words. All of this is pure.

- A question that asks the same as the query does not answer it. For a question it is left out; otherwise it comes last.
- An answer that an agent gave from memory comes after a note that has as much of the query: the note is where it is
  from, and may have changed since.
- A message that repeats a note is shown below it, as a further occurrence.
- Of several statements about the same with different values, the newest comes first, and names those it is newer than.

The comparisons go by content words: without stop words, and numbers apart, because these are what changes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field

from kept.base.values import frozen
from kept.base.words.stopwords import content_words
from kept.index.sqlite.rows import ChunkRow
from kept.notes.fact_changes import differ
from kept.notes.facts import read_fact
from kept.search.candidates import MESSAGE_LABEL, NO_WORDS, CandidatePool
from kept.search.scores import Scored

MAX_COMPARED = 16
"""Best candidates that are compared with each other."""
MAX_DATED = 10
"""Best candidates among which a newer one comes first."""
_CHAIN = 3
"""Older statements about the same from which on a newer one is looked for among all candidates."""
_SAME_COVERAGE = 0.05
_MORE_NOTES = 8
_CONTEXT_MESSAGES = 2
_RESTATED_SHARE = 0.75
"""A question that shares this much of its words with the query asks the same."""
_REPEATED_SHARE, _RECALLED_SHARE = 0.8, 0.6
"""Share of a message's words in a note from which it repeats the note. An agent that answers from memory adds words."""
_MIN_REPEATED_WORDS, _MAX_REPEATING_CHARS = 3, 600
_AS_MUCH = 0.75
"""A note has as much of the query as a message if its coverage is at least this share of the message's reach."""
_SAME_SUBJECT, _SAME_ANSWER = 0.6, 0.5
"""Share of common words from which two statements are about the same; the second if both have the whole query."""
_MAX_LENGTH_RATIO = 3
_MIN_APART_MS = 60_000

_CITATION = r"\S+#L\d+(?:-L?\d+)?"
_STATEMENT_ENDS = r"\n\s*\n|\n(?=\s*(?:[-*+#>]|\d+[.)])\s)"
_ENTRY_TIME = r"(?:^| > )\d{1,2}:\d\d[^>]*$"
_QUESTION_WORDS = frozenset(
    "who whom whose what when where which why how wer wem wen was wo wann warum wie welche welcher welches qui quoi où"
    " quand comment pourquoi quel quelle quién qué dónde cuándo cómo cuál chi cosa dove quando perché quale wat waar"
    " wanneer waarom hoe кто что где когда почему как".split()
)
_SAYING = frozenset("according note notes memory say says said remember recall recorded wrote written".split())


def is_question(text: str) -> bool:
    """Return whether a text asks: it ends with a question mark, or begins with a question word."""
    text = text.strip()
    if text.endswith(("?", "？", "؟")):
        return True
    first = re.match(r"\w+", text)
    return first is not None and first[0].lower() in _QUESTION_WORDS


def spoken_text(chunk: ChunkRow) -> str:
    """Return what is said in a message, without speaker and time."""
    return re.sub(f"^{MESSAGE_LABEL}", "", chunk.text)


def tells_nothing(snippet: str, query: str) -> bool:
    """Return whether a part of a conversation only asks, or has no content word that is not in the query."""
    texts = re.split(f"(?m)^{MESSAGE_LABEL}", snippet)[::3]  # between them are the groups of the label
    texts = [text for text in texts if text.strip()]
    return all(map(is_question, texts)) or content_words(" ".join(texts)) <= content_words(query)


# questions


def find_repeated_questions(pool: CandidatePool, query_text: str) -> frozenset[int]:
    """Return the messages that do nothing but ask what the query asks."""
    wanted: frozenset[str] | None = None
    rows = []
    for row, hit in pool.text.items():
        chunk = pool.chunks[row]
        if chunk.source != "sessions" or hit.coverage < 0.5 or len(chunk.text) > 500:
            continue
        text = spoken_text(chunk)
        if is_question(text):
            wanted = content_words(query_text) if wanted is None else wanted
            words = content_words(text)
            if words and len(words & wanted) >= _RESTATED_SHARE * len(words):
                rows.append(row)
    return frozenset(rows)


def find_bystanders(pool: CandidatePool, rows: Iterable[int], *, same_speaker: bool = False) -> frozenset[int]:
    """Return the messages around these that have no word of the query themselves. With ``same_speaker``, only those of
    the same person: what another says after a question may be the answer."""
    return frozenset(
        other.row
        for row in rows
        for other in pool.messages_around(row, _CONTEXT_MESSAGES)
        if pool.text.get(other.row, NO_WORDS).coverage == 0.0
        and not (same_speaker and pool.speakers[other.row] != pool.speakers[row])
    )


def move_last(ranked: Sequence[Scored], rows: frozenset[int], *, min_score: float) -> list[Scored]:
    """Put messages that only ask after everything else that passes ``min_score``."""
    others = [scored for scored in ranked if scored.chunk.row not in rows]
    end = sum(scored.relevance >= min_score for scored in others)
    if not end:
        return list(ranked)
    questions = [scored for scored in ranked if scored.chunk.row in rows]
    lowered = [scored.below(others[end - 1], "question", "it only asks the same") for scored in questions]
    return [*others[:end], *lowered, *others[end:]]


# order


@frozen
class Arrangement:
    """A ranking in which repetitions are settled."""

    ranked: list[Scored]
    repeats: Mapping[int, int] = field(default_factory=dict)
    """Row of a message that repeats a note, and row of that note."""
    newer_than: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Row of a passage, and rows of older ones about the same, newest first."""
    bystanders: frozenset[int] = frozenset()
    """Rows of messages that are only found because a neighbour repeats a note."""


def arrange(
    ranked: Sequence[Scored], pool: CandidatePool, query_text: str, *, min_score: float, by_time: bool
) -> Arrangement:
    """Settle the repetitions among the best candidates. ``by_time`` puts newer statements before older ones."""
    if len(ranked) < 2 or ranked[0].relevance < min_score:
        return Arrangement(list(ranked))
    if pool.messages:
        ranked = _yield_to_notes(ranked)
    best, rest = list(ranked[:MAX_COMPARED]), ranked[MAX_COMPARED:]
    statements = _Statements(content_words(query_text))
    repeats: dict[int, int] = {}
    newer_than: dict[int, list[int]] = {}
    if any(scored.chunk.source == "sessions" for scored in best):  # many messages may have crowded out the notes
        best += [scored for scored in rest if scored.chunk.source != "sessions"][:_MORE_NOTES]
        best, repeats = _put_notes_first(best, statements)
    if by_time:
        best, newer_than = _put_newest_first(best, statements, repeats.keys(), min_score=min_score)
        if len(newer_than.get(best[0].chunk.row, ())) >= _CHAIN:
            best = _lift_newest(best, rest, statements, newer_than)
    rows = {scored.chunk.row for scored in best}
    ordered = [*best, *(scored for scored in rest if scored.chunk.row not in rows)]
    bystanders = find_bystanders(pool, repeats) if repeats else frozenset[int]()
    return Arrangement(_sorted(ordered), repeats, newer_than, bystanders)


def _yield_to_notes(ranked: Sequence[Scored]) -> list[Scored]:
    """Lower each answer that an agent gave from memory below the best note that has as much of the query."""
    notes = [scored for scored in ranked if scored.chunk.source != "sessions"]
    if not notes:
        return list(ranked)
    ordered = []
    for scored in ranked:
        if scored.chunk.is_recalled:
            needed = _AS_MUCH * scored.evidence.reach
            note = next((note for note in notes if note.evidence.coverage >= needed), scored)
            if note.score < scored.score:
                scored = scored.below(note, "recalled", "an agent said it from memory")
        ordered.append(scored)
    return _sorted(ordered)


def _put_notes_first(ranked: Sequence[Scored], statements: _Statements) -> tuple[list[Scored], dict[int, int]]:
    """Lift notes that messages repeat above these. Return the ranking, and the note that each such message repeats."""
    ordered = list(ranked)
    repeats: dict[int, int] = {}
    notes = [scored for scored in ranked if scored.chunk.source != "sessions"]
    for scored in ranked:
        coverage = scored.evidence.coverage
        if scored.chunk.source != "sessions" or coverage == 0.0:
            continue
        # A note with fewer words of the query does not say the same. This spares most comparisons.
        full = [note.chunk for note in notes if note.evidence.coverage >= coverage]
        if note := statements.find_repeated(scored.chunk, full):
            repeats[scored.chunk.row] = note.row
            _move_before(ordered, note, [scored.chunk], "repeated", "a conversation says it too")
    return ordered, repeats


def _put_newest_first(
    ranked: Sequence[Scored], statements: _Statements, left_out: Collection[int], *, min_score: float
) -> tuple[list[Scored], dict[int, list[int]]]:
    """Move each statement before the older ones about the same. Return the ranking, and what each is newer than."""
    ordered = list(ranked)
    newer_than: dict[int, list[int]] = {}
    passing = [scored for scored in ranked if scored.relevance >= min_score and scored.chunk.row not in left_out]
    passing = passing[:MAX_DATED]
    for scored in passing:
        older = [other.chunk for other in passing if statements.is_newer(scored, other)]
        if older:
            newer_than[scored.chunk.row] = [chunk.row for chunk in sorted(older, key=_age)]
            _move_before(ordered, scored.chunk, older, "newer", "newer than {}")
    return ordered, newer_than


def _lift_newest(
    best: list[Scored], rest: Sequence[Scored], statements: _Statements, newer_than: dict[int, list[int]]
) -> list[Scored]:
    """Put the newest statement first if the best one is one of many about the same. It may be among all the others."""
    top = best[0]
    newer = [scored for scored in (*best[1:], *rest) if statements.is_newer(scored, top)]
    if not newer:
        return best
    newest = min(newer, key=lambda scored: _age(scored.chunk))
    newer_than[newest.chunk.row] = [top.chunk.row, *newer_than.get(top.chunk.row, ())]
    lifted = newest.at_least(top.score, top.relevance, "newer", f"newer than {top.chunk.citation}")
    return [lifted, *(scored for scored in best if scored is not newest)]


def _sorted(scored: Iterable[Scored]) -> list[Scored]:
    """Sort by score, best first. Rounding errors must not undo the order of equals."""
    return sorted(scored, key=lambda item: -round(item.score, 9))


def _move_before(ordered: list[Scored], chunk: ChunkRow, others: Iterable[ChunkRow], name: str, why: str) -> None:
    """Move a candidate before all of the others, with at least the score of the best, unless it is there already."""
    rows = [scored.chunk.row for scored in ordered]
    at, to = rows.index(chunk.row), min(rows.index(other.row) for other in others)
    if at > to:
        best = ordered[to]
        moved = ordered.pop(at).at_least(best.score, best.relevance, name, why.format(best.chunk.citation))
        ordered.insert(to, moved)


def _age(chunk: ChunkRow) -> tuple[int, int]:
    return -chunk.timestamp_ms, -chunk.start_line


# comparing


@frozen
class _Statements:
    """The statements of the best candidates by their content words. Each is worked out once."""

    query_words: frozenset[str]
    by_row: dict[int, dict[frozenset[str], str]] = field(default_factory=dict)

    def find_repeated(self, chunk: ChunkRow, notes: Iterable[ChunkRow]) -> ChunkRow | None:
        """Return the first note with a statement that says everything that a message says, or None."""
        text = spoken_text(chunk)
        if len(text) > _MAX_REPEATING_CHARS or is_question(text):
            return None
        # A note that lacks two of the longest words need not be split into statements.
        # Not a set: of words of one length, the same three must be taken in every process.
        longest = sorted(dict.fromkeys(re.findall(r"\w+", text.lower())), key=len)[-3:]
        notes = [note for note in notes if sum(word in note.text.lower() for word in longest) >= len(longest) - 1]
        if not notes:
            return None
        words = frozenset[str]().union(*self._all(chunk))
        if chunk.is_recalled:
            words -= _SAYING
        if len(words) < _MIN_REPEATED_WORDS:
            return None
        least = (_RECALLED_SHARE if chunk.is_recalled else _REPEATED_SHARE) * len(words)
        numbers = {word for word in words if word.isdigit()}
        for note in notes:
            if any(numbers <= other and len(words & other) >= least for other in self._all(note)):
                return note
        return None

    def is_newer(self, newer: Scored, older: Scored) -> bool:
        """Return whether a passage says something newer about the same: by a person, and something else."""
        # Statements about the same have the same words of the query.
        if abs(newer.evidence.coverage - older.evidence.coverage) >= _SAME_COVERAGE:
            return False
        chunk, other, apart_ms = newer.chunk, older.chunk, newer.chunk.timestamp_ms - older.chunk.timestamp_ms
        is_later = apart_ms >= _MIN_APART_MS
        if apart_ms == 0 and chunk.path == other.path:  # entries of one minute in a log
            is_later = chunk.start_line > other.start_line and bool(re.search(_ENTRY_TIME, chunk.heading))
        if not is_later:
            return False
        speaker, other_speaker = _speaker(chunk), _speaker(other)
        if speaker == "assistant" or (speaker and other_speaker not in ("", speaker, "assistant")):
            return False
        (words, text), (other_words, other_text) = self._statement(chunk), self._statement(other)
        if words <= other_words or other_words <= words:
            return False  # the same, or one of them in more detail
        new, old = words - other_words, other_words - words
        if speaker and other_speaker and not all(any(map(str.isdigit, side)) for side in (new, old)):
            return False  # people repeat themselves in talk: only numbers show that it is about the same
        left, right = (frozenset(word for word in side if not word.isdigit()) for side in (words, other_words))
        return self._is_same_subject(left, right) and differ(read_fact(text), read_fact(other_text))

    def _is_same_subject(self, left: frozenset[str], right: frozenset[str]) -> bool:
        query_words = left & self.query_words
        shorter, longer = sorted((len(left), len(right)))
        if shorter < 2 or longer > _MAX_LENGTH_RATIO * shorter or query_words != right & self.query_words:
            return False
        has_all = len(query_words) >= 2 and query_words >= self.query_words
        return len(query_words) > 0 and len(left & right) >= (_SAME_ANSWER if has_all else _SAME_SUBJECT) * shorter

    def _statement(self, chunk: ChunkRow) -> tuple[frozenset[str], str]:
        """Return the statement of a passage with the most words of the query: its words and its text."""
        nothing = frozenset[str](), ""
        return max(self._all(chunk).items(), key=lambda item: len(item[0] & self.query_words), default=nothing)

    def _all(self, chunk: ChunkRow) -> dict[frozenset[str], str]:
        """Return the texts of the statements of a passage by their words."""
        if chunk.row not in self.by_row:
            text = re.sub(_CITATION, "", spoken_text(chunk) if chunk.source == "sessions" else chunk.text)
            pieces = [piece for piece in re.split(_STATEMENT_ENDS, text) if not piece.lstrip().startswith("#")]
            self.by_row[chunk.row] = {words: piece for piece in pieces if (words := content_words(piece))}
        return self.by_row[chunk.row]


def _speaker(chunk: ChunkRow) -> str:
    """Return the speaker in lower case, or nothing for a note."""
    label = re.match(MESSAGE_LABEL, chunk.text) if chunk.source == "sessions" else None
    return label["speaker"].lower() if label else ""
