"""Reads what a line says, by rules: of what, which value, when, and whether it is denied or tells a change. Pure.

- Numbers before the verb are part of the subject: invoice 4711 is not invoice 4712.
- Numbers, days and times in the value are measures, each of a kind: "39 € a month" and "44 €" are of one.
- What happened is an event, not a state: it stays true.

Much is not understood; `fact_changes`, which compares two facts, then finds nothing.
"""

from __future__ import annotations

import os
import re
from bisect import bisect
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from itertools import pairwise

from kept.base.values import frozen
from kept.base.words.equivalents import EQUIVALENTS, IRREGULAR_FORMS
from kept.base.words.segment import fold
from kept.base.words.stopwords import ENGLISH, stopwords_for

# words: their stems, and the lists of `fact_words.txt`

PLACES = frozenset(
    "in on next under at behind near beside above below inside to into auf unter bei hinter nach zu im am dans sous sur"
    " chez en bij op".split()
)
PREPOSITIONS = PLACES | frozenset(
    "by from with for of as until about within per after before because mit von fur um avec de du pour con voor di"
    " da".split()
)
SPEAKER = frozenset(
    "i we my our me us mine ours ich wir mein meine unser unsere je nous mon ma notre yo mi nuestro".split()
)
ARTICLES = frozenset(
    "the a an my our his her their der die das dem den ein eine le la les un une el los una il".split()
)
_EMPTY = PREPOSITIONS | ARTICLES | SPEAKER | ENGLISH | {"may", "must"}
_SIGNALS = frozenset(("end", "instead", "turn", "now", "added", "passing", "hedged", "same", "not"))


def is_empty(word: str) -> bool:
    """Return whether a word tells nothing about what a text is about."""
    return word in _EMPTY or word in words_of("be") or word in words_of("have") or stem(word) in stems_of("light")


def has_digit(word: str) -> bool:
    return any(map(str.isdigit, word))


def is_past(word: str) -> bool:
    is_regular = word.endswith("ed") and len(word) > 4 and not word.startswith("un")
    return is_regular or (word in IRREGULAR_FORMS and _first_forms()[word] != word)


@lru_cache(maxsize=20_000)
def base_form(word: str) -> str:
    """Return a word without the endings of English plurals and verbs. An irregular form has its first form."""
    if not word.isalpha():
        return word
    word = _first_forms().get(word, word)
    if word.endswith("ies") and len(word) > 4:
        word = f"{word[:-3]}y"
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
        word = word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            word = word[:-1] if word[-1] == word[-2] and word[-1] not in "ls" else word
    return word.removesuffix("e") if len(word) > 2 else word


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """Return a word without its endings, those by which one word is made from another included."""
    word = base_form(word if has_digit(word) else word.replace("-", ""))
    return re.sub(r"(?:ation|anc|enc|ion|al|er|or|ly|ity)$", "", word) if len(word) > 6 else word


@cache
def _first_forms() -> dict[str, str]:
    """Return the first word of its group for each irregular form and each equivalent."""
    first: dict[str, str] = {}
    for groups in (EQUIVALENTS, IRREGULAR_FORMS):
        for word, others in groups.items():
            for other in (word, *others):
                first.setdefault(other, first.get(word, word))
    return first


@cache
def _word_lists() -> dict[str, str]:
    with open(os.path.join(os.path.dirname(__file__), "fact_words.txt"), encoding="utf-8") as file:
        return dict(part.split("]\n", 1) for part in file.read().split("\n[")[1:])


@cache
def words_of(name: str) -> frozenset[str]:
    return frozenset(_word_lists()[name].split())


@cache
def stems_of(name: str) -> frozenset[str]:
    return frozenset(map(stem, words_of(name)))


@cache
def phrases() -> dict[tuple[str, ...], frozenset[str]]:
    """Return what each phrase signals. Verbs are in their base form, which no other phrase has."""
    by_words: dict[tuple[str, ...], frozenset[str]] = {}
    for name, text in _word_lists().items():
        kind, _, form = name.partition(" ")
        for phrase in re.split(r"[;\n]", text) if kind in _SIGNALS else ():
            words = tuple(map(base_form, phrase.split())) if form else tuple(phrase.split())
            by_words[words] = by_words.get(words, frozenset()) | {kind}
    by_words.pop((), None)
    return by_words


