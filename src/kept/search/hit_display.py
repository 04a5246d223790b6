"""Parts of a hit for people, on a terminal or a page: the words that matched, headings, and lines."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from kept.base.records import Hit

_MIN_STEM, _ENDING = 4, 3


def query_words(query: str) -> list[str]:
    """Return the folded words of a query that a text is searched for, without stop words. A wildcard ends with '*'."""
    from kept.search.query import parse_query

    if not query.strip():
        return []
    terms = parse_query(query).terms
    words = {word for term in terms for word in re.findall(r"\w+", term.text.lower()) if term.kind != "wildcard"}
    words.update(f"{term.text.lower()}*" for term in terms if term.kind == "wildcard")
    return sorted(words, key=len, reverse=True)


def split_matches(line: str, words: list[str]) -> Iterator[tuple[str, bool]]:
    """Yield the pieces of a line, and whether each is one of the words, in any case, with any accents and endings."""
    from kept.base.words.segment import is_unspaced

    runs = [re.escape(word) for word in words if is_unspaced(word)]
    done = 0
    for match in re.finditer("|".join([*runs, r"\w+"]), line) if words else ():
        if is_match(match.group(), words):
            yield line[done : match.start()], False
            yield match.group(), True
            done = match.end()
    yield line[done:], False


def is_match(word: str, words: Iterable[str]) -> bool:
    """Return whether a word is one of the folded words, or differs from it by its ending."""
    from kept.base.words.segment import fold

    folded = fold(word).lower()
    for other in words:
        if folded == other or (other.endswith("*") and folded.startswith(other[:-1])):
            return True
        if other.endswith("*") or any(map(str.isdigit, folded + other)):  # otter20 is no form of otter1
            continue
        stem = other[: max(_MIN_STEM, len(other) - _ENDING + 1)]
        if len(stem) >= _MIN_STEM and folded.startswith(stem) and abs(len(folded) - len(other)) <= _ENDING:
            return True
    return False


def day_and_time(hit: Hit) -> tuple[str, str]:
    text = str(hit.timestamp)
    return text[:10], text[11:16]


def hit_headings(hit: Hit) -> list[str]:
    """Return the headings above a hit, without those that repeat its file's name or its time; or a conversation's
    title."""
    if hit.title:
        return [hit.title]
    name = os.path.splitext(os.path.basename(hit.path))[0]
    known = {*day_and_time(hit), name}
    return [heading for heading in hit.heading.split(" > ") if heading and heading not in known]


def snippet_lines(hit: Hit) -> list[str]:
    """Return the lines of the text without its headings, which are shown above it, unless it has nothing else."""
    lines = [line for line in hit.snippet.split("\n") if line.strip()]
    headings = {*hit.heading.split(" > "), *day_and_time(hit)}
    below = [line for line in lines if not (line.startswith("#") and line.lstrip("#").strip() in headings)]
    return below or lines


def time_text(hit: Hit) -> str:
    """Return date and time. Midnight is the time of a note that has only a date."""
    day, time = day_and_time(hit)
    return day if time == "00:00" else f"{day} {time}"
