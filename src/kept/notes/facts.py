"""Reads what a line says, by rules: of what, which value, when, and whether it is denied or tells a change. Pure.

- Numbers before the verb are part of the subject: invoice 4711 is not invoice 4712.
- Numbers, days and times in the value are measures, which `fact_measures` reads.
- What happened is an event, not a state: it stays true.

Much is not understood; `fact_changes`, which compares two facts, then finds nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise

from kept.base.values import frozen
from kept.base.words.segment import fold
from kept.base.words.stopwords import stopwords_for
from kept.notes.fact_measures import MOMENTS, Measure, Span, find_measures
from kept.notes.fact_words import (
    ARTICLES,
    PLACES,
    PREPOSITIONS,
    SPEAKER,
    base_form,
    first_words,
    has_digit,
    is_empty,
    is_past,
    names_of,
    phrases,
    stem,
    words_of,
)

_TOKEN = r"#?[^\W_]+(?:[.,:'_-]?[^\W_]+)*"
_KEY = r"\s*([^:=→]{1,60}?)\s*(?::(?=\s)|\s=\s|→|\s[–—]\s)"
_CLAUSE_END = r"[.;,:!?](?=\s|$)|[()]|\s(?:and|but|und|aber|et|mais|y|pero|maar)\s|\s[–—→]\s"
_MARKER = r"^\s*(?:>\s?)*(?:(?:[-*+]|\d{1,9}[.)])\s+)?(?:\[.\]\s+)?"
_SHORT = (
    ("(?<=[cC]a)n't", "n not"),
    ("n't", " not"),
    ("'m", " am"),
    ("'re", " are"),
    ("'ve", " have"),
    ("'ll", " will"),
)
_DATED = (
    r"\d{4}-\d\d-\d\d|\d{1,2}[./]\d{1,2}[./]\d{0,4}|(?:in|im|en) (?:19|20)\d\d\b"
    r"|(?:heute|today|yesterday|gestern|hier|ayer|hoy)\b"
)
_STARTS = (
    r"\b(?:since|as of|starting|effective|ab|seit|depuis|a partir de|desde|vanaf|sinds|from(?= now| next| this| today))"
    r"(?: (?:the|dem|am|le|el|next|last|this|end of|mid))*[ -](\w+)(?: (?:19|20)\d\d\b)?"
)
"""Phrases that tell since when a line holds. Their days are not its value."""
_BEFORE_VALUE = rf"(?<=\w) (?:(?:{'|'.join(sorted(PREPOSITIONS))}) |\+?\d)"
_NAME = r"[^.!?\n][^\w.!?]?[A-Z]"
_OWNED = r"\s*(?:my|our|the|mein\w*|unser\w*) "
_BEFORE_VERBS = frozenset("i we you they ich wir do does not can will never always".split())


@frozen
class LineFact:
    """A line, taken apart. Words are folded and without their endings."""

    sequence: tuple[str, ...]
    """All words in order, only folded."""
    subject: frozenset[str]
    verb: str
    """In its base form; "be" stands for a colon, too, and "turn" for a verb of change."""
    value: frozenset[str]
    lead: str
    """What the value begins with: a place, another preposition, an article, a name, a number, or nothing of these."""
    names: frozenset[str]
    """Words of the value with a capital or a digit."""
    measures: frozenset[Measure]
    beside: frozenset[tuple[str, str]]
    """Words in the same clause as a measure, each after the kind of the measure."""
    scope: frozenset[str]
    """Words that limit the line to some time or part."""
    clauses: tuple[frozenset[str], ...]
    """The words of each clause."""
    signals: tuple[tuple[str, frozenset[str]], ...]
    """Phrases of a change, an addition or a doubt: what each signals, and the words of its clause."""
    is_event: bool
    is_own: bool
    """True if the line is about whoever wrote it."""
    text: str
    """The text without Markdown, folded."""

    @property
    def words(self) -> frozenset[str]:
        return self.subject | self.value

    def has(self, *kinds: str) -> bool:
        return any(kind in kinds for kind, _ in self.signals)


@lru_cache(maxsize=2_000)
def read_fact(text: str) -> LineFact:
    """Return what a line or a sentence says."""
    whole = _strip(text)
    lower = whole.lower()
    tokens = list(re.finditer(_TOKEN, whole))
    sequence = tuple(token[0].lower() for token in tokens)
    places = [token.start() for token in tokens]
    starts = [match.span() for match in re.finditer(_STARTS, lower) if _is_moment(match[1])]
    matches = [(at, length, kinds) for at, length, kinds in _find_phrases(sequence) if not _is_in(places[at], starts)]
    measures = [item for item in find_measures(lower, whole) if not _is_in(item[0][0], starts)]
    hidden = {places[at] for first, length, _ in matches for at in range(first, first + length)}
    content = [item for item in _content(tokens) if item[0] not in hidden and not _is_in(item[0], starts)]
    stop = min((span[0] for span, measure in measures if measure[0] not in MOMENTS), default=len(whole))
    turns = {places[at] for at, _, kinds in matches if kinds & {"end", "turn"} and places[at] < stop}
    split, verb, rest = _split_subject(lower, tokens, turns)
    subject, value = (0, split), (rest, len(whole))
    if verb == "be" and _is_name(whole[:split]) and re.match(_OWNED, lower[rest:]):
        subject, value = value, subject  # "Kim is my boss"
    taken = [span for span, measure in measures if _is_in(span[0], [value]) or measure[0] == "often"]
    content = [item for item in content if not _is_in(item[0], taken)]
    of_value = [(place, word) for place, word in content if _is_in(place, [value])]
    own = [(span, measure) for span, measure in measures if _is_in(span[0], [value])]
    scopes = {word.removesuffix("s") for place, word in zip(places, sequence, strict=True) if not _is_in(place, starts)}
    ends = [0, *(match.end() for match in re.finditer(_CLAUSE_END, whole)), len(whole) + 1]
    clauses = {span: frozenset(word for place, word in content if _is_in(place, [span])) for span in pairwise(ends)}

    def beside(place: int) -> frozenset[str]:
        return next(words for span, words in clauses.items() if place < span[1])

    signals = [(kind, beside(places[at])) for at, _, kinds in matches for kind in sorted(kinds)]
    return LineFact(
        sequence,
        frozenset(word for place, word in content if _is_in(place, [subject])),
        verb,
        frozenset(word for _, word in of_value),
        _lead(token[0] for token in tokens if token.start() not in hidden and _is_in(token.start(), [value])),
        frozenset(word for place, word in of_value if has_digit(word) or re.match(_NAME, whole[max(0, place - 2) :])),
        frozenset(measure for _, measure in own),
        frozenset((measure[0], word) for span, measure in own for word in beside(span[0])),
        words_of("scope") & scopes,
        tuple(clauses.values()),
        (*signals, *[("now", frozenset[str]())] * len(starts)),
        _is_event(lower, tokens, verb, lower[split:rest]),
        not SPEAKER.isdisjoint(sequence),
        whole,
    )


def _is_in(place: int, spans: Iterable[Span]) -> bool:
    return any(start <= place < end for start, end in spans)


def _strip(text: str) -> str:
    """Return a text without Markdown, possessives and contractions, folded."""
    text = re.sub(_MARKER, "", text.replace("’", "'"))
    if "[" in text:
        text = re.sub(r"\[\[(?:[^\]|]*\|)?([^\]]*)\]\]|\[([^\]]*)\]\([^)]*\)", r"\1\2", text)
    text = fold(re.sub(r"[*`]|(?<!\w)_|_(?!\w)", " ", text)).strip()
    if "'" in text:
        text = re.sub(r"(?i)\b[ld]'(?=\w)", "", text)
        text = re.sub(r"(?i)\b(he|she|it|that|there|who|what)'s\b", r"\1 is", text)
        for ending, full in (*_SHORT, ("'s", "")):
            text = re.sub(rf"(?<=\w){ending}\b", full, text)
    return re.sub(r"(?i)\b(mr|mrs|ms|dr|prof|st|m)\.", r"\1", text)


def _content(tokens: Sequence[re.Match[str]]) -> list[tuple[int, str]]:
    """Return the words that tell what a text is about, as stems, with their places."""
    # With a capital, a stop word of another language may be a name: Ben.
    stops = stopwords_for([token[0] for token in tokens if token[0].islower()])
    content = []
    for token in tokens:
        word, lower = token[0], token[0].lower()
        if not (word in stops or is_empty(lower)):
            content.append((token.start(), stem(lower)))
    return content


def _find_phrases(sequence: tuple[str, ...]) -> list[tuple[int, int, frozenset[str]]]:
    """Return where each phrase of a change, an addition or a doubt is, its length, and what it signals."""
    forms = tuple(map(base_form, sequence))
    matches: list[tuple[int, int, frozenset[str]]] = []
    end = 0
    for at, word in enumerate(sequence):
        if at < end or not (word in first_words() or forms[at] in first_words()):
            continue
        is_last = at + 1 == len(sequence)
        if (word == "too" and not is_last) or (word == "no" and (is_last or has_digit(sequence[at + 1]))):
            continue  # "too big", "invoice no. 7"
        for length in range(min(4, len(sequence) - at), 0, -1):
            kinds = phrases().get(sequence[at : at + length]) or phrases().get(forms[at : at + length])
            if kinds:
                if "end" in kinds and matches and "not" in matches[-1][2] and end == at:
                    break  # "never give up"
                matches.append((at, length, kinds))
                end = at + length
                break
    if any("not" in kinds for _, _, kinds in matches):  # "no longer", "nicht mehr"
        matches += [(at, 1, frozenset(("end",))) for at, word in enumerate(sequence) if word in words_of("more")]
    return matches


def _split_subject(lower: str, tokens: Sequence[re.Match[str]], turns: set[int]) -> tuple[int, str, int]:
    """Return the end of the subject, the verb in its base form, and the start of the value."""
    key = re.match(_KEY, lower)
    before = ""
    for start, end in (token.span() for token in tokens):
        if key and start >= key.end(1):
            break
        if before and (verb := "turn" if start in turns else _verb(lower[start:end], before)):
            return start, verb, end
        before = lower[start:end]
    if key:
        return key.end(1), "be", key.end()
    at = re.search(_BEFORE_VALUE, lower)
    return (at.start(), "", at.start()) if at else (len(lower), "", len(lower))


def _verb(word: str, before: str) -> str:
    """Return the base form of a word if it is a verb of something that holds, or else nothing."""
    for name in ("be", "have"):
        if word in words_of(name):
            return name
    # In its base form it may be a noun: "work phone".
    if word in words_of("verb"):
        return base_form(word) if before in _BEFORE_VERBS or before.endswith("s") else ""
    for ending, full in (("s", ""), ("es", ""), ("ies", "y")):
        if word.endswith(ending) and word.removesuffix(ending) + full in words_of("verb"):
            return base_form(word)
    return ""


def _lead(words: Iterable[str]) -> str:
    word = next((word for word in words if word not in words_of("be")), "")
    lower = word.lower()
    if lower in PREPOSITIONS:
        return "place" if lower in PLACES else lower
    return "article" if lower in ARTICLES else "number" if word[:1].isdigit() else "name" if word[:1].isupper() else ""


def _is_moment(word: str) -> bool:
    lists = names_of("month"), names_of("weekday"), words_of("scope"), ("now", "today", "tomorrow", "year")
    return word[0].isdigit() or any(word in words for words in lists)


def _is_name(text: str) -> bool:
    words = re.findall(_TOKEN, text)
    is_name = not any(word[0].islower() and word not in PREPOSITIONS for word in words)
    return bool(words) and is_name and not is_empty(words[0].lower())


def _is_event(lower: str, tokens: Sequence[re.Match[str]], verb: str, verb_form: str) -> bool:
    """Return whether a line tells what happened: it begins with a date, or has a past form before any other verb."""
    if re.match(_DATED, lower):
        return True
    if verb:
        return verb_form in ("was", "were", "had", "war", "waren", "hatte")
    first = [token[0] for token in tokens[:6]]
    # "A trip booked for May" is a state, and "Reed" is a name.
    return any(
        is_past(word.lower()) and not (at and (word[0].isupper() or after == "for"))
        for at, (word, after) in enumerate(pairwise([*first, ""]))
    )
