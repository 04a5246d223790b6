"""Reads what a line says, by rules: of what, which attribute, which value, when, and whether it is denied. Pure.

- Numbers before the verb are part of the subject: invoice 4711 is not invoice 4712.
- Numbers, days and times in the value are measures, each with its kind: "39 € per month" and "44 €" are of one kind.
- What happened is an event, not a state: it stays true.

The words are in `fact_words.txt`. Much is not understood; `fact_changes`, which compares two facts, then finds nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from functools import cache, lru_cache

from kept.values import frozen
from kept.words.segment import fold
from kept.words.stopwords import ENGLISH, stopwords_for

Measure = tuple[str, str]
"""A kind of value, such as a unit, and the value."""

TOKEN = r"\d[\d.,:]*\d|[^\W_]+(?:['_-]\w+)*"
KEY = r"\s*([^:=→]{1,60}?)\s*(?::(?=\s)|\s=\s|→|\s[–—]\s)"
PLACES = frozenset(
    "in on next under at behind by near beside above below inside auf unter bei hinter dans sous sur".split()
)
PREPOSITIONS = PLACES | frozenset(
    "to from with for of as until about within per after before because mit von zu fur nach avec de pour con".split()
)
PERSONS = frozenset("i we you he she they it ich wir er sie je nous il elle yo nosotros".split())
SPEAKER = frozenset("i we my our me us ich wir mein meine je nous yo".split())
KINDS = frozenset("date day time number hour address value amount".split())
"""Words that only name the kind of a value: "wedding date" is "wedding"."""
DEFINITE = r"\s*(?:my|our|the|his|her|their|mein\w*|unser\w*|der|die|das|mon|ma|le|la|mi|el) "
STARTS = (
    r"\b(?:since|as of|starting|ab|seit|depuis|desde|vanaf|sinds)(?: (?:dem|am|le|next|last|this|el))? "
    r"(?=[a-z0-9])[^\s,;.)]+(?: (?:19|20)\d\d)?"
    r"|\bfrom (?:now|today|tomorrow|next \w+|[a-z]+day|\w+ (?=on))(?: on(?:wards?)?)?"
)
"""Phrases that tell since when a line holds. Their days are not its value."""

_ARTICLES = frozenset("the a an my our his her their der die das dem den ein eine le la les un une el los una".split())
_MARKER = r"^\s*(?:>\s?)*(?:(?:[-*+]|\d{1,9}[.)])\s+)?(?:\[.\]\s+)?"
_DATED = (
    r"\d{4}-\d\d-\d\d|\d{1,2}[./]\d{1,2}[./]\d{0,4}|(?:in|im|en) (?:19|20)\d\d\b"
    r"|(?:heute|today|yesterday|gestern|hier|ayer)\b"
)
_DATED_BY_NAME = r"(?:on |am )?(?:\d{1,2}\.? ([a-z]+)|([a-z]+)\.? \d{1,2})\b[^:;.]{0,12}:"
_UNIT = r"\s?(?:[%€$£°]|(?:[kmµu]?g|[mcdk]?l|[kcm]?m|min|h|s|ms|[kmgt]b|hz|kw|w|iu|mcg|eur|usd|chf)\b)"
_MONEY = frozenset("€ $ £ eur euro euros usd dollar dollars chf pounds".split())
_NAME = r"(?:[A-Z]\S*|\d\S*)(?: (?:[A-Z]\S*|\d\S*))*\s*"
_LEAD = r"\W*(?:(?:now|jetzt|ahora|again)\W+)?(?:([a-z]+)\b\W+)?([^\W\d]+)?"
_BEFORE_VERBS = PERSONS | frozenset("do don't doesn't does not can can't cannot will won't never".split())
_ORDER = r"(?:please|always|never|do not|don't|bitte)?\s*([a-z]+)\b(?! (?:with|from|about|at|by)\b)"
_SHIFT = r"\w{3,}ed (?:to|until|till|at|by) [^\s,;.]*\d"


@frozen
class LineFact:
    """A line, taken apart. Words are folded and without their endings."""

    sequence: tuple[str, ...]
    """All words in order, only folded."""
    subject: tuple[str, ...]
    attribute: frozenset[str]
    """The verb, the preposition after it, and with @ what they are about: a place, work, a price."""
    value: frozenset[str]
    measures: frozenset[Measure]
    time: frozenset[str]
    """Words that limit the line to some time or part."""
    is_denied: bool
    is_event: bool
    verb: str
    """In its base form; "be" stands for a colon, too, and "#" for an amount without a verb."""
    lead: str
    """What the value begins with: an article, a name, or nothing for another word."""
    text: str
    """The text without Markdown, folded."""
    names: frozenset[str]
    """Words with a capital inside a sentence."""

    @property
    def plain(self) -> str:
        return self.text.lower()

    @property
    def topic(self) -> frozenset[str]:
        """The subject without words that only name the kind of the value."""
        return frozenset(self.subject) - KINDS or frozenset(self.subject)

    @property
    def words(self) -> frozenset[str]:
        return frozenset(self.subject) | self.value | {self.verb} - {"be", "have", "#", ""}

    @property
    def head(self) -> str:
        return next((word for word in reversed(self.subject) if word.isalpha()), "")

    @property
    def preposition(self) -> frozenset[str]:
        return self.attribute & PREPOSITIONS

    @property
    def about(self) -> frozenset[str]:
        return frozenset(name for name in self.attribute if name.startswith("@"))


@lru_cache(maxsize=2_000)
def read_fact(text: str) -> LineFact:
    """Return what a line or a sentence says."""
    whole = _strip(text)
    start = pattern("nows").match(whole.lower()) if may_have("nows", whole.lower()) else None
    raw = re.sub(
        rf"(?i)\b(?:{get_list('instead')}) [^,;.]*", " ", whole[start.end() :].lstrip(" ,") if start else whole
    )
    plain, words = raw.lower(), re.findall(TOKEN, raw)
    stops = stops_of(words)
    split, verb, rest = split_subject(plain)
    subject, rest_text = tuple(content_of(raw[:split], stops)), raw[rest:]
    if verb == "be" and re.match(DEFINITE, rest_text.lower()) and re.fullmatch(_NAME, raw[:split]):
        subject, rest_text = tuple(content_of(rest_text, stops)), raw[:split]  # "Kim is my boss"
    measures, left = read_measures(re.sub(STARTS, " ", rest_text, flags=re.IGNORECASE), subject)
    value = frozenset(content_of(left, stops))
    preposition, first = _read_lead(rest_text)
    attribute = {verb, preposition} - {""}
    if verb in ("", "be") and not measures and preposition in PLACES:
        attribute.add("@place")
    for word in (verb, *subject, *value):
        attribute |= {name for name, stems in attributes().items() if word in stems}
    denied = re.sub(r"\bn[or]\.? ?(?=\d)|\bno\.(?=\W*$)|\bnot (?:only|the)\b", " ", plain)
    return LineFact(
        tuple(re.findall(TOKEN, whole.lower())),
        subject,
        frozenset(attribute),
        value,
        measures,
        frozenset(stem(word.lower()) for word in words) & stems_of("scopes"),
        pattern("not").search(denied) is not None,
        _is_event(plain, words, verb),
        verb,
        "name" if first[:1].isupper() else "article" if first in _ARTICLES else "",
        whole,
        frozenset(stem(name.lower()) for name in re.findall(r"(?<=[^.!?:] )[A-Z]\w+", raw)),
    )


def _strip(text: str) -> str:
    """Return a text without Markdown, possessives and contractions, folded."""
    text = re.sub(_MARKER, "", text.replace("’", "'"))
    if "[" in text:
        text = re.sub(r"\[\[(?:[^\]|]*\|)?([^\]]*)\]\]|\[([^\]]*)\]\([^)]*\)", r"\1\2", text)
    text = fold(re.sub(r"[*`]|(?<!\w)_|_(?!\w)|(?:^|\s)#\w\S*", " ", text)).strip()
    if "'" in text:
        text = re.sub(r"\b(he|she|it|that|there|who|what)'s\b", r"\1 is", text, flags=re.IGNORECASE)
        for ending, full in (("'m", " am"), ("'re", " are"), ("'ve", " have"), ("'ll", " will"), ("'s", "")):
            text = re.sub(rf"(?<=\w){ending}\b", full, text)
    return re.sub(r"(?i)\b(mr|mrs|ms|dr|prof|st)\.", r"\1", text)


def _read_lead(text: str) -> tuple[str, str]:
    """Return the preposition that a value begins with, or nothing, and the word after it."""
    match = re.match(_LEAD, text)
    preposition, first = (match[1] or "", match[2] or "") if match else ("", "")
    if preposition in PREPOSITIONS:
        return preposition, first
    return "", preposition or first


def split_subject(plain: str) -> tuple[int, str, int]:
    """Return the end of the subject, the stem of the verb ("be" for a colon), and the start of the value."""
    key = re.match(KEY, plain)
    if key and has_any("fixes", key[1]):
        end, verb, rest = split_subject(plain[key.end() :])
        return key.end() + end, verb, key.end() + rest
    tokens = list(re.finditer(TOKEN, plain))
    for at, token in enumerate(tokens):
        if key and token.start() >= key.end(1):
            break
        if at and re.match(_SHIFT, plain[token.start() :]):
            return token.start(), stem(token[0]), token.end()
        if verb := _verb(tokens, at):
            after = tokens[at + 1] if at + 1 < len(tokens) else None
            if verb == "be" and after and re.fullmatch(r"(?!un)\w{3,}ed", after[0]):  # "is parked"
                return token.start(), stem(after[0]), after.end()
            return token.start(), stem(verb), token.end()
        is_amount = token[0][0].isdigit() and re.match(rf"{_UNIT}|[\d ()/-]{{5,}}", plain[token.end() :])
        if at and is_amount and re.search(r"\w \+?$", plain[: token.start()]) and tokens[at - 1][0] not in PREPOSITIONS:
            start = token.start() - (plain[token.start() - 1] == "+")
            return start, "#", start
    if key:
        return key.end(1), "be", key.end()
    order = re.match(_ORDER, plain)
    if order and order[1] in words_of("holding"):
        return 0, stem(order[1]), order.end()
    at = next((token.start() for token in tokens[1:] if token[0] in PREPOSITIONS), len(plain))
    return at, "", at


def _verb(tokens: list[re.Match[str]], at: int) -> str:
    """Return the base form of a token if it is a verb of something that holds, or else nothing."""
    word, before = tokens[at][0], tokens[at - 1][0] if at else ""
    if at == 0:
        return ""
    if word in words_of("be"):
        return "be"
    if word == "has":
        return "have"
    endings = (("", ""), ("s", ""), ("es", ""), ("ies", "y"))
    for base in (word.removesuffix(ending) + full for ending, full in endings if word.endswith(ending)):
        # Without its ending it may be a noun: "work phone".
        if base in words_of("holding") and (base != word or before in _BEFORE_VERBS or before.endswith("s")):
            return base
    is_verb = word in words_of("other holding") or word in words_of("set") or _is_turn(word)
    return word if is_verb else ""


def _is_turn(word: str) -> bool:
    return may_have("turns", word) and pattern("turns").fullmatch(word) is not None


def _is_event(plain: str, words: list[str], verb: str) -> bool:
    """Return whether a line tells what happened: it begins with a date, or has a past form before any other verb."""
    named = re.match(_DATED_BY_NAME, plain)
    if re.match(_DATED, plain) or (named and (named[1] or named[2]) in names_of("months")):
        return True
    if verb not in ("", "#"):
        return (
            verb == "be" and bool(re.search(r"\b(?:was|were)\b", plain)) and not re.search(r"\b(?:is|are)\b|:", plain)
        )
    for at, word in enumerate(words[:6]):
        lower = word.lower()
        is_regular = re.fullmatch(r"(?!un)\w{3,}ed", lower) is not None and not (at and word[0].isupper())
        if (is_regular or lower in words_of("past")) and not (at and lower in words_of("set")):
            return True
    last = words[-1].lower() if words else ""
    return bool(re.fullmatch(r"\w{0,4}ge\w{3,}(?:t|en)", last) or re.search(r"\bge\w{3,}t\b,", plain))


# measures


def read_measures(text: str, subject: tuple[str, ...] = ()) -> tuple[frozenset[Measure], str]:
    """Return the numbers, days and times of a text, each with its kind, and the text without them."""
    measures: set[Measure] = set()

    def take(expression: str, kind: str, value: Callable[[re.Match[str]], str]) -> None:
        nonlocal text

        def note(match: re.Match[str]) -> str:
            measured = value(match)
            if measured:
                measures.add((kind, measured))
            return " " if measured else match[0]

        text = re.sub(f"(?i){expression}", note, text)

    months, numbers = names_of("months"), names_of("numbers")
    if "@" in text or "://" in text:
        take(r"\S+@\S+\.\w+|\bhttps?://\S+", "address", lambda m: m[0].lower())
    if any(map(str.isdigit, text)):
        take(r"\b(?:19|20)\d\d-\d\d-\d\d\b", "date", lambda m: m[0][5:])
        take(r"(?:\+|\b0)\d[\d ()/-]{5,}\d", "phone", lambda m: re.sub(r"\D", "", m[0]))
        take(r"\b(\d{1,2})(?:st|nd|rd|th|\.)?(?: of| de)? ([a-z]{3,10})\b", "date", lambda m: _day(m[1], m[2]))
        take(r"\b([a-z]{3,10})\.? (\d{1,2})(?:st|nd|rd|th)?\b(?!:)", "date", lambda m: _day(m[2], m[1]))
        take(r"\b[^\W\d]+ (\d+[a-z]|[a-z]\d+)\b(?! )", "id", lambda m: m[1].lower())
        take(r"\bq([1-4])\b", "quarter", lambda m: m[1])
        take(
            r"\b(\d{1,2})(?::|h|\.(?=\d\d\s?(?:uhr|h)\b))(\d\d)\b(?:\s?[ap]\.?m\b)?",
            "clock",
            lambda m: _clock(m[1], m[2]),
        )
        take(r"\b(\d{1,2})\s?(?:[ap]\.?m\b|uhr\b|o'clock|h(?=\s|$))", "clock", lambda m: _clock(m[1]))
    take(r"\bhalf past (\w+)", "clock", lambda m: _clock(_number(m[1]), "30"))
    take(rf"\bat (\w+)(?=\s*(?:$|[.,;)]|(?!{_UNIT})[a-z]))", "clock", lambda m: _clock(_number(m[1])))
    take(rf"\b(?:{get_list('often')})\b", "often", lambda m: m[0].lower())
    for kind, names in (
        ("month", months),
        ("weekday", names_of("weekdays")),
        ("clock", {"noon": 0, "mittag": 0, "midi": 0}),
    ):
        take(r"\b[^\W\d]{3,10}\b", kind, lambda m, names=names, kind=kind: _name(m[0], names, kind == "month"))  # type: ignore[misc]
    for name in ("colours", "languages"):  # they stay words, too
        measures |= {(name, stem(word)) for word in re.findall(r"\w+", text.lower()) if word in words_of(name)}
    text = re.sub(r"\b[a-zA-Z]{3,6}\b(?= [a-z])", lambda m: _number(m[0]) if m[0].lower() in numbers else m[0], text)
    if not any(map(str.isdigit, text)):
        return frozenset(measures), text
    measures |= _read_numbers(text, subject)
    return frozenset(measures), re.sub(rf"(?<![\w-])\d[\d.,]*(?:e-?\d+)?k?(?:{_UNIT}|(?![\w-]))", " ", text)


def _read_numbers(text: str, subject: tuple[str, ...]) -> set[Measure]:
    """Return the numbers of a text. Their kind is the unit, the word just before, or that which the line is about."""
    measures = set()
    for match in re.finditer(
        r"(?<![\w-])([€$£]\s?)?(\d[\d.,]*\d|\d)(e-?\d+)?(k)?(?![\d-])\s?([€$£%°]|[^\W\d]+)?", text
    ):
        symbol, digits, power, kilo, unit = match.groups("")
        value = _amount(digits + power) * (1000 if kilo else 1)
        before = [word.lower() for word in re.findall(r"[^\W\d][\w-]*", text[: match.start()])]
        if symbol or unit.lower() in _MONEY:
            kind = "money"
        elif unit and _is_noun(unit.lower()):
            kind = stem(unit.lower())
        elif before and _is_noun(before[-1]) and text[match.start() - 1] == " ":
            kind = stem(before[-1])
        else:
            nouns = [word for word in before if word not in ENGLISH and not _is_turn(word)]
            kind = subject[-1] if subject else stem(nouns[-1]) if nouns else ""
        measures.add((kind, f"{value:g}"))
    return measures


def _is_noun(word: str) -> bool:
    return word not in ENGLISH and word not in PREPOSITIONS and word not in words_of("light")


def _amount(digits: str) -> float:
    try:
        return float(re.sub(r"[.,](?=\d{3}(?:\D|$))", "", digits).replace(",", "."))
    except ValueError:
        return 0.0


def _day(day: str, month: str) -> str:
    at = names_of("months").get(month.lower())
    return f"{at:02}-{int(day):02}" if at else ""


def _clock(hour: str, minute: str = "0") -> str:
    return f"{int(hour) % 12}:{int(minute):02}" if hour.isdecimal() and len(hour) < 3 else ""


def _number(word: str) -> str:
    return word if word.isdecimal() else str(names_of("numbers").get(word.lower(), ""))


def _name(word: str, names: dict[str, int], needs_capital: bool) -> str:
    lower = word.lower()
    at = names.get(lower, names.get(lower.removesuffix("s")))
    return "" if at is None or (needs_capital and word[0].islower()) else str(at)


# words


def stops_of(words: Iterable[str]) -> frozenset[str]:
    """Return the words to leave out. With a capital, a stop word of another language may be a name: Ben."""
    words = list(words)
    first = {word for word in words[:1] if word.lower() in _ARTICLES}
    return stopwords_for([word for word in words if word.islower()]) | ENGLISH | first


def content_of(text: str, stops: frozenset[str]) -> list[str]:
    """Return the words of a text that tell what it is about, as stems, in order."""
    content = []
    for word in re.findall(TOKEN, text):
        lower = word.lower()
        if len(word) == 1 and word.isupper() and word != "I":  # "Server A"
            content.append(word)
        elif not (word in stops or lower in ENGLISH or lower in SPEAKER or lower in PREPOSITIONS):
            content.append(stem(lower))
    return [word for word in content if word not in stems_of("light")]


def stem(word: str) -> str:
    """Return a word without the endings of English plurals and verbs."""
    if not word.isalpha() or len(word) < 4:
        return word
    if word in ("used", "using"):
        return "use"
    if word.endswith("ies"):
        return f"{word[:-3]}y"
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and not word.endswith(("ss", "us", "is")) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            if ending in ("ing", "ed") and word[-1] == word[-2] and word[-1] not in "ls":
                word = word[:-1]
            elif ending != "s" and re.fullmatch(r"[^aeiou][aeiou][vkmtdnlrzg]", word):
                word += "e"  # liv-ed, tak-ing
            break
    return word[:-1] if word.endswith("e") and len(word) > 4 else word


@cache
def _lists() -> dict[str, str]:
    with open(os.path.join(os.path.dirname(__file__), "fact_words.txt"), encoding="utf-8") as file:
        return dict(part.split("]\n", 1) for part in file.read().split("\n[")[1:])


@cache
def get_list(name: str) -> str:
    """Return a list of phrases as one expression."""
    return "|".join(_lists()[name].split("\n"))


@cache
def pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-])(?:{get_list(name)})(?![\w'-])")


@cache
def _beginnings(name: str) -> tuple[str, ...]:
    """Return the letters with which each phrase of a list begins, after a space."""
    phrases, depth = [""], 0
    for character in re.sub(r"\(\?<![^)]*\)", "", get_list(name)):
        depth += (character == "(") - (character == ")")
        if character == "|" and not depth:
            phrases.append("")
        else:
            phrases[-1] += character
    firsts = [phrase[3 : phrase.index(")")].split("|") if phrase.startswith("(?:") else [phrase] for phrase in phrases]
    letters = (re.match(r"(?:[a-z' ](?!\?))*", first) for group in firsts for first in group)
    return tuple({f" {match[0].strip()}" for match in letters if match})


def may_have(name: str, text: str) -> bool:
    """Return whether a text may have a phrase of a list. Compiling the list takes longer than this test."""
    padded = " " + " ".join(re.findall(r"[\w']+", text))
    return any(beginning in padded for beginning in _beginnings(name))


def has_any(name: str, text: str) -> bool:
    return may_have(name, text) and pattern(name).search(text) is not None


@cache
def words_of(name: str) -> frozenset[str]:
    return frozenset(_lists()[name].split())


@cache
def stems_of(name: str) -> frozenset[str]:
    return frozenset(map(stem, words_of(name)))


@cache
def names_of(name: str) -> dict[str, int]:
    """Return the names of days, months or numbers, and the English ones in short, each with its number."""
    groups = [group.split() for group in _lists()[name].split(";")]
    names = {word: at for at, group in enumerate(groups, 1) for word in group}
    return names if name == "numbers" else names | {group[0][:3]: at for at, group in enumerate(groups, 1)}


@cache
def attributes() -> dict[str, frozenset[str]]:
    return {name: stems_of(name) for name in _lists() if name.startswith("@")}


@cache
def opposites() -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(pair.split()) for pair in _lists()["opposites"].split(";"))
