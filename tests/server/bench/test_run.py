"""The command: figures for sets of our own, which must not fall; errors in one line."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from kept.server.bench.measurement import FIGURES
from tests.support.commands import KEPT
from tests.support.files import write_file
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Both sets, measured once for all that is asked of the outcome."""
    from kept.config import load_config
    from kept.server.bench.measurement import measure_set, read_sets

    config = load_config(home=str(tmp_path_factory.mktemp("home")), environ={}).config
    sets = read_sets([str(DATA / "chat"), str(DATA / "shop")])
    shapes = [measure_set(bench, config) for bench in sets]
    return {measurement["set"]: measurement for measurement in json.loads(json.dumps(shapes))}


def test_recall_on_our_own_sets_does_not_fall(measured):
    """A guard: whoever changes ranking for the worse sees it here, before the large sets are measured."""
    chat, shop = measured["chat"], measured["shop"]
    assert chat["kept"]["recall@5"] >= 0.9
    assert chat["kept"]["recall@10"] >= 0.9
    assert chat["kept"]["mrr@10"] >= 0.85
    assert shop["kept"]["recall@5"] == 1.0
    assert shop["kept"]["mrr@10"] >= 0.9
    for alone in ("keyword", "vector"):
        assert chat["kept"]["mrr@10"] >= chat[alone]["mrr@10"] > 0


def test_what_cannot_be_answered_counts_for_abstaining_and_not_for_recall(measured):
    chat = measured["chat"]
    assert (chat["queries"], chat["kept"]["answerable"], chat["unjudged"]) == (16, 13, 1)
    adversarial = chat["categories"]["adversarial"]
    assert adversarial["recall@10"] is None
    assert adversarial["abstained_wrongly"] is None
    assert adversarial["abstained_rightly"] == chat["kept"]["abstained_rightly"]
    assert {name: category["queries"] for name, category in chat["categories"].items()} == {
        "single": 11,
        "several": 3,
        "adversarial": 2,
    }


def test_the_command_prints_the_same_as_json_and_leaves_nothing_behind(kept, tmp_path, environment, measured):
    room = tmp_path / "room"
    room.mkdir()
    done = kept("bench", DATA / "chat", DATA / "shop", "--json", env={"TMPDIR": str(room)})
    assert done.code == 0, done.err
    assert done.err == ""
    assert [measurement["set"] for measurement in done.json["sets"]] == ["chat", "shop"]
    for measurement in done.json["sets"]:
        expected = measured[measurement["set"]]["kept"]
        assert {name: measurement["kept"][name] for name in FIGURES} == {name: expected[name] for name in FIGURES}
    assert list(room.iterdir()) == []
    assert not (tmp_path / "home").exists()


def write_long_set(folder: Path) -> str:
    """Write a set that takes far longer than the test waits for it."""
    notes = [{"id": f"n{number}", "text": f"Parcel {number} is on shelf {number % 7}."} for number in range(200)]
    queries = [{"id": f"q{number}", "text": f"where is parcel {number}"} for number in range(5_000)]
    write_file(folder / "corpus.jsonl", "\n".join(map(json.dumps, notes)))
    write_file(folder / "queries.jsonl", "\n".join(map(json.dumps, queries)))
    write_file(folder / "qrels.tsv", "query-id\tcorpus-id\tscore\nq1\tn1\t1\n")
    return str(folder)


def test_the_folder_is_gone_when_the_command_is_stopped(tmp_path, environment):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [KEPT, "bench", write_long_set(tmp_path / "set")]
    environment = {**environment, "TMPDIR": str(temporary)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        wait_until(lambda: [*temporary.glob("kept-bench-*/1/home/**/index.sqlite")], "the set is indexed")
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 128 + signal.SIGTERM
    assert not [*temporary.iterdir()]


def test_tables_show_sets_and_categories(kept):
    done = kept("bench", DATA / "chat", "--sample", "8")
    assert done.code == 0, done.err
    rows = [line.split()[:2] for line in done.out.splitlines() if line.strip()]
    for row in (["chat", "8"], ["·", "single"]):
        assert row in rows


def test_settings_of_the_run_are_used(kept):
    changed = ("memory_search.provider=none", "memory_search.query.min_score=0.99")
    options = (*(argument for pair in changed for argument in ("--set", pair)), "--json")
    measurement = kept("bench", DATA / "shop", *options).json["sets"][0]
    assert measurement["index"]["provider"] == "none"
    assert measurement["min_score"] == 0.99
    assert measurement["kept"]["abstained_wrongly"] == 1.0


def test_two_sets_of_one_name_are_refused(kept, tmp_path):
    done = kept("bench", DATA / "chat", DATA / "chat")
    assert (done.code, len(done.err.splitlines())) == (2, 1)
