"""Reading a set, and writing its documents as what they are."""

import json
from pathlib import Path

import pytest

from kept import Memory
from kept.config import load_config
from kept.errors import BenchSetInvalid
from kept.server.bench.sets import lay_out, read_set, threshold_score
from kept.testing import FakeEmbedder

DATA = Path(__file__).parent / "data"


def write_set(folder: Path, documents: list[dict] | str, queries: list[dict] | str, qrels: str = "") -> Path:
    folder.mkdir()
    for name, rows in (("corpus.jsonl", documents), ("queries.jsonl", queries)):
        text = rows if isinstance(rows, str) else "".join(json.dumps(row) + "\n" for row in rows)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "qrels.tsv").write_text(f"query-id\tcorpus-id\trel\n{qrels}", encoding="utf-8")
    return folder


ONE = [{"id": "d1", "text": "A heron stands in the reeds."}]
ASKED = [{"id": "q1", "text": "heron"}]


@pytest.mark.parametrize(
    ("documents", "queries", "qrels", "message"),
    [
        ("", ASKED, "", "corpus.jsonl: empty"),
        ('{"id": "d1", "text": "x"}\n{"id": \n', ASKED, "", "corpus.jsonl, line 2: not JSON"),
        ("[1]\n", ASKED, "", "line 1: not an object"),
        ([{"id": "d1"}], ASKED, "", "line 1: 'text' is missing"),
        ([*ONE, *ONE], ASKED, "", "line 2: the id 'd1' is used twice"),
        (ONE, [{"id": "q1", "text": " "}], "", "queries.jsonl, line 1: 'text' is missing"),
        (ONE, [{"id": "q1", "text": "x", "date": "May"}], "", "'date' is not a time"),
        (ONE, [{"id": "q1", "text": "x", "group": "g"}], "", "query 'q1' names the group 'g'"),
        ([{**ONE[0], "group": "g"}], ASKED, "", "query 'q1' names no group"),
        (ONE, ASKED, "q2\td1\t1\n", "qrels.tsv, line 2: there is no query 'q2'"),
        (ONE, ASKED, "q1\td9\t1\n", "qrels.tsv, line 2: there is no document 'd9'"),
        (ONE, ASKED, "q1 d1 1\n", "qrels.tsv, line 2: expected a query, a document and a number"),
    ],
)
def test_what_is_wrong_with_a_set_is_said_by_file_and_line(tmp_path, documents, queries, qrels, message):
    with pytest.raises(BenchSetInvalid) as caught:
        read_set(str(write_set(tmp_path / "set", documents, queries, qrels)))
    assert message in caught.value.message
    assert caught.value.hint


def test_a_grade_of_zero_is_not_relevant_and_blank_lines_are_nothing(tmp_path):
    bench = read_set(str(write_set(tmp_path / "set", [*ONE, {"id": 2, "text": ""}], ASKED, "q1\td1\t0\n\nq1\t2\t2\n")))
    assert bench.relevant == {"q1": {"2": 2.0}}


@pytest.fixture
def chat():
    return read_set(str(DATA / "chat"))


def laid_out(bench, tmp_path):
    return lay_out(bench, load_config().config, str(tmp_path / "laid"))


def test_a_turn_is_covered_by_a_hit_on_its_line_and_by_no_other(chat, tmp_path):
    group = laid_out(chat, tmp_path)["friends"]
    with Memory(group.config, embedder=FakeEmbedder()) as memory:
        result = memory.search("three-legged greyhound Biscuit", min_score=0.0)
        hit = next(hit for hit in result if "three-legged" in hit.snippet)
        shown = memory.read(hit.path, start=hit.start_line, lines=hit.end_line - hit.start_line + 1).text
    returned = group.returned_hit(hit)
    texts = {document.id: document.text for document in chat.documents}
    assert "friends:s3:3" in returned.documents
    assert {name for name, text in texts.items() if text in shown} == returned.documents


def test_no_id_of_a_set_is_indexed_or_in_a_name(tmp_path):
    document = {"text": "A heron stands in the reeds.", "group": "okapi"}
    turn = {**document, "id": "quetzal", "session": "narwhal", "speaker": "Ann", "timestamp": "2025-01-01T10:00:00"}
    queries = [{"id": "tapir", "text": "heron", "group": "okapi"}]
    bench = read_set(str(write_set(tmp_path / "axolotl", [{**document, "id": "zebu"}, turn], queries)))
    group = laid_out(bench, tmp_path)["okapi"]
    with Memory(group.config, embedder=FakeEmbedder()) as memory:
        assert memory.sync().files == 2
        (hit,) = memory.search("heron", min_score=0.0)
        assert len(hit.also_in) == 1
        for name in ("quetzal", "narwhal", "okapi", "tapir", "zebu", "axolotl"):
            assert not any(hit.text_score for hit in memory.search(name, min_score=0.0))
            assert not any(name in str(path.relative_to(tmp_path)) for path in (tmp_path / "laid").rglob("*"))


def test_the_threshold_is_applied_to_the_score_that_the_curve_looks_at(tmp_path):
    bench = read_set(str(DATA / "shop"))
    group = laid_out(bench, tmp_path)[""]
    with Memory(group.config) as memory:
        for query in bench.queries:
            everything = memory.search(query.text, min_score=0.0, max_results=50).hits
            for least in (0.2, 0.35, 0.5):
                left = memory.search(query.text, min_score=least, max_results=50).hits
                assert {hit.path for hit in left} == {h.path for h in everything if threshold_score(h) >= least}
