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

from kept.base.records import ScorePart, cite
from kept.base.values import frozen
from kept.base.words.stopwords import content_words
from kept.index.sqlite.rows import ChunkRow
from kept.notes.fact_changes import differ
from kept.notes.facts import read_fact
from kept.search.candidates import CandidatePool
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
_BELOW = 1e-6

_LABEL = r"\[\d{4}-\d\d-\d\d \d\d:\d\d\] ([^:\n]{1,80}): (?:… )?"
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
    return re.sub(_LABEL, "", chunk.text, count=1) if chunk.text.startswith("[") else chunk.text


def tells_nothing(snippet: str, query: str) -> bool:
    """Return whether a part of a conversation only asks, or has no content word that is not in the query."""
    texts = re.split(f"^{_LABEL}", snippet, flags=re.MULTILINE)[::2]  # every second part is a speaker
    texts = [text for text in texts if text.strip()]
    return all(map(is_question, texts)) or content_words(" ".join(texts)) <= content_words(query)


# questions


def find_repeated_questions(pool: CandidatePool, query_text: str) -> frozenset[int]:
    """Return the messages that do nothing but ask what the query asks."""
    wanted: frozenset[str] | None = None
    rows = []
    for row, hit in pool.text.items():
        chunk = pool.chunks.get(row)
        if chunk is None or chunk.source != "sessions" or hit.coverage < 0.5 or len(chunk.text) > 500:
            continue
        text = spoken_text(chunk)
        if not is_question(text):
            continue
        wanted = content_words(query_text) if wanted is None else wanted
        words = content_words(text)
        if words and len(words & wanted) >= _RESTATED_SHARE * len(words):
            rows.append(row)
    return frozenset(rows)


def find_bystanders(pool: CandidatePool, rows: frozenset[int], *, same_speaker: bool = False) -> frozenset[int]:
    """Return the messages around these that have no word of the query themselves. With ``same_speaker``, only those of
    the same person: what another says after a question may be the answer."""
    bystanders: set[int] = set()
    for row in rows:
        for chunk in pool.messages_around(row, _CONTEXT_MESSAGES):
            hit = pool.text.get(chunk.row)
            is_wordless = hit is None or hit.coverage == 0.0
            if is_wordless and not (same_speaker and pool.speaker(chunk.row) != pool.speaker(row)):
                bystanders.add(chunk.row)
    return frozenset(bystanders)


def move_last(ranked: Sequence[Scored], rows: frozenset[int], *, min_score: float) -> list[Scored]:
    """Put messages that only ask after everything else that passes ``min_score``."""
    questions = [scored for scored in ranked if scored.candidate.row in rows]
    if not questions:
        return list(ranked)
    others = [scored for scored in ranked if scored.candidate.row not in rows]
    end = sum(scored.relevance >= min_score for scored in others)
    if not end:
        return list(ranked)
    least = others[end - 1]
    lowered = [_at_most(scored, least, ScorePart("question", 0.0, "it only asks the same")) for scored in questions]
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
    ranked: Sequence[Scored],
    pool: CandidatePool,
    query_text: str,
    *,
    min_score: float,
    by_time: bool,
) -> Arrangement:
    """Settle the repetitions among the best candidates. ``by_time`` puts newer statements before older ones."""
    if len(ranked) < 2 or ranked[0].relevance < min_score:
        return Arrangement(list(ranked))
    ranked = _yield_to_notes(ranked, pool.chunks)
    best, rest = ranked[:MAX_COMPARED], ranked[MAX_COMPARED:]
    if any(scored.candidate.is_utterance for scored in best):  # many messages may have crowded out the notes
        best += [scored for scored in rest if not scored.candidate.is_utterance][:_MORE_NOTES]
    statements = _Statements(pool.chunks, content_words(query_text))
    best, repeats = _put_notes_first(best, statements)
    newer_than: dict[int, list[int]] = {}
    if by_time:
        best, newer_than = _put_newest_first(best, statements, repeats.keys(), min_score=min_score)
        if len(newer_than.get(best[0].candidate.row, ())) >= _CHAIN:
            best, rest = _lift_newest(best, rest, statements, newer_than)
    rows = {scored.candidate.row for scored in best}
    ordered = [*best, *(scored for scored in rest if scored.candidate.row not in rows)]
    ordered.sort(key=lambda scored: -round(scored.score, 9))  # rounding errors must not undo the order
    bystanders = find_bystanders(pool, frozenset(repeats)) if repeats else frozenset[int]()
    return Arrangement(ordered, repeats, newer_than, bystanders)


