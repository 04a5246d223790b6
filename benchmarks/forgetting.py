"""Forget planted words, one after the other, and search all bytes for each of them afterwards.

python -m benchmarks.forgetting --count 1000
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from kept import Memory
from kept.testing import FakeEmbedder
from tests.support.planted_words import PLANTS, start_planting

_LETTERS = "bcdfghjklmnpqrstvwxz"


def make_word(number: int) -> str:
    """Return a word that is in no other text. Every third is not ASCII."""
    ending = "".join(_LETTERS[number // 20**place % 20] for place in range(3))
    return f"{'zörk' if number % 3 == 0 else 'qwark'}{ending}v"


def index_size(memory: Memory) -> int:
    return sum(path.stat().st_size for path in Path(memory.config.paths.folder).glob("index.sqlite*"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000)
    count = parser.parse_args().count
    kinds = list(PLANTS)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        memory = Memory.open(root / "workspace", home=root / "home", embedder=FakeEmbedder(), create=True)
        home = start_planting(memory)
        for number in range(count):
            PLANTS[kinds[number % len(kinds)]](home, make_word(number))
        memory.sync()
        size_before = index_size(memory)
        left: dict[str, list[str]] = {}
        claimed = 0
        started = time.process_time()
        for number in range(count):
            word = make_word(number)
            assert home.left(word), (kinds[number % len(kinds)], word)
            receipt = memory.forgetting.apply(memory.forgetting.plan(word))
            claimed += bool(receipt.left) or not receipt.is_finished
            if files := home.left(word):
                left[word] = files
        seconds = time.process_time() - started
        print(f"{count:,} forgets of planted words in {len(kinds)} kinds of places")
        print(f"left after a search through all bytes: {len(left)}; receipts that say so: {claimed}")
        print(f"index with its log: {size_before:,} bytes before, {index_size(memory):,} after")
        print(f"{seconds / count * 1000:.0f} ms of CPU for each, with the searches")
        for word, files in left.items():
            print(word, files)
        home.sessions.close()
        memory.close()


if __name__ == "__main__":
    main()
