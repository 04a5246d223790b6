"""The everyday questions in `benchmarks/everyday`: sound ids, fair halves, and sets that `kept bench` can read."""

import pytest

from benchmarks.everyday.halves import FOLDER, SETS
from benchmarks.threshold import FOREIGN, ask_probes, measure_curve
from kept.base.records import LIKELY_FROM
from kept.config import load_config
from kept.server.bench.measurement import measure_set
from kept.server.bench.sets import read_set


@pytest.mark.parametrize("name", SETS)
def test_grades_mean_what_they_say_and_nothing_is_hidden(name, tmp_path, capsys):
    bench = read_set(str(FOLDER / name))
    config = load_config(home=str(tmp_path), environ={}).config
    measured = measure_set(bench, config)
    with capsys.disabled():
        shares = ", ".join(
            f"{grade} {figures['right']}/{figures['hits']}" for grade, figures in measured["grades"].items()
        )
        print(f"\n{name}: first hits that are right, by grade: {shares}")
    strong, weak = measured["grades"]["strong"], measured["grades"]["weak"]
    assert strong["right"] >= 0.9 * strong["hits"]
    assert weak["right"] < 0.45 * weak["hits"]
    assert measured["kept"]["recall@10"] >= measured["keyword"]["recall@10"]
    [current] = measure_curve(ask_probes(bench, FOREIGN, config, str(tmp_path / "probes")), [LIKELY_FROM])
    with capsys.disabled():
        print(f"{name}: {current}")
    # Questions of one to four words and nonsense of three overlap in sixty notes. There, an answer is worth more.
    assert current.answers_lost <= 0.165
    assert current.foreign_refused >= 0.4
    assert current.random_refused >= 0.7