def _yield_to_notes(ranked: Sequence[Scored], chunks: Mapping[int, ChunkRow]) -> list[Scored]:
    """Lower each answer that an agent gave from memory below the best note that has as much of the query."""
    notes = [scored for scored in ranked if not scored.candidate.is_utterance]
    if not notes or len(notes) == len(ranked):
        return list(ranked)
    ordered = []
    for scored in ranked:
        if chunks[scored.candidate.row].is_recalled:
            needed = _AS_MUCH * scored.candidate.evidence.reach
            note = next((note for note in notes if note.candidate.evidence.coverage >= needed), None)
            if note is not None and note.score < scored.score:
                scored = _at_most(scored, note, ScorePart("recalled", 0.0, "an agent said it from memory"))
        ordered.append(scored)
    return sorted(ordered, key=lambda scored: -scored.score)


def _put_notes_first(ranked: Sequence[Scored], statements: _Statements) -> tuple[list[Scored], dict[int, int]]:
    """Lift notes that messages repeat above these. Return the ranking, and the note that each such message repeats."""
    ordered = list(ranked)
    repeats: dict[int, int] = {}
    notes = [scored for scored in ranked if not scored.candidate.is_utterance]
    for scored in ranked if notes else ():
        coverage = scored.candidate.evidence.coverage
        if not scored.candidate.is_utterance or coverage == 0.0:
            continue
        row = scored.candidate.row
        # A note with fewer words of the query does not say the same. This spares most comparisons.
        full = [note.candidate.row for note in notes if note.candidate.evidence.coverage >= coverage]
        note_row = statements.find_repeated(row, full)
        if note_row is None:
            continue
        repeats[row] = note_row
        at, to = (_index_of(ordered, other) for other in (note_row, row))
        if at > to:
            lifted = _at_least(ordered.pop(at), scored, ScorePart("repeated", 0.0, "a conversation says it too"))
            ordered.insert(to, lifted)
    return ordered, repeats


def _put_newest_first(
    ranked: Sequence[Scored], statements: _Statements, left_out: Collection[int], *, min_score: float
) -> tuple[list[Scored], dict[int, list[int]]]:
    """Move each statement before the older ones about the same. Return the ranking, and what each is newer than."""
    ordered = list(ranked)
    newer_than: dict[int, list[int]] = {}
    passing = [scored for scored in ranked if scored.relevance >= min_score and scored.candidate.row not in left_out]
    passing = passing[:MAX_DATED]
    for scored in passing:
        row, coverage = scored.candidate.row, scored.candidate.evidence.coverage
        # Statements about the same have the same words of the query.
        alike = [other for other in passing if abs(other.candidate.evidence.coverage - coverage) < _SAME_COVERAGE]
        older = [other for other in alike if statements.is_newer(row, other.candidate.row)]
        if not older:
            continue
        newer_than[row] = sorted((other.candidate.row for other in older), key=statements.age)
        at, to = _index_of(ordered, row), min(_index_of(ordered, other.candidate.row) for other in older)
        if at > to:
            detail = f"newer than {statements.citation(ordered[to].candidate.row)}"
            ordered.insert(to, _at_least(ordered.pop(at), ordered[to], ScorePart("newer", 0.0, detail)))
    return ordered, newer_than


def _lift_newest(
    best: list[Scored], rest: Sequence[Scored], statements: _Statements, newer_than: dict[int, list[int]]
) -> tuple[list[Scored], list[Scored]]:
    """Put the newest statement first if the best one is one of many about the same. It may be among all the others."""
    top = best[0]
    newer = [
        scored
        for scored in (*best[1:], *rest)
        if abs(scored.candidate.evidence.coverage - top.candidate.evidence.coverage) < _SAME_COVERAGE
        and statements.is_newer(scored.candidate.row, top.candidate.row)
    ]
    if not newer:
        return best, list(rest)
    newest = min(newer, key=lambda scored: statements.age(scored.candidate.row))
    row = newest.candidate.row
    detail = f"newer than {statements.citation(top.candidate.row)}"
    newer_than[row] = [top.candidate.row, *newer_than.get(top.candidate.row, ())]
    lifted = _at_least(newest, top, ScorePart("newer", 0.0, detail))
    others = [scored for scored in best if scored.candidate.row != row]
    return [lifted, *others], [scored for scored in rest if scored.candidate.row != row]


def _index_of(ranked: Iterable[Scored], row: int) -> int:
    return next(at for at, scored in enumerate(ranked) if scored.candidate.row == row)


def _at_most(scored: Scored, other: Scored, part: ScorePart) -> Scored:
    """Return a candidate with a score just below another's, at most its own."""
    loss = min(0.0, other.score - _BELOW - scored.score)
    part = ScorePart(part.name, max(-scored.score, loss), part.detail)
    return scored.plus(part, relevance=min(0.0, other.relevance - scored.relevance))


def _at_least(scored: Scored, other: Scored, part: ScorePart) -> Scored:
    """Return a candidate with another's score and relevance, at least its own."""
    part = ScorePart(part.name, max(0.0, other.score - scored.score), part.detail)
    return scored.plus(part, relevance=max(0.0, other.relevance - scored.relevance))


# comparing


