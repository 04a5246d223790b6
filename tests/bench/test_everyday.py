"""The everyday questions in `benchmarks/everyday`: sound ids, fair halves, and sets that `kept bench` can read."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.everyday.halves import FOLDER, HALVES, SETS, assign_halves, read_halves, read_rows, write_halves
from benchmarks.threshold import FOREIGN, ask_probes, measure_curve
from kept.bench.dataset import CORPUS, QUERIES, read_set
from kept.bench.measurement import measure_set
from kept.config import load_config
from kept.records import LIKELY_FROM

CATEGORIES = set(
    "keyword paraphrase indirect compound typo variant prefix inflection status who when number multi foreign "
    "unanswerable".split()
)
FROM_THE_FIELD = {
    "what is my time zone": "Timezone is Europe/Zurich",
    "medication I must avoid": "Allergic to penicillin",
    "status of the OAuth problem": "OAuth login loop",
    "databse": "database",
    "postgresql": "Postgres",
    "kube*": "Kubernetes",
}


@pytest.mark.parametrize("name", SETS)
def test_a_set_has_sixty_notes_and_enough_questions_of_every_category_with_answers(name):
    bench = read_set(str(FOLDER / name))
    assert len(bench.documents) == 60
    assert sum(query.answerable for query in bench.queries) >= 100
    assert sum(not query.answerable for query in bench.queries) >= 20
    assert {query.category for query in bench.queries} == CATEGORIES
    assert len({query.text.lower() for query in bench.queries}) == len(bench.queries)
    assert all(note.timestamp for note in bench.documents), "so that recency is the same in every run"
    assert {query.id for query in bench.queries if query.answerable} == set(bench.relevant)
    assert {note for notes in bench.relevant.values() for note in notes} == {note.id for note in bench.documents}
    assert all(len(bench.relevant[query.id]) > 1 for query in bench.queries if query.category == "multi")


@pytest.mark.parametrize("name", SETS)
def test_halves_follow_the_rule_and_are_balanced_in_every_category(name):
    rows = read_rows(FOLDER / name / QUERIES)
    assert read_halves(name) == assign_halves(rows)
    counts = Counter((row["category"], row["half"]) for row in rows)
    assert all(abs(counts[category, "tune"] - counts[category, "held"]) <= 1 for category in CATEGORIES)


@pytest.mark.parametrize("text", FROM_THE_FIELD)
def test_questions_that_users_reported_are_in_the_sets(text):
    answers = [
        note.text
        for bench in (read_set(str(FOLDER / name)) for name in SETS)
        for query in bench.queries
        for note in bench.documents
        if query.text == text and note.id in bench.relevant.get(query.id, {})
    ]
    assert any(FROM_THE_FIELD[text] in answer for answer in answers)


def test_each_half_can_be_written_as_a_set_of_its_own(tmp_path):
    folders = [*write_halves(tmp_path)]
    assert [folder.name for folder in folders] == [f"{name}_{half}" for name in SETS for half in HALVES]
    for name in SETS:
        halves = [read_set(str(tmp_path / f"{name}_{half}")) for half in HALVES]
        whole = read_set(str(FOLDER / name))
        assert all(half.documents == whole.documents for half in halves)
        assert {query.id for half in halves for query in half.queries} == {query.id for query in whole.queries}
        assert halves[0].relevant | halves[1].relevant == whole.relevant
        assert not {*halves[0].relevant} & {*halves[1].relevant}
        assert (tmp_path / f"{name}_tune" / CORPUS).read_bytes() == (FOLDER / name / CORPUS).read_bytes()


@pytest.mark.parametrize("name", SETS)
def test_grades_mean_what_they_say_and_nothing_is_hidden(name, tmp_path, capsys):
    bench = read_set(str(FOLDER / name))
    config = load_config(home=str(tmp_path), environ={}).config
    measured = measure_set(bench, config)
    with capsys.disabled():
        shares = ", ".join(f"{grade} {figures.right}/{figures.hits}" for grade, figures in measured.grades.items())
        print(f"\n{name}: first hits that are right, by grade: {shares}")
    strong, weak = measured.grades["strong"], measured.grades["weak"]
    assert strong.right >= 0.9 * strong.hits
    assert weak.right < 0.45 * weak.hits
    assert measured.summary.figures["recall@10"] >= measured.baselines["keyword"].figures["recall@10"]
    [current] = measure_curve(ask_probes(bench, FOREIGN, config, str(tmp_path / "probes")), [LIKELY_FROM])
    with capsys.disabled():
        print(f"{name}: {current}")
    # Questions of one to four words and nonsense of three overlap in sixty notes. There, an answer is worth more.
    assert current.answers_lost <= 0.165
    assert current.foreign_refused >= 0.4
    assert current.random_refused >= 0.7
