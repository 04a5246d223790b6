"""Words that say nothing about what is looked for. Dropped from a query unless nothing else is left.

Which words those are depends on the language: "die" is an article in German and a verb in English. So a query is taken
to be in the language most of whose small words it has. English is where a query begins: another language needs two
of its small words, and more of them than English has.

All lists are written as words are indexed, in small letters and without accents.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from kept.chunking.folding import fold
from kept.chunking.segment import normalise
from kept.search.languages import SPACED, UNSPACED_WORDS

_SMALL = frozenset(
    """
    a about above after again all also am an and any are aren't as at be because been before being below between
    both but by can can't cannot could couldn't did didn't do does doesn't doing don't down during each few for
    from further had hadn't has hasn't have haven't having he her here hers herself him himself his how i i'd
    i'll i'm i've if in into is isn't it it's its itself just let's me more most my myself no nor not of off on
    once only or other our ours ourselves out over own please same shall she should shouldn't so some such tell
    than that that's the their theirs them themselves then there there's these they they're this those through
    to too under until up upon us very was wasn't we we'd we're we've were weren't what what's when where
    where's which while who who's whom whose why will with won't would wouldn't you you'd you'll you're you've
    your yours yourself yourselves
    """.split()
)

_ASKING = frozenset(
    """
    actually afaik anybody anyone anything anyway basically cant didnt doesnt dont else ever forget forgot forgotten
    gonna guess hello hey hi honestly iirc im isnt ive kinda knew know lets literally maybe ok okay perhaps pretty
    probably really recall remember remembers somebody somehow someone something somewhere stuff supposed sure theres
    think though thought vaguely wasnt whatever whats wonder wondering yeah
    """.split()
)
"""What people say around a question: "pretty sure someone decided something about this". Notes seldom have these words,
so each would count for much where it happens to stand."""
ENGLISH = _SMALL | _ASKING

_ENOUGH = 2


def stop_words_of(words: Iterable[str]) -> frozenset[str]:
    """The words to drop from a query that has these words, which are lowered and folded."""
    asked = set(words)
    best, most = ENGLISH, max(len(asked & ENGLISH), _ENOUGH - 1)
    if len(asked) <= most:
        return best
    plain = all(map(str.isascii, asked))
    for listed in _languages(latin=True) if plain else (*_languages(latin=True), *_languages(latin=False)):
        found = len(asked & listed)
        if found > most:
            best, most = listed, found
    return best


@cache
def _languages(*, latin: bool) -> tuple[frozenset[str], ...]:
    """Lists in Latin letters, which need no folding, or the others."""
    listed = (words for words in SPACED.values() if words.isascii() == latin)
    return tuple(frozenset((words if latin else fold(normalise(words))).split()) for words in listed)


@cache
def _unspaced() -> dict[str, tuple[str, ...]]:
    """Such words by their first character."""
    by_first: dict[str, tuple[str, ...]] = {}
    for word in dict.fromkeys(normalise(" ".join(UNSPACED_WORDS.values())).split()):
        by_first[word[0]] = (*by_first.get(word[0], ()), word)
    return by_first


def says_nothing(run: str) -> bool:
    """Whether a run of an unspaced script is made of such words alone: 是什么, คืออะไร.

    Inside of a longer run nobody can tell them from parts of other words without knowing all words, and how rare a pair
    of characters is says enough about it: taking them out there lost as many answers as it found.
    """
    listed = _unspaced()
    ends = {0}
    for at in range(len(run)):
        if at in ends:
            ends.update(at + len(word) for word in listed.get(run[at], ()) if run.startswith(word, at))
    return len(run) in ends
