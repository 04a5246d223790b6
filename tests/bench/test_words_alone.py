"""At default settings, a search finds at least what words alone find."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.everyday.halves import FOLDER, SETS
from kept.bench.dataset import BenchSet, read_set
from kept.bench.layout import lay_out
from kept.bench.measurement import summarise
from kept.bench.query_runner import ask_all, with_variant
from kept.config import load_config
from kept.memory import Memory
from tests.support.recall_slices import SLICES

EVERYDAY = tuple(read_set(str(FOLDER / name)) for name in SETS)


@pytest.mark.parametrize("bench", [*SLICES, *EVERYDAY], ids=lambda bench: bench.name)
def test_the_default_settings_find_at_least_what_words_alone_find(tmp_path, bench):
    figures = measure(bench, str(tmp_path))
    for name, values in figures.items():
        cells = "  ".join(f"{figure} {values[figure]:.3f}" for figure in ("recall@5", "recall@10", "mrr@10"))
        print(f"{bench.name:<18}{name:<10}{cells}")
    default, words = figures["kept"], figures["keyword"]
    assert all(default[figure] >= words[figure] for figure in ("recall@5", "recall@10", "mrr@10"))


def measure(bench: BenchSet, folder: str) -> dict[str, dict[str, float]]:
    groups = lay_out(bench, load_config(home=folder, environ={}).config, folder)
    for group in groups.values():
        with Memory(group.config) as memory:
            memory.sync()
    figures = {}
    for variant in ("kept", "keyword"):
        asked = {name: replace(group, config=with_variant(group.config, variant)) for name, group in groups.items()}
        answers = ask_all(asked, bench.queries, max_results=12).answers
        figures[variant] = summarise(bench.queries, answers, bench.relevant).figures
    return figures