@cache
def first_words() -> frozenset[str]:
    return frozenset(words[0] for words in phrases())


@cache
def names_of(name: str) -> dict[str, int]:
    """Return the names of days, months or numbers, and the English ones in short, each with its number."""
    groups = [group.split() for group in _word_lists()[name].split(";")]
    names = {word: at for at, group in enumerate(groups, 1) for word in group}
    return names if name == "number" else names | {group[0][:3]: at for at, group in enumerate(groups, 1)}


@cache
def units_of() -> dict[str, tuple[str, float]]:
    """Return the kind of each unit, and its size."""
    units = {}
    for line in _word_lists()["unit"].splitlines():
        kind, *words = line.split()
        size = 1.0
        for word in words:
            if has_digit(word):
                size = float(word)
            else:
                units[fold(word)] = units[stem(fold(word))] = (kind, size)
    return units


@cache
def opposites() -> frozenset[tuple[str, ...]]:
    pairs = [tuple(map(stem, pair.split())) for pair in _word_lists()["opposites"].split(";")]
    return frozenset(pairs) | {pair[::-1] for pair in pairs}


# measures: numbers, days and times

Measure = tuple[str, str]
"""A kind of value, such as a unit, and the value."""
Span = tuple[int, int]

MOMENTS = frozenset(("weekday", "date", "month", "clock", "year"))


@cache
def _pattern() -> re.Pattern[str]:
    def alternatives(words: Iterable[str]) -> str:
        return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))

    months, numbers, units = (alternatives(words) for words in (names_of("month"), names_of("number"), units_of()))
    periods = alternatives(unit for unit, (kind, size) in units_of().items() if kind == "duration" and size >= 60)
    ordinal = "(?:st|nd|rd|th)"
    return re.compile(
        rf"(?P<address>\b[\w.+-]{{1,64}}@[\w.-]{{1,99}}\.\w+|https?://\S+|\b\d+\.\d+\.\d+\.\d+\b)"
        rf"|(?P<iso>\b(?:19|20)\d\d-\d\d-\d\d)\b"
        rf"|(?P<phone>(?:\+|\b0)\d[\d ()/-]{{5,}}\d)"
        rf"|\b(?P<day>\d{{1,2}})(?:{ordinal}|\.)?(?: (?:of |de )?(?P<month>{months})|(?<=\w\w))\b(?<!\d)"
        rf"|\b(?P<month2>{months})\.? (?P<day2>\d{{1,2}}){ordinal}?\b(?!:)"
        rf"|\b(?P<hour>\d{{1,2}})(?:(?::|\s?h\s?|\.(?=\d\d\s?(?:uhr|h)\b))(?P<minute>\d\d)\b"
        rf"|\s?(?:[ap]\.?m|uhr|o'clock)\b)"
        rf"|\bhalf past (?P<half>{numbers})\b"
        rf"|\b(?:at|um|a las|a) (?P<at>\d{{1,2}}|{numbers})(?![.,]\d)(?=\s*(?:$|[.,;)]|h\b|in |on |with |from ))"
        rf"|(?:(?P<sign>[€$£]|\beur )\s?)?"
        rf"(?:(?<![\w.-])(?P<number>\d{{1,3}}(?: \d{{3}})+(?!\d)|\d[\d.,]*\d|\d)(?P<power>e-?\d+)?(?P<kilo>k\b)?"
        rf"|\b(?P<word>{numbers})\b)(?:\s?(?P<unit>{units})(?!\w)|(?![\w-])(?=(?:\s(?P<noun>[^\W\d]+))?))"
        rf"|(?:\b(?:per|an?|each|every|pro|par|por|al|im|je) |/)(?P<per>{periods})\b"
        rf"|(?P<name>\b[^\W\d]{{3,11}}\b)"
    )


def find_measures(lower: str, whole: str) -> list[tuple[Span, Measure]]:
    """Return the numbers, days and times of a text, each with its place. Names of months need a capital."""
    measures = []
    for match in _pattern().finditer(lower):
        start, end = match.span()
        if match.lastgroup == "name":
            measure = _read_name(match[0], is_capital=whole[start].isupper())
        else:
            measure = _read(match, lower[:start])
            end = match.end("noun") if match["noun"] and stem(match["noun"]) in units_of() else end
        if measure:
            measures.append(((start, end), measure))
    return measures


