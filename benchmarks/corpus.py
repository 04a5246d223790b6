"""Generator of realistic notes; the same seed gives the same notes.

Word frequencies follow Zipf's law, as in English, over a vocabulary of real function words, invented content words,
names and identifiers. So the full-text index sees common and rare terms in their usual proportion.
"""

from __future__ import annotations

import argparse
import os
import random
from itertools import accumulate

SEED = 20260301
CONTENT_WORDS = 20_000
FUNCTION_SHARE = 0.42
HEAD = 50
"""Flattens the top of the curve: the most common content word is every 600th word, like "time" in English."""
NAME_SHARE = 0.03
IDENTIFIER_SHARE = 0.02

_FUNCTION = (
    "the of and to a in that is was for it with as on be at by this had not are but from or have an they which one you"
    " were all we there would so if about when what can who into than its some could then do my after other how our up"
).split()
_ONSETS = "b br c ch cl cr d dr f fl fr g gl gr h j k l m n p pl pr qu r s sc sh sl sp st str t th tr v w".split()
_VOWELS = "a e i o u ai ea ee io oa ou".split()
_CODAS = ["", "", "", "n", "r", "l", "s", "t", "m", "nd", "st", "ck", "nt", "rt"]
_ENDINGS = ["", "", "", "", "s", "ed", "ing", "er", "tion", "ment", "ly", "al", "ness", "able"]
_FIRST = (
    "Ada Ben Carla Dmitri Elena Farah Goran Hana Ivo Jonas Kira Lars Mina Noor Otto Priya Rosa Sven Tara Yusuf".split()
)
_LAST = "Almeida Brandt Chen Dufour Eriksen Fontaine Garcia Haddad Ito Jensen Kowalski Lindqvist Moreau Okafor".split()
_QUESTIONS = (
    "what did we decide about {}?",
    "where is {} kept",
    "{}",
    "who knows about {} and when was it changed",
    "how do I set up {}",
    "notes on {}",
)


class Corpus:
    """Generator of notes and of questions about them."""

    def __init__(self, seed: int = SEED) -> None:
        self.random = random.Random(seed)
        self.words = self._vocabulary(CONTENT_WORDS)
        self._content = list(accumulate(1 / (rank + HEAD) for rank in range(len(self.words))))
        self._function = list(accumulate(1 / (rank + 1) for rank in range(len(_FUNCTION))))

    def _vocabulary(self, count: int) -> list[str]:
        pick = self.random.choice
        words: dict[str, None] = {}
        while len(words) < count:
            syllables = 1 + (self.random.random() < 0.75) + (self.random.random() < 0.35)
            word = "".join(pick(_ONSETS) + pick(_VOWELS) + pick(_CODAS) for _ in range(syllables)) + pick(_ENDINGS)
            words[word] = None
        return list(words)

    def text(self, count: int) -> str:
        """Return a paragraph of ``count`` words."""
        functions = iter(self.random.choices(_FUNCTION, cum_weights=self._function, k=count))
        contents = iter(self.random.choices(self.words, cum_weights=self._content, k=count))
        words: list[str] = []
        start = True
        for _ in range(count):
            draw = self.random.random()
            if draw < FUNCTION_SHARE:
                word = next(functions)
            elif draw < FUNCTION_SHARE + NAME_SHARE:
                word = self.name()
            elif draw < FUNCTION_SHARE + NAME_SHARE + IDENTIFIER_SHARE:
                word = self.identifier()
            else:
                word = next(contents)
            words.append(word[0].upper() + word[1:] if start else word)
            start = draw > 0.92
            if start:
                words[-1] += "."
        return " ".join(words) + "."

    def name(self) -> str:
        return f"{self.random.choice(_FIRST)} {self.random.choice(_LAST)}"

    def identifier(self) -> str:
        number = self.random.randrange(10_000)
        word = self.words[self.random.randrange(2_000)]
        return self.random.choice((f"ref-{number:04}-{number % 7}", f"{word}_{number % 50}", f"src/{word}.py"))

    def section(self) -> str:
        return self.text(self.random.randint(60, 120))

    def title(self) -> str:
        words = self.random.choices(self.words, cum_weights=self._content, k=self.random.randint(2, 4))
        return " ".join(words).capitalize()

    def note(self, sections: int) -> str:
        if sections == 1:
            return f"# {self.title()}\n\n{self.section()}\n"
        parts = [f"# {self.title()}\n"]
        parts += [f"## {self.title()}\n\n{self.section()}\n" for _ in range(sections)]
        return "\n".join(parts)

    def questions(self, count: int) -> list[str]:
        """Return questions of two to five words with the word frequencies of the notes, in common phrases."""
        found = []
        for _ in range(count):
            words = self.random.choices(self.words, cum_weights=self._content, k=self.random.randint(2, 5))
            if self.random.random() < 0.2:
                words[-1] = self.identifier()
            elif self.random.random() < 0.2:
                words[-1] = self.name()
            found.append(self.random.choice(_QUESTIONS).format(" ".join(words)))
        return found


def write_notes(workspace: str, *, notes: int, sections: int = 1) -> None:
    """Fill a workspace, with a hundred notes per folder."""
    corpus = Corpus()
    for number in range(notes):
        folder = os.path.join(workspace, "memory", f"{number // 100:03}")
        if number % 100 == 0:
            os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"note-{number:05}.md"), "w", encoding="utf-8") as file:
            file.write(corpus.note(sections))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Fill a workspace with generated notes.")
    parser.add_argument("workspace")
    parser.add_argument("--notes", type=int, default=1_000)
    parser.add_argument("--sections", type=int, default=1)
    chosen = parser.parse_args()
    write_notes(chosen.workspace, notes=chosen.notes, sections=chosen.sections)
