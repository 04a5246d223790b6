"""Reads the numbers, days and times of a line, each with its kind: "39 € a month" and "44 €" are of one kind. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from kept.notes.fact_words import is_empty, names_of, stem, units_of

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
    if name in ("noon", "midi", "mittag"):
        return "clock", "0:00"
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
    value = _amount(digits + group.get("power", "")) * (1000 if "kilo" in group else 1)
    noun = group.get("noun", "")
    if known := units_of().get(group.get("sign", group.get("unit", "")).strip()) or units_of().get(stem(noun)):
        return known[0], f"{value * known[1]:.4g}"
    if re.fullmatch(r"(?:19|20)\d\d", digits):
        return "year", digits
    last = before.split()[-1:] if before.endswith(" ") else []
    nouns = (stem(word) for word in (noun, *last) if word.isalpha() and not is_empty(word))
    return next(nouns, ""), f"{value:g}"


def _amount(digits: str) -> float:
    try:
        return float(re.sub(r"(?<!\b0)[., ](?=\d{3}(?:\D|$))", "", digits).replace(",", "."))
    except ValueError:
        return 0.0


def _number(word: str) -> str:
    return word if word.isdecimal() else str(names_of("number")[word])
