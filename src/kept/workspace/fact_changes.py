"""Compares two lines: does the newer one repeat the older one, change it, or do both hold? Pure.

A line *changes* an older one if it has the same subject and attribute and another value, denies it, or tells that it
ended or became something else. All this goes by rules. In doubt both hold: who strikes through what another line is
said to have replaced must not lose what is true. So nothing replaces an event, and "also", "this week" and "might" take
nothing back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from kept.records import FactRelation
from kept.values import frozen
from kept.workspace.common_ends import count_common_ends
from kept.workspace.facts import (
    DEFINITE,
    KEY,
    KINDS,
    PERSONS,
    PREPOSITIONS,
    SPEAKER,
    STARTS,
    TOKEN,
    LineFact,
    attributes,
    content_of,
    get_list,
    has_any,
    may_have,
    opposites,
    pattern,
    read_fact,
    read_measures,
    split_subject,
    stem,
    stems_of,
    stops_of,
)

_CLAUSE_END = r"[.;,:!?](?=\s|$)|[()]|\s(?:and|but|und|aber|et|mais|y|pero|maar)\s|\s[–—→]\s"
_MOMENTS = frozenset(("weekday", "date", "month", "quarter", "clock"))
_MAX_SLOT = 4
_SAME_MEASURES_SHARE, _SAME_WORDS_SHARE, _SAME_SUBJECT_SHARE = 0.5, 0.75, 0.34
"""Share of common words from which lines say the same, with equal measures or without any, or are about the same."""
_ONE_VALUE = frozenset("prefer call name cost weigh heisst kostet prefere prefiere".split())
_STANDING = frozenset("be live park hang sit stand".split())
_TOOL_TURNS = r"migrat|switch|convert|chang|upgrad|replac|umgestellt|gewechselt|wechselt|cambi"
_TOOLS = frozenset(
    "use run take drink driv ride wear play eat smok study read train host deploy stor live prefer speak order buy"
    " nutzt verwendet nimmt trinkt spielt utilise joue usa juega".split()
)
_ROLE_TURNS = r"elected|appointed|promoted|t(?:ook|akes|aken) over|succeed|handed|ubernimmt|ubernommen"
_TURNS = ("ends", "turns", "nows", "news", "fixes", "shifts")


def compare_facts(new: LineFact, old: LineFact, *, note: frozenset[str] = frozenset()) -> FactRelation | None:
    """Return how a newer line relates to an older one, or None. ``note`` has the words of the older note's name."""
    if not new.sequence or not old.sequence:
        return None
    if new.sequence == old.sequence:
        return "repeats"
    if old.is_event or not new.words & (old.words | note) or has_any("added", new.plain):
        return None
    if not _is_uncertain(new, old) and _is_change(new, old, note):
        return "changes"
    return "restates" if _says_same(new, old) else None


def differ(new: LineFact, old: LineFact) -> bool:
    """Return whether two lines say different things about the same, events included."""
    if not new.words & old.words or _is_other_subject(new.topic - old.value, old.topic - new.value):
        return False
    if _contrasts(new, old):
        return len(new.words & old.words) > 1 or bool(new.topic & old.topic)
    return compare_facts(new, replace(old, is_event=False)) == "changes"


def is_about_same(new: LineFact, old: LineFact) -> bool:
    """Return whether two lines are about the same subject, whatever they say of it."""
    if new.sequence == old.sequence:
        return True
    if bool(new.topic) != bool(old.topic) or (new.topic and not new.topic & old.topic):
        return False
    shared = len(new.words & old.words)
    return shared > 0 and shared >= _SAME_SUBJECT_SHARE * min(len(new.words), len(old.words))


def _is_change(new: LineFact, old: LineFact, note: frozenset[str]) -> bool:
    pairs = [(left, right) for left in _clauses(new) for right in _clauses(old)]
    if any(_denies(*pair) for pair in pairs) or _is_settled(new, old) or _tells_change(new, old, note):
        return True
    pairs = [pair for pair in pairs if pair[0].verb == "be" or pair == (new, old)]
    return len(_contrasts(new, old)) < 2 and any(_has_other_value(*pair, note) for pair in pairs)


