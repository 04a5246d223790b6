"""Stopwords: words that carry no information about what a query looks for.

They are dropped from a query unless nothing else is left. They depend on the language: "die" is an article in German
and a verb in English. So a query is taken to be in the language most of whose stopwords it has. English is the default:
another language needs at least two of its stopwords in the query, and more of them than English has.

The lists, in `stopwords.txt`, hold articles, pronouns, prepositions and question words, as words are indexed: lower
case, without accents. A word that is a stopword in one language and carries meaning in another is listed all the same,
because a list counts only for a query in its language.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import cache

from kept.base.words.segment import fold, is_unspaced, normalise

_ENOUGH = 2
"""Stopwords of another language that a query needs to be taken for that language."""


@cache
def _read() -> dict[str, str]:
    """Return the words of each list by its name: the language, and `unspaced` for a script without spaces."""
    with open(os.path.join(os.path.dirname(__file__), "stopwords.txt"), encoding="utf-8") as file:
        return dict(part.split("]\n", 1) for part in file.read().split("[")[1:])


ENGLISH = frozenset(f"{_read()['en']} {_read()['en asking']}".split())
"""With words around a question: "pretty sure someone decided something about this". Notes seldom have these words, so
each would count for much in the few passages that have it."""


def stopwords_for(words: Iterable[str]) -> frozenset[str]:
    """Return the words to drop from a query that has these words, which are lower case and folded."""
    query_words = set(words)
    best, most = ENGLISH, max(len(query_words & ENGLISH), _ENOUGH - 1)
    if len(query_words) <= most:
        return best
    latin_only = all(map(str.isascii, query_words))
    for stopwords in _lists(latin=True) if latin_only else (*_lists(latin=True), *_lists(latin=False)):
        matches = len(query_words & stopwords)
        if matches > most:
            best, most = stopwords, matches
    return best


@cache
def all_stopwords() -> frozenset[str]:
    """Return the stopwords of every language that has spaces, for a text that has little else."""
    return ENGLISH.union(*_lists(latin=True), *_lists(latin=False))


@cache
def _lists(*, latin: bool) -> tuple[frozenset[str], ...]:
    """Return the lists in Latin letters, which need no folding, or the others."""
    lists = (words for name, words in _read().items() if len(name) == 2 and name != "en" and words.isascii() == latin)
    return tuple(frozenset((words if latin else fold(normalise(words))).split()) for words in lists)


@cache
def _unspaced_by_first() -> dict[str, tuple[str, ...]]:
    """Return the stopwords of unspaced scripts by their first character."""
    by_first: dict[str, tuple[str, ...]] = {}
    lists = (words for name, words in _read().items() if name.endswith("unspaced"))
    for word in dict.fromkeys(normalise(" ".join(lists)).split()):
        by_first[word[0]] = (*by_first.get(word[0], ()), word)
    return by_first


def is_stopword_run(run: str) -> bool:
    """Return whether a run of an unspaced script consists of stopwords alone: 是什么, คืออะไร.

    Stopwords inside a longer run stay. Telling them from parts of other words needs a dictionary, and the rarity of a
    pair of characters is weight enough: removing them there lost as many answers as it gained.
    """
    by_first = _unspaced_by_first()
    ends = {0}
    for at in range(len(run)):
        if at in ends:
            ends.update(at + len(word) for word in by_first.get(run[at], ()) if run.startswith(word, at))
    return len(run) in ends


def content_words(text: str) -> frozenset[str]:
    """Return the words that say what a text is about: folded, without stop words, of unspaced scripts as pairs."""
    words: set[str] = set()
    for word in re.findall(r"\w+", fold(text).lower()):
        if word.isascii() or not is_unspaced(word[0]):
            words.add(word[:-1] if len(word) > 3 and word.endswith("s") else word)
        else:
            words.update(word[at : at + 2] for at in range(max(1, len(word) - 1)))
    return frozenset(words - ENGLISH)
