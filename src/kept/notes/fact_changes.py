"""Compares two lines: does the newer one repeat the older one, change it, or do both hold? Pure.

A line *changes* an older one if both are about the same, and one of these holds:

- It tells that something ended, and what ended is in the older line: "Jenkins is switched off".
- It has another name in one clause, and a name of the older line in a clause of its own: "Maya has Ms Brandt now, Mr
  Okafor left".
- It has words of a change ("moved", "now"), and other values in the same slot.
- It has a measure of the same kind with another value, and no other difference that would explain it.
- It has another name in the same slot, or says the opposite.

In doubt both hold: who strikes through what another line is said to have replaced must not lose what is true. So
nothing replaces an event, and "also", "this week" and "might" take nothing back. If each of two subjects has words that
the other lacks, they are two: the car insurance and the household insurance.
"""

from __future__ import annotations

from dataclasses import replace

from kept.base.records import FactRelation
from kept.notes.facts import MOMENTS, LineFact, has_digit, opposites, stems_of

_SAME_MEASURES_SHARE, _SAME_WORDS_SHARE, _SAME_SUBJECT_SHARE = 0.5, 0.75, 0.34
"""Share of common words from which lines say the same, with equal measures or without any, or are about the same."""
_MAX_WORDS = 30
"""A longer line says several things, and is not compared."""
_NO_VERBS = frozenset(("be", "have", "turn", ""))
"""What stands for a verb that does not tell which attribute a line is about."""


def compare_facts(new: LineFact, old: LineFact, *, note: frozenset[str] = frozenset()) -> FactRelation | None:
    """Return how a newer line relates to an older one, or None. ``note`` has the words of the older note's name."""
    if not new.sequence or not old.sequence:
        return None
    if new.sequence == old.sequence:
        return "repeats"
    if old.is_event or not new.words & (old.words | note) or max(len(new.sequence), len(old.sequence)) > _MAX_WORDS:
        return None
    pair = _Pair(new, old, note)
    if not pair.is_uncertain() and pair.is_change():
        return "changes"
    return "restates" if pair.says_same() else None


def differ(new: LineFact, old: LineFact) -> bool:
    """Return whether two lines say different things about the same, events included."""
    pair = _Pair(new, old, frozenset())
    if not pair.shared or (pair.only_new - old.value and pair.only_old - new.value):
        return False
    if pair.contrasts:
        return len(pair.shared) > 1 or bool(new.subject & old.subject)
    return compare_facts(new, replace(old, is_event=False)) == "changes"


def is_about_same(new: LineFact, old: LineFact) -> bool:
    """Return whether two lines are about the same subject, whatever they say of it."""
    if new.sequence == old.sequence:
        return True
    topics = [fact.subject - stems_of("kind") or fact.subject for fact in (new, old)]
    if bool(topics[0]) != bool(topics[1]) or (topics[0] and not topics[0] & topics[1]):
        return False
    shared = len(new.words & old.words)
    return shared > 0 and shared >= _SAME_SUBJECT_SHARE * min(len(new.words), len(old.words))


