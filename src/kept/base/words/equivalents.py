"""Equivalents: words that people use for the same thing, such as k8s and Kubernetes.

Each line of `equivalents.txt` is a group, and every word of it finds the others. A group belongs there if its words can
replace each other in nearly every note, and if neither their stem nor a typo connects them. Words that merely resemble
each other in meaning are left to the embedder. Write the words as they are indexed: lower case, without accents, one
word each.

Each line of `irregular_forms.txt` has the forms of an English word that no rule of the stemmer connects: run, ran.
"""

from __future__ import annotations

import os


def _read_groups(name: str) -> list[list[str]]:
    with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
        return [line.split() for line in file]


def _by_word(groups: list[list[str]]) -> dict[str, tuple[str, ...]]:
    equivalents: dict[str, tuple[str, ...]] = {}
    for words in groups:
        for word in words:
            others = tuple(other for other in words if other != word)
            equivalents[word] = (*equivalents.get(word, ()), *others)
    return equivalents


EQUIVALENTS = _by_word(_read_groups("equivalents.txt"))
"""The equivalents of each word that has any."""
IRREGULAR_FORMS = _by_word(_read_groups("irregular_forms.txt"))
"""The other forms of each irregular word."""
