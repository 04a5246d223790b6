"""Facts that changed: what holds at the time that a search is about comes first, and what was replaced after it.

A chunk may have many lines. It counts by those of its statements that have the most of the query: if one of them holds,
the chunk does. A chunk whose matching statements all ended goes below each that holds and is about the same, or is
about as relevant. Everything is computed from the text of the candidates; nothing about it is stored.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kept.base.records import FactValidity, Hit, cite
from kept.base.values import frozen
from kept.base.words.stopwords import content_words
from kept.index.chunking.markdown import HEADING_JOIN
from kept.index.sqlite.rows import ChunkRow
from kept.notes.fact_changes import is_about_same
from kept.notes.facts import LineFact, read_fact
from kept.notes.validity import Statement, ValidityState, may_be_marked, read_statements
from kept.search.date_words import Period
from kept.search.scores import BELOW, Scored
from kept.search.selection import MAX_CHARS, make_snippet

_AS_RELEVANT = 0.75
"""A chunk that holds counts as relevant as one that ended from this share of its relevance on."""
_MATCHING_SHARE = 0.6
"""Statements with this share of the most matching words match, too."""
_MOST_BEFORE = 3
_MAX_COMPARED = 100


@frozen
class FactMoment:
    """The days that a search is about."""

    first: dt.date
    last: dt.date
    is_past: bool = False
    is_as_of: bool = False
    """True if the search is limited to what was known then."""


def choose_moment(now: dt.datetime, *, as_of: dt.datetime | None, periods: Sequence[Period]) -> FactMoment:
    """Return the days for which facts count: those of ``as_of``, of a time that the query names, or today.

    ``as_of`` is the first moment that is too late. "In October" is the whole month: a fact that held on any of its days
    counts. A time that goes on now is no reason to prefer what ended in it.
    """
    today = now.date()
    if as_of is not None:
        day = (as_of - dt.timedelta(microseconds=1)).date()
        return FactMoment(day, day, is_past=day < today, is_as_of=True)
    period = max(periods, key=lambda period: period.weight, default=None)
    if period is None or period.start.date() <= today < period.end.date():
        return FactMoment(today, today)
    last = (period.end - dt.timedelta(microseconds=1)).date()
    return FactMoment(period.start.date(), last, is_past=last < today)


@frozen
class _ChunkFacts:
    """The statements of a chunk, and the one that matches best."""

    chunk: ChunkRow
    statements: tuple[Statement, ...]
    focus: Statement
    state: ValidityState
    fact: LineFact


def _order(statement: Statement) -> tuple[dt.date, dt.date]:
    validity = statement.validity
    since = validity.since if validity and validity.since else dt.date.min
    until = validity.until if validity and validity.until else dt.date.max
    return since, until


@frozen
class FactRanking:
    """A ranking in which what holds comes first."""

    ranked: list[Scored]
    later: tuple[Scored, ...]
    """Candidates that were written after the time of the search, as far as their marks tell. They are left out."""
    facts: Mapping[int, _ChunkFacts]
    moment: FactMoment

    def complete(self, hit: Hit, row: int) -> Hit:
        """Return a hit with its validity, and without lines that did not hold if these leave no room."""
        if row not in self.facts:
            return hit
        facts = self.facts[row]
        lines = visible_lines(facts, self.moment)
        return replace(hit, snippet=lines or hit.snippet, validity=_validity_of(facts, self.facts.values()))


def settle_facts(ranked: Sequence[Scored], query_text: str, moment: FactMoment) -> FactRanking:
    """Put candidates that hold before those that ended."""
    query_words = content_words(query_text)
    chunks = [scored.chunk for scored in ranked]
    marked = {chunk.row: facts for chunk in chunks if (facts := _read_chunk(chunk, query_words, moment))}
    past_rows = {row for row, facts in marked.items() if facts.state != "holds"}
    holding = [scored for scored in ranked if scored.chunk.row not in past_rows][:_MAX_COMPARED]
    ended = [scored for scored in ranked if scored.chunk.row in past_rows]
    words = {scored.chunk.row: _facts_of(scored.chunk, marked, query_words) for scored in holding}
    holders = {scored.chunk.row: scored for scored in holding}
    same = {row: [new for new in holders if _is_same(marked[row], words[new], marked.get(new))] for row in past_rows}
    # What holds takes the place of what it replaced, whose words may fit the query better.
    for scored in ended:
        for row in same[scored.chunk.row]:
            if holders[row].score < scored.score or holders[row].relevance < scored.relevance:
                why = "it holds, and took the place of another"
                holders[row] = holders[row].at_least(scored.score, scored.relevance, "holds", why)
    dated = {row for row, facts in marked.items() if row in holders and facts.focus.validity}
    for row in dated.union(*same.values()):
        holders[row] = _lift_over_looser(row, holders, words, query_words)
    settled, later = dict(holders), dict[int, Scored]()
    for scored in ended:
        row = scored.chunk.row
        state, validity = marked[row].state, marked[row].focus.validity
        # It came later, and does not tell what was.
        if moment.is_as_of and state == "later" and (same[row] or not (validity and validity.was)):
            later[row] = scored
            continue
        better = [holder for new, holder in holders.items() if new in same[row] or _is_as_relevant(holder, scored)]
        if better:
            why = "it holds only later" if state == "later" else "it no longer holds"
            scored = scored.below(min(better, key=lambda holder: holder.score), "ended", why)
        settled[row] = scored
    _put_latest_first(settled, [row for row in settled if same.get(row)], marked)
    # Only the best that hold were compared, so the others are still in the ranking.
    result = [settled.get(scored.chunk.row, scored) for scored in ranked if scored.chunk.row not in later]
    result.sort(key=lambda scored: (-round(scored.score, 9), scored.chunk.row in past_rows, _newest(scored, marked)))
    return FactRanking(result, tuple(later.values()), marked, moment)


def _put_latest_first(settled: dict[int, Scored], rows: Sequence[int], marked: Mapping[int, _ChunkFacts]) -> None:
    """Exchange the scores of facts that were replaced, so that what held last comes first."""
    scores = sorted((settled[row].score for row in rows), reverse=True)
    for row, score in zip(sorted(rows, key=lambda row: _newest(settled[row], marked)), scores, strict=True):
        if change := score - settled[row].score:
            settled[row] = settled[row].plus("ended", change, "in the order in which they held")


def _newest(scored: Scored, marked: Mapping[int, _ChunkFacts]) -> int:
    facts = marked.get(scored.chunk.row)
    return -_order(facts.focus)[0].toordinal() if facts else 0


def _read_chunk(chunk: ChunkRow, query_words: frozenset[str], moment: FactMoment) -> _ChunkFacts | None:
    """Return the statements of a note's chunk, or None if none of them says when it holds."""
    if chunk.source != "memory" or not (may_be_marked(chunk.text) or may_be_marked(chunk.heading)):
        return None
    headings = tuple(chunk.heading.split(HEADING_JOIN)) if chunk.heading else ()
    statements = read_statements(chunk.text, first_line=chunk.start_line, headings=headings)
    if not any(statement.validity for statement in statements):
        return None
    facts = [statement for statement in statements if statement.kind != "heading"] or statements
    shares = [len(content_words(statement.text) & query_words) for statement in facts]
    least = _MATCHING_SHARE * max(shares)
    matching = [statement for statement, share in zip(facts, shares, strict=True) if share >= least]
    ranks = {"holds": 0, "unknown": 1, "ended": 2, "later": 3}
    focus = min(matching, key=lambda statement: (ranks[_state(statement, moment)], -_order(statement)[0].toordinal()))
    return _ChunkFacts(chunk, tuple(statements), focus, _state(focus, moment), read_fact(focus.text))