def _clauses(fact: LineFact) -> list[LineFact]:
    """Return a fact and those of its clauses that have a verb. A pronoun stands for the first subject."""
    clauses = [fact]
    texts = [text.strip() for text in re.split(_CLAUSE_END, fact.text) if text and " " in text.strip()]
    for text in texts if len(texts) > 1 else ():
        clause = read_fact(text)
        if clause.verb not in ("", "#") and not clause.is_event:
            is_pronoun = text.split()[0].lower() in PERSONS - SPEAKER
            clauses.append(replace(clause, subject=fact.subject) if is_pronoun else clause)
    return clauses


def _is_uncertain(new: LineFact, old: LineFact) -> bool:
    """Return whether a line takes nothing back: it asks, supposes, confirms, or is about one day or week only."""
    if new.plain.endswith("?") or any(has_any(name, new.plain) for name in ("passing", "hedged", "same")):
        return True
    if "old" in old.sequence and "old" not in new.sequence:
        return True
    return has_any("moments", new.plain) and not any(has_any(name, new.plain) for name in ("turns", "ends", "nows"))


def _is_other_subject(left: Iterable[str], right: Iterable[str]) -> bool:
    """Return whether each of two subjects has words that the other lacks: the car and the household insurance."""
    left, right = set(left), set(right)
    return bool(left - right and right - left)


def _denies(new: LineFact, old: LineFact) -> bool:
    """Return whether one line says what the other denies, or the opposite."""
    if new.is_event or bool(new.topic) != bool(old.topic) or _is_other_subject(new.topic, old.topic):
        return False
    if new.time - old.time or _contrasts(new, old):
        return False
    if new.is_denied != old.is_denied:
        is_bare = new.topic == old.topic and not (new.value or old.value or new.measures or old.measures)
        has_common = bool(new.value & old.value or new.measures & old.measures) or is_bare
        is_narrower = new.is_denied and bool(new.value - old.value) and not has_any("ends", new.plain)
        return has_common and not is_narrower and not _is_other_subject(new.value, old.value)
    if not new.topic and not (_speaks(new) and _speaks(old) and new.value & old.value):
        return False
    words = new.words, old.words
    if any(f"{prefix}{word}" in words[1 - at] for at in (0, 1) for word in words[at] for prefix in ("un", "dis")):
        return True
    return any(
        (left in new.sequence and right in old.sequence) or (right in new.sequence and left in old.sequence)
        for left, right in opposites()
    )


def _is_settled(new: LineFact, old: LineFact) -> bool:
    """Return whether the older line waits for something, and the newer one tells that it is done."""
    if new.is_denied or old.is_denied or not old.head or not old.topic <= new.words:
        return False
    return has_any("open", old.plain) and has_any("done", new.plain)


def _contrasts(new: LineFact, old: LineFact) -> frozenset[str]:
    """Return the kinds of measures that both lines have, with other values."""
    values: dict[str, tuple[set[str], set[str]]] = {}
    for at, fact in enumerate((new, old)):
        for kind, value in fact.measures:
            values.setdefault(kind, (set(), set()))[at].add(value)
    return frozenset(kind for kind, (left, right) in values.items() if left and right and not left & right)


def _has_other_value(new: LineFact, old: LineFact, note: frozenset[str]) -> bool:
    """Return whether two lines give the same attribute of the same subject another value, in the same way."""
    if new.is_event or new.is_denied != old.is_denied or not old.verb or not new.verb or new.time ^ old.time:
        return False
    is_same_topic = bool(new.topic & old.topic) and old.topic <= new.topic | note and new.topic <= old.topic | note
    if not is_same_topic and (new.topic or old.topic or _speaks(new) != _speaks(old)):
        return False
    if note and old.topic <= stems_of("plain") and not new.words & note:
        return False  # "Port: 5432" in a note about something else
    contrasts = _contrasts(new, old)
    named = {value for kind, value in new.measures | old.measures if kind in contrasts}
    only_new, only_old = new.value - old.value - named, old.value - new.value - named
    is_same_verb = new.verb == old.verb or {new.verb, old.verb} <= {"#", "be", "set"}
    goes_with_several = old.verb in stems_of("several") or _is_plural(old)
    if contrasts:
        if goes_with_several and contrasts & {"colours", "languages"}:
            return False
        kinds = {kind for kind, _ in new.measures} - {kind for kind, _ in old.measures}
        is_one = len(contrasts) == 1 and not kinds & _MOMENTS
        is_same = is_same_verb or bool(new.about & old.about) or has_any("turns", old.plain)
        return is_one and is_same and not (only_new and only_old)
    is_single = is_same_verb and not new.measures and not goes_with_several and old.head not in stems_of("many")
    is_short = 0 < len(only_new) <= _MAX_SLOT and 0 < len(only_old) <= _MAX_SLOT
    return is_single and is_short and _has_other_words(new, old)


