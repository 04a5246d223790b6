"""Judging a note as a whole: a long note may have the words of the query in different passages. Pure.

The evidence is what the pool has anyway: the title and the other headings, which are context of every passage, and all
passages of the note that are candidates. Only the words that its best passage lacks count, so a note of one passage
gains nothing. The confidence does not depend on it: words that are far apart meet by chance.

An answer often goes on in the next passage, or began in the one before. So a passage that touches a better one of the
same note comes nearer to it. The best passage of a note gains nothing by that, so the order of notes stays.
Grades stay too: `kept forget` takes what is likely, and must not take the fact beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from kept.base.records import ScorePart
from kept.index.sqlite.rows import ChunkRow
from kept.search.candidates import Candidate
from kept.search.keywords import WeightedTerm
from kept.search.scores import Scored, rank
from kept.search.weights import BESIDE_BETTER_SHARE, WHOLE_NOTE_SHARE

_PART, _BESIDE_PART = "whole note", "next passage"
_MAX_LINES_BETWEEN = 1
"""Blank lines between two passages that touch."""


def judge_whole_notes(
    ranked: Sequence[Scored],
    terms: Sequence[WeightedTerm],
    *,
    text_share: float = 1.0,
    share: float = WHOLE_NOTE_SHARE,
) -> list[Scored]:
    """Add to the best passage of each note for the words of the query in its other passages, and rank again.

    ``text_share`` is the share of words in a score, and ``share`` the weight of those in other passages.
    """
    # Pairs of characters, which stand for words in scripts without spaces, meet by chance in a long note.
    idf = {weighted.term.text: weighted.idf for weighted in terms if weighted.term.kind not in ("pair", "prefix")}
    if not idf:
        return list(ranked)
    weight = share * text_share / sum(weighted.idf for weighted in terms)
    by_note: dict[str, list[Scored]] = {}
    for scored in ranked:
        if not scored.candidate.is_utterance:
            by_note.setdefault(scored.candidate.position[0], []).append(scored)
    judged: dict[int, Scored] = {}
    for best, *others in by_note.values():
        if others and (missing := _find_missing(best.candidate, [scored.candidate for scored in others])):
            gain = weight * sum(idf.get(text, 0.0) * share for text, share in missing.items())
            gain = min(gain, 1.0 - best.score)
            if gain > 0:
                part = ScorePart(_PART, gain, f"other passages have {', '.join(missing)}")
                judged[best.candidate.row] = best.plus(part, relevance=min(gain, 1.0 - best.relevance))
    if not judged:
        return list(ranked)
    return rank(judged.get(scored.candidate.row, scored) for scored in ranked)


def _find_missing(best: Candidate, others: Sequence[Candidate]) -> dict[str, float]:
    """Return the words that other passages have and the best lacks, and the share of each that is missing."""
    shares = _word_shares(best)
    missing: dict[str, float] = {}
    for other in others:
        for text, share in _word_shares(other).items():
            more = share - shares.get(text, 0.0)
            if more > missing.get(text, 0.0):
                missing[text] = more
    return missing


def _word_shares(candidate: Candidate) -> Mapping[str, float]:
    """Return the words of the query that a passage has. One that another stands for is part of a word."""
    if not candidate.expansions:
        return dict.fromkeys(candidate.matched, 1.0)
    shares = {source: expansion.share for expansion in candidate.expansions for source in expansion.sources}
    shares.update(dict.fromkeys(candidate.matched, 1.0))
    return shares


def lift_neighbours(
    ranked: Sequence[Scored], chunks: Mapping[int, ChunkRow], *, share: float = BESIDE_BETTER_SHARE
) -> list[Scored]:
    """Bring each passage nearer to a better one that it touches in the same note, by a share of the distance."""
    by_note: dict[str, list[Scored]] = {}
    for scored in ranked:
        if not scored.candidate.is_utterance:
            by_note.setdefault(scored.candidate.position[0], []).append(scored)
    lifted: dict[int, Scored] = {}
    for passages in by_note.values():
        if len(passages) > 1:
            passages.sort(key=lambda scored: scored.candidate.position)
            for before, after in pairwise(passages):
                if _touch(chunks[before.candidate.row], chunks[after.candidate.row]):
                    low, high = sorted((before, after), key=lambda scored: scored.score)
                    _lift(low, high, share, lifted)
    if not lifted:
        return list(ranked)
    return rank(lifted.get(scored.candidate.row, scored) for scored in ranked)


def _touch(before: ChunkRow, after: ChunkRow) -> bool:
    return after.start_line <= before.end_line + _MAX_LINES_BETWEEN + 1


def _lift(low: Scored, high: Scored, share: float, lifted: dict[int, Scored]) -> None:
    """Lift a passage, unless its other neighbour has lifted it as much."""
    gain = share * (high.score - low.score)
    row = low.candidate.row
    if gain > 0 and (row not in lifted or lifted[row].score < low.score + gain):
        lifted[row] = low.plus(ScorePart(_BESIDE_PART, gain, "next to a better passage"))