def _state(statement: Statement, moment: FactMoment) -> ValidityState:
    if statement.validity is None:
        return "holds"
    return statement.validity.state(moment.first, moment.last, is_past=moment.is_past)


def _facts_of(chunk: ChunkRow, marked: Mapping[int, _ChunkFacts], query_words: frozenset[str]) -> list[LineFact]:
    """Return what a candidate that holds says."""
    if chunk.row in marked:
        return [marked[chunk.row].fact]
    if chunk.source != "memory":
        return []
    texts = (statement.text for statement in read_statements(chunk.text) if statement.kind != "heading")
    return [read_fact(text) for text in texts if content_words(text) & query_words]


def _is_same(old: _ChunkFacts, candidates: Iterable[LineFact], new: _ChunkFacts | None) -> bool:
    """Return whether a fact that ended is about the same as one that holds."""
    if any(is_about_same(fact, old.fact) for fact in candidates):
        return True
    return new is not None and _follows(new.focus, old)


def _follows(new: Statement, old: _ChunkFacts) -> bool:
    """Return whether a statement says that it replaced another: by the day, and by what was there before."""
    if new.validity is None or old.focus.validity is None:
        return False
    was = content_words(new.validity.was)
    is_next = new.validity.since is not None and new.validity.since == old.focus.validity.until
    return bool(was) and is_next and was <= content_words(old.focus.text)