def _has_other_words(new: LineFact, old: LineFact) -> bool:
    """Return whether the values of two lines with one subject and verb, which differ, exclude each other."""
    if "@place" in old.about & new.about and old.verb in _STANDING:
        return new.lead == old.lead != ""
    if old.verb != "be":
        is_same = new.preposition == old.preposition and (bool(old.preposition) or old.verb in _ONE_VALUE)
        return is_same and bool(new.lead) == bool(old.lead) and _has_one_slot(new.sequence, old.sequence)
    if new.preposition or old.preposition:
        return False
    return bool(old.topic & stems_of("plain")) or (new.lead == old.lead == "name" and _is_role(old))


def _is_role(fact: LineFact) -> bool:
    """Return whether the subject is a noun, not a name: "Our lawyer", "Dentist:"."""
    words = re.findall(r"\w+", fact.text)
    return re.match(KEY, fact.plain) is not None or any(word.islower() and stem(word) == fact.head for word in words)


def _has_one_slot(new: Sequence[str], old: Sequence[str]) -> bool:
    """Return whether two lines differ in one place only, without a preposition in it."""
    start, end = count_common_ends(new, old)
    slots = new[start : len(new) - end], old[start : len(old) - end]
    return start > 0 and all(0 < len(slot) <= _MAX_SLOT and PREPOSITIONS.isdisjoint(slot) for slot in slots)


def _is_plural(fact: LineFact) -> bool:
    return any(word != fact.head and word.endswith("s") and stem(word) == fact.head for word in fact.sequence)


def _speaks(fact: LineFact) -> bool:
    return not (SPEAKER - {"me", "us"}).isdisjoint(fact.sequence)


def _says_same(new: LineFact, old: LineFact) -> bool:
    """Return whether two lines say the same in other words."""
    if new.is_event or new.is_denied != old.is_denied or _contrasts(new, old) or new.time ^ old.time:
        return False
    values = {value for _, value in new.measures}, {value for _, value in old.measures}
    shared, least = len(new.words & old.words), min(len(new.words), len(old.words))
    if values[0] or values[1]:
        return values[0] == values[1] and shared >= max(1, _SAME_MEASURES_SHARE * least)
    is_part = shared >= 2 and shared == least and shared >= _SAME_WORDS_SHARE * max(len(new.words), len(old.words))
    return is_part or new.words == old.words


# changes that a line tells


def _tells_change(new: LineFact, old: LineFact, note: frozenset[str]) -> bool:
    """Return whether a line has words of a change, and what changes is in the older line."""
    if has_any("instead", old.plain):
        return False
    names = _TURNS[:2] if new.time - old.time and not old.time - new.time else _TURNS
    matches = ((name, match) for name in names if _may(name, new.plain) for match in pattern(name).finditer(new.plain))
    return any(_Change.read(new, name, match).is_of(new, old, note) for name, match in matches)


def _may(name: str, text: str) -> bool:
    return name == "shifts" or may_have(name, text)


