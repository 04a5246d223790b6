"""Equivalents: words that people use for the same thing, such as k8s and Kubernetes.

Each line of `equivalents.txt` is a group, and every word of it finds the others. A group belongs there if its words can
replace each other in nearly every note, and if neither their stem nor a typo connects them. Words that merely resemble
each other in meaning are left to the embedder. Write the words as they are indexed: lower case, without accents, one
word each.
"""

from __future__ import annotations

import os


def _by_word() -> dict[str, tuple[str, ...]]:
    equivalents: dict[str, tuple[str, ...]] = {}
    with open(os.path.join(os.path.dirname(__file__), "equivalents.txt"), encoding="utf-8") as file:
        groups = [line.split() for line in file]
    for words in groups:
        for word in words:
            others = tuple(other for other in words if other != word)
            equivalents[word] = (*equivalents.get(word, ()), *others)
    return equivalents


EQUIVALENTS = _by_word()
"""The equivalents of each word that has any."""