def _is_as_relevant(holder: Scored, scored: Scored) -> bool:
    return (holder.unscaled or holder.relevance) >= _AS_RELEVANT * (scored.unscaled or scored.relevance)


def _lift_over_looser(
    row: int, holders: Mapping[int, Scored], words: Mapping[int, list[LineFact]], query_words: frozenset[str]
) -> Scored:
    """Return a fact that replaced another with at least the score of passages that have less of the query in any one
    statement. Each version of a fact makes its words less rare, until any passage with all of them is as good."""
    holder, own = holders[row], _most_shared(words[row], query_words)
    for other_row, other in holders.items():
        is_looser = other.chunk.source != "sessions" and _most_shared(words[other_row], query_words) < own
        if other_row != row and other.score >= holder.score and is_looser and _is_as_relevant(holder, other):
            why = "it has more of the query in one line"
            holder = holder.at_least(other.score + BELOW, other.relevance, "holds", why)
    return holder


def _most_shared(facts: Iterable[LineFact], query_words: frozenset[str]) -> int:
    return max((len(content_words(fact.text) & query_words) for fact in facts), default=0)


# results


def visible_lines(facts: _ChunkFacts, moment: FactMoment) -> str:
    """Return the text to show if it is not the whole chunk, or nothing.

    A search as of a day shows no lines that did not hold then. Otherwise these are left out of a chunk that is too long
    to be shown as a whole.
    """
    if facts.state != "holds" or not (moment.is_as_of or len(facts.chunk.text) > MAX_CHARS):
        return ""
    hidden = {
        line
        for statement in facts.statements
        if statement.kind != "heading" and _state(statement, moment) in ("ended", "later")
        for line in range(statement.first_line, statement.last_line + 1)
    }
    if not hidden:
        return ""
    lines = enumerate(facts.chunk.text.split("\n"), facts.chunk.start_line)
    shown = "\n".join(line for at, line in lines if at not in hidden).strip("\n")
    return make_snippet(shown, content_words(facts.focus.text))


def _validity_of(facts: _ChunkFacts, others: Iterable[_ChunkFacts]) -> FactValidity | None:
    validity = facts.focus.validity
    if validity is None:
        return None
    since, until, own = validity.since, validity.until, (facts.chunk.path, facts.focus.first_line)
    related = [
        (other.chunk.path, statement)
        for other in others
        for statement in other.statements
        if statement.validity and (other.chunk.path, statement.first_line) != own
        if is_about_same(read_fact(statement.text), facts.fact) or _follows(statement, facts)
    ]
    before = [item for item in related if since and _order(item[1])[1] <= since]
    after = [item for item in related if until and _order(item[1])[0] >= until]
    successor = min(after, key=lambda item: (_order(item[1])[0], item[0] != facts.chunk.path), default=None)
    before.sort(key=lambda item: _order(item[1])[1], reverse=True)
    return FactValidity(
        holds=facts.state == "holds",
        since=since.isoformat() if since else None,
        until=until.isoformat() if until else None,
        was=validity.was or None,
        replaced_by=_cite(*successor) if successor else None,
        before=tuple(dict.fromkeys(_cite(*item) for item in before))[:_MOST_BEFORE],
    )


def _cite(path: str, statement: Statement) -> str:
    return cite(path, statement.first_line, statement.last_line)