def _read_name(name: str, *, is_capital: bool) -> Measure | None:
    for kind in ("weekday", "month") if is_capital else ("weekday",):
        if number := names_of(kind).get(name) or names_of(kind).get(name.removesuffix("s")):
            return kind, str(number)
    unit = units_of().get(name)
    return ("often", f"{unit[1]:.2g}") if unit and unit[0] == "often" else None


def _read(match: re.Match[str], before: str) -> Measure:
    group = {name: value for name, value in match.groupdict().items() if value}
    for kind in ("address", "phone"):
        if kind in group:
            return kind, re.sub(r"[ ()/-]", "", group[kind])
    if "iso" in group:
        return "date", group["iso"][5:]
    if day := group.get("day", group.get("day2")):
        month = group.get("month", group.get("month2"))
        return "date", f"{names_of('month')[month]:02}-{int(day):02}" if month else f"{int(day):02}"
    if hour := group.get("hour", group.get("at", group.get("half"))):
        return "clock", f"{int(_number(hour)) % 12}:{30 if 'half' in group else group.get('minute', '00')}"
    if per := group.get("per"):
        return "often", f"{units_of()[per][1] / 86400:.2g}"
    return _read_number(group, before)


def _read_number(group: dict[str, str], before: str) -> Measure:
    """Return a number. Its kind is the unit, the noun after it, the word before it, or unknown."""
    digits = group.get("number") or _number(group["word"])
    plain = re.sub(r"(?<!\b0)[., ](?=\d{3}(?:\D|$))", "", digits + group.get("power", "")).replace(",", ".")
    try:
        value = float(plain) * (1000 if "kilo" in group else 1)
    except ValueError:
        value = 0.0
    noun = group.get("noun", "")
    if known := units_of().get(group.get("sign", group.get("unit", "")).strip()) or units_of().get(stem(noun)):
        return known[0], f"{value * known[1]:.4g}"
    if re.fullmatch(r"(?:19|20)\d\d", digits):
        return "year", digits
    last = before.split()[-1:] if before.endswith(" ") else []
    nouns = (stem(word) for word in (noun, *last) if word.isalpha() and not is_empty(word))
    return next(nouns, ""), f"{value:g}"


def _number(word: str) -> str:
    return word if word.isdecimal() else str(names_of("number")[word])


# lines

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
    subject, value = range(split), range(rest, len(whole))
    if verb == "be" and _is_name(whole[:split]) and re.match(_OWNED, lower[rest:]):
        subject, value = value, subject  # "Kim is my boss"
    taken = [span for span, measure in measures if span[0] in value or measure[0] == "often"]
    content = [item for item in content if not _is_in(item[0], taken)]
    of_value = [(place, word) for place, word in content if place in value]
    own = [(span, measure) for span, measure in measures if span[0] in value]
    scopes = {word.removesuffix("s") for place, word in zip(places, sequence, strict=True) if not _is_in(place, starts)}
    ends = [0, *(match.end() for match in re.finditer(_CLAUSE_END, whole)), len(whole) + 1]
    clauses = [frozenset(word for place, word in content if place in range(*span)) for span in pairwise(ends)]

    def beside(place: int) -> frozenset[str]:
        return clauses[bisect(ends, place) - 1]

    signals = [(kind, beside(places[at])) for at, _, kinds in matches for kind in sorted(kinds)]
    return LineFact(
        sequence,
        frozenset(word for place, word in content if place in subject),
        verb,
        frozenset(word for _, word in of_value),
        _lead(token[0] for token in tokens if token.start() not in hidden and token.start() in value),
        frozenset(word for place, word in of_value if has_digit(word) or re.match(_NAME, whole[max(0, place - 2) :])),
        frozenset(measure for _, measure in own),
        frozenset((measure[0], word) for span, measure in own for word in beside(span[0])),
        words_of("scope") & scopes,
        tuple(clauses),
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
    words = ((token.start(), token[0]) for token in tokens if token[0] not in stops)
    return [(place, stem(word.lower())) for place, word in words if not is_empty(word.lower())]


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