@frozen
class _Change:
    """Words of a change in a line, with what is around them."""

    kind: str
    phrase: str
    subject: tuple[str, ...]
    """Content words before it, in its clause."""
    object: tuple[str, ...]
    """Content words after it, up to a preposition."""
    given_up: frozenset[str]
    """What it changed from: words after "from" or "instead of"."""

    @classmethod
    def read(cls, new: LineFact, kind: str, match: re.Match[str]) -> _Change:
        ends = list(re.finditer(_CLAUSE_END, new.text))
        start = max((end.end() for end in ends if end.end() <= match.start()), default=0)
        stop = min((end.start() for end in ends if end.start() >= match.end()), default=len(new.text))
        clause, after = new.text[start : match.start()], new.text[match.end() : stop]
        after = re.sub(STARTS, " ", read_measures(after)[1], flags=re.IGNORECASE)
        stops = stops_of(re.findall(TOKEN, new.text))
        given_up = re.search(
            rf"(?i)\b(?:from|von|de|{get_list('instead')}|not the) ([^,;.]*?)(?: (?:to|auf|a|nach|zu)\b|[,;.]|$)",
            after if kind == "turns" else new.text,
        )
        texts = clause[: split_subject(clause.lower())[0]], _object(after, stops), given_up[1] if given_up else ""
        words = [content_of(text, stops) for text in texts]
        return cls(kind, match[0], tuple(words[0]), tuple(words[1]), frozenset(words[2]))

    def is_of(self, new: LineFact, old: LineFact, note: frozenset[str]) -> bool:
        known, shared, contrasts = old.words | note, new.words & old.words, _contrasts(new, old)
        subject, topic = set(self.subject), old.topic
        if re.match(_ROLE_TURNS, self.phrase):
            return (bool(topic) and topic <= new.words) or (old.head in new.words and bool(old.value & new.words))
        is_moved = bool(contrasts) and (len(shared) > 1 or (bool(self.object) and set(self.object) <= known))
        generic = stems_of("plain") | KINDS | frozenset().union(*attributes().values())
        head = next((word for word in reversed(self.subject) if word.isalpha()), "")
        if head and head not in known | generic and not is_moved:
            return False
        specific = subject - generic
        if subject & topic and _is_other_subject(specific, topic | old.value):
            return False
        if self.kind == "ends":
            return self._ends(old, known, shared)
        if self.kind in ("turns", "fixes") and self.given_up & old.value and (not subject or subject & known):
            return True
        if self.phrase.startswith(("renam", "umbenannt", "rebrand")):
            return bool(shared)
        if self.kind in ("nows", "fixes") and old.value and old.value <= new.value and not contrasts:
            return False
        is_known = bool(specific) and specific <= known and (len(shared) > 1 or self.kind == "turns")
        is_said_by_same = not topic and not new.topic and _speaks(new) == _speaks(old)
        if contrasts and (shared & topic or is_known or is_said_by_same or is_moved):
            return True
        return self.kind != "shifts" and bool(shared & topic or is_said_by_same) and self._is_same_way(new, old)

    def _is_same_way(self, new: LineFact, old: LineFact) -> bool:
        """Return whether the change is about the same attribute, as far as no measure shows it."""
        if self.kind == "news":
            return bool({name for name, stems in attributes().items() if stems & set(self.object)} & old.about)
        if self.kind == "nows" and old.verb == new.verb and old.verb in stems_of("several"):
            return False
        shared = new.words & old.words
        if shared - old.topic - {old.verb} and (len(shared) > 1 or not old.topic):
            return True
        if new.about & old.about and (new.verb != old.verb or old.verb == "be"):
            return True
        if self.kind == "nows" and old.verb == new.verb == "be" and not new.preposition and not old.preposition:
            is_thing = re.match(DEFINITE, f" {old.plain}") is not None and len(new.value) == len(old.value) == 1
            return new.lead == old.lead != "" or (is_thing and not old.measures)
        if self.kind == "nows" and new.preposition and (new.verb == old.verb or "be" in (new.verb, old.verb)):
            return new.preposition == old.preposition and new.lead == old.lead != ""
        if not re.match(_TOOL_TURNS, self.phrase):
            return False
        is_object = bool(old.topic) and old.topic <= set(self.object)
        return old.verb in _TOOLS or (is_object and (" to " in new.plain or bool(new.names - old.words)))

    def _ends(self, old: LineFact, known: frozenset[str], shared: frozenset[str]) -> bool:
        if self.object:
            is_known = self.object[-1] in old.words or bool(set(self.object) & old.names)
            return is_known and (not self.subject or bool(set(self.subject) & known))
        if not self.subject:
            return False
        is_had = self.subject[-1] in old.value and old.verb in ("have", "own")
        return self.subject[-1] in old.topic or len(shared) > 1 or is_had


def _object(after: str, stops: frozenset[str]) -> str:
    """Return the object in what follows the words of a change, without the verb: "works from home" is "home"."""
    joined = "|".join(PREPOSITIONS)
    skipped = re.match(rf"(?i)(?:\W*(?:{joined}|be)\b)*\W*(\w+)?", after)
    if skipped is None or not skipped[1]:
        return ""
    is_verb = stem(skipped[1].lower()) in stems_of("holding") and content_of(after[skipped.end() :], stops)
    rest = after[skipped.end() if is_verb else skipped.start(1) :]
    return re.split(rf"(?i)\b(?:{joined})\b", re.sub(rf"(?i)^\W*(?:{joined})\b", "", rest))[0]