class _Pair:
    """Two lines, and what is in only one of them."""

    def __init__(self, new: LineFact, old: LineFact, note: frozenset[str]) -> None:
        self.new, self.old, self.note = new, old, note
        self.known = old.words | note
        self.shared = new.words & self.known
        self.only_new, self.only_old = new.subject - self.known, old.subject - new.words - note
        self.new_value, self.old_value = new.value - self.known, old.value - new.words
        self.new_names = new.names - old.words
        self.old_names = {name for name in old.names - new.words if name not in new.text.lower()}
        self.contrasts = _find_contrasts(new, old)

    @property
    def has_common_subject(self) -> bool:
        new, old = self.new.subject, self.old.subject
        if not new and not old:
            return self.new.is_own == self.old.is_own
        return (
            bool(new & (old | self.note))
            or bool(not new and old & self.new.words)
            or bool(not old and new & self.known)
        )

    def is_uncertain(self) -> bool:
        """Return whether the newer line takes nothing back, or is about another instance or part."""
        new, old = self.new, self.old
        if new.text.endswith("?") or new.has("added", "passing", "hedged", "same"):
            return True
        if self.note and not new.words & self.note and old.subject <= stems_of("kind"):
            return True  # "Port: 5432" in a note about something else
        numbers = (
            {word for word in words if len(word) == 1 or has_digit(word)} for words in (self.only_new, self.only_old)
        )
        return all(numbers) or bool(new.scope - old.scope and old.scope - new.scope)

    def is_change(self) -> bool:
        if self._tells_end() or self._names_both() or self._tells_change():
            return True
        if not self.has_common_subject or self.new.scope ^ self.old.scope or self.only_new or self.new.is_event:
            return False
        return self._has_other_measure() or self._has_other_name() or self._denies()

    def _tells_end(self) -> bool:
        for kind, words in self.new.signals:
            if kind not in ("end", "instead"):
                continue
            if words & self.old.value and (not self.only_new or words & self.old.names or self.shared - words):
                return True
            if words <= self.known and (words & self.old.subject or (self.has_common_subject and not self.only_new)):
                return True
        return False

    def _names_both(self) -> bool:
        old_clauses = [words for words in self.new.clauses if words & self.old.names and not words & self.new_names]
        return bool(self.new_names) and any(self.shared - words for words in old_clauses)

    def _tells_change(self) -> bool:
        new, old = self.new, self.old
        only_new = self.only_new - stems_of("kind")
        if not new.has("now", "turn") or (self.only_old and only_new) or new.scope - old.scope:
            return False
        if self.contrasts or new.is_event:
            return bool(self.contrasts)
        has_same_lead = new.lead == old.lead and (bool(new.lead) or new.verb == old.verb == "be")
        if not (self.shared - (new.subject & old.subject) or has_same_lead):
            return False
        has_names, has_values = self.new_names and self.old_names, self.new_value and self.old_value
        return not only_new and bool(has_names or (has_values and self.has_common_subject))

    def _has_other_measure(self) -> bool:
        new, old = self.new, self.old
        if not self.contrasts or "often" in self.contrasts or ("" in self.contrasts and self.only_old):
            return False
        if {kind for kind, _ in new.measures} & MOMENTS - {kind for kind, _ in old.measures}:  # "at 11 on 24 December"
            return False
        if len({new.verb, old.verb} - _NO_VERBS) > 1:  # "opens at 9", "closes at 18"
            return False
        if not new.verb and not old.verb and self.contrasts <= MOMENTS:  # "Call Ada on Monday"
            return False
        left, right = ({word for kind, word in fact.beside if kind in self.contrasts} for fact in (new, old))
        return not (left & self.new_value and right & self.old_value)

    def _has_other_name(self) -> bool:
        new, old = self.new, self.old
        has_names = self.new_names and self.old_names
        has_one_value = old.subject & stems_of("kind") and len(self.new_value) == len(self.old_value) == 1
        if not (has_names or has_one_value) or self.only_old or new.measures - old.measures:
            return False
        if new.verb != old.verb or new.lead != old.lead or old.subject & stems_of("many"):
            return False
        is_same_otherwise = has_one_value or not (self.new_value - new.names and self.old_value - old.names)
        return bool(is_same_otherwise) if new.verb == "be" else new.lead == "place"

    def _denies(self) -> bool:
        new, old = self.new, self.old
        if new.has("not") != old.has("not"):
            return bool(new.value & old.value) and not (self.new_value and self.old_value)
        words = [(left, right) for left in new.value for right in old.value] if not new.measures else []
        return any((left, right) in opposites() for left, right in words)

    def says_same(self) -> bool:
        """Return whether two lines say the same in other words."""
        new, old = self.new, self.old
        if (
            new.is_event
            or new.has("end", "turn")
            or new.has("not") != old.has("not")
            or self.contrasts
            or new.scope ^ old.scope
        ):
            return False
        shared, least = len(new.words & old.words), min(len(new.words), len(old.words))
        if new.measures or old.measures:
            values = [{value for _, value in fact.measures} for fact in (new, old)]
            return values[0] == values[1] and shared >= max(1, _SAME_MEASURES_SHARE * least)
        is_part = shared >= 2 and shared == least and shared >= _SAME_WORDS_SHARE * max(len(new.words), len(old.words))
        return is_part or new.words == old.words


def _find_contrasts(new: LineFact, old: LineFact) -> frozenset[str]:
    """Return the kinds of measures that both lines have, with other values. One number without a kind may be of any."""
    left, right = _by_kind(new), _by_kind(old)
    bare = [{kind for kind in values if kind not in MOMENTS} for values in (left, right)]
    if len(bare[0]) == len(bare[1]) == 1 and "" in bare[0] | bare[1]:
        left, right = left | {"": left[bare[0].pop()]}, right | {"": right[bare[1].pop()]}
    return frozenset(kind for kind in left.keys() & right.keys() if not left[kind] & right[kind])


def _by_kind(fact: LineFact) -> dict[str, frozenset[str]]:
    kinds = {kind for kind, _ in fact.measures}
    return {kind: frozenset(value for other, value in fact.measures if other == kind) for kind in kinds}