class _Statements:
    """The statements of the best candidates by their content words. Each is worked out once."""

    def __init__(self, chunks: Mapping[int, ChunkRow], query_words: frozenset[str]) -> None:
        self._chunks = chunks
        self._query_words = query_words
        self._by_row: dict[int, dict[frozenset[str], str]] = {}
        self._best: dict[int, tuple[frozenset[str], str]] = {}

    def age(self, row: int) -> tuple[int, int]:
        chunk = self._chunks[row]
        return -chunk.timestamp_ms, -chunk.start_line

    def citation(self, row: int) -> str:
        chunk = self._chunks[row]
        return cite(chunk.path, chunk.start_line, chunk.end_line)

    def find_repeated(self, row: int, note_rows: Sequence[int]) -> int | None:
        """Return the first note with a statement that says everything that a message says, or None."""
        chunk = self._chunks[row]
        text = spoken_text(chunk)
        if len(text) > _MAX_REPEATING_CHARS or is_question(text):
            return None
        # A note that lacks two of the longest words need not be split into statements.
        longest = sorted(set(re.findall(r"\w+", text.lower())), key=len)[-3:]
        note_rows = [row for row in note_rows if _count_words(longest, self._chunks[row].text) >= len(longest) - 1]
        if not note_rows:
            return None
        words = frozenset[str]().union(*self._all(row))
        if chunk.is_recalled:
            words -= _SAYING
        if len(words) < _MIN_REPEATED_WORDS:
            return None
        least = (_RECALLED_SHARE if chunk.is_recalled else _REPEATED_SHARE) * len(words)
        numbers = {word for word in words if word.isdigit()}
        for note_row in note_rows:
            if any(numbers <= other and len(words & other) >= least for other in self._all(note_row)):
                return note_row
        return None

    def is_newer(self, row: int, other_row: int) -> bool:
        """Return whether a passage says something newer about the same: by a person, and something else."""
        chunk, other = self._chunks[row], self._chunks[other_row]
        if not _is_later(chunk, other):
            return False
        speakers = _speaker(chunk), _speaker(other)
        if speakers[0] == "assistant" or (
            speakers[0] and speakers[1] and speakers[1] not in (speakers[0], "assistant")
        ):
            return False
        (words, text), (other_words, other_text) = self._statement(row), self._statement(other_row)
        if words <= other_words or other_words <= words:
            return False  # the same, or one of them in more detail
        if all(speakers) and not (_has_number(words - other_words) and _has_number(other_words - words)):
            return False  # people repeat themselves in talk: only numbers show that it is about the same
        return self._is_same_subject(words, other_words) and differ(read_fact(text), read_fact(other_text))

    def _is_same_subject(self, words: frozenset[str], other_words: frozenset[str]) -> bool:
        left, right = (frozenset(word for word in side if not word.isdigit()) for side in (words, other_words))
        query_words = left & self._query_words
        shorter, longer = sorted((len(left), len(right)))
        if shorter < 2 or longer > _MAX_LENGTH_RATIO * shorter or query_words != right & self._query_words:
            return False
        has_all = len(query_words) >= 2 and query_words >= self._query_words
        return len(query_words) > 0 and len(left & right) >= (_SAME_ANSWER if has_all else _SAME_SUBJECT) * shorter

    def _statement(self, row: int) -> tuple[frozenset[str], str]:
        """Return the statement of a passage with the most words of the query: its words and its text."""
        if row not in self._best:
            statements = self._all(row).items()
            nothing = frozenset[str](), ""
            self._best[row] = max(statements, key=lambda item: len(item[0] & self._query_words), default=nothing)
        return self._best[row]

    def _all(self, row: int) -> dict[frozenset[str], str]:
        """Return the texts of the statements of a passage by their words."""
        if row not in self._by_row:
            chunk = self._chunks[row]
            text = re.sub(_CITATION, "", spoken_text(chunk) if chunk.source == "sessions" else chunk.text)
            pieces = [piece for piece in re.split(_STATEMENT_ENDS, text) if not piece.lstrip().startswith("#")]
            self._by_row[row] = {words: piece for piece in pieces if (words := content_words(piece))}
        return self._by_row[row]


def _has_number(words: Iterable[str]) -> bool:
    return any(word.isdigit() for word in words)


def _count_words(words: Sequence[str], text: str) -> int:
    text = text.lower()
    return sum(word in text for word in words)


def _is_later(chunk: ChunkRow, other: ChunkRow) -> bool:
    if chunk.timestamp_ms == other.timestamp_ms and chunk.path == other.path:  # entries of one minute in a log
        return chunk.start_line > other.start_line and bool(re.search(_ENTRY_TIME, chunk.heading))
    return chunk.timestamp_ms - other.timestamp_ms >= _MIN_APART_MS


def _speaker(chunk: ChunkRow) -> str:
    """Return the speaker in lower case, or nothing for a note."""
    label = re.match(_LABEL, chunk.text) if chunk.source == "sessions" else None
    return label[1].lower() if label else ""
