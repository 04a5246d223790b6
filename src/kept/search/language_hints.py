"""A message for questions in a language that neither the notes nor the embedding model know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kept.embedding.model_catalogue import CATALOGUE
from kept.search.keywords import share_of_unknown_words
from kept.words.languages import guess_language

if TYPE_CHECKING:
    from kept.store.word_index import WordIndex

_MODEL = "multilingual"
_MIN_UNKNOWN = 0.5
"""Share of a question's words that no chunk has, from which its language is not that of the notes."""


def suggest_model(words: WordIndex, text: str, languages: Sequence[str]) -> tuple[str, ...]:
    """Return a message if a question is in another language than the notes, and a model for both can be had.

    ``languages`` are those of the model in use.
    """
    language = guess_language(text)
    if language is None or language in languages or language not in CATALOGUE[_MODEL].languages:
        return ()
    if share_of_unknown_words(words, text) < _MIN_UNKNOWN:
        return ()
    return (f"No note is in the language of this question. To search across languages: kept models pull {_MODEL}",)
