"""Reranking: what a model may change, when it stops, and that it never prevents an answer."""

from itertools import count
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

from kept.base.remote_errors import EmbeddingFailed
from kept.search.candidates import Evidence
from kept.search.reordering import rerank
from kept.search.scores import Scored
from tests.support.candidates import candidate, fuse
from tests.support.embedding_models import VOCABULARY, bge_folder, write_folder, write_tokenizer
from tests.support.workspaces import open_memory, paths, write_note

PATH = "memory_search.query.rerank.model_path"


def ranked(*scores: float) -> list[Scored]:
    """Candidates whose rows are 1, 2, 3 in the order of their scores."""
    weighed = [candidate(row, Evidence(words=score / 0.85), ("word",)) for row, score in enumerate(scores, start=1)]
    return fuse(weighed)


class FixedReranker:
    """Reranker that returns a fixed judgement for each row."""

    def __init__(self, *judgements: float, fails: bool = False) -> None:
        self.judgements = judgements
        self.fails = fails
        self.passages: list[str] = []

    def load(self) -> None:
        pass

    def score(self, query: str, passage: str) -> float:
        self.passages.append(passage)
        if self.fails:
            raise EmbeddingFailed("The model failed.")
        return self.judgements[int(passage) - 1]


def reranked(reranker: FixedReranker, before, timer=lambda: 0.0):
    return rerank(before, reranker, "query", timer=timer)


def rows(order) -> list[int]:
    return [scored.chunk.row for scored in order]


def test_what_is_not_among_the_best_is_not_read_and_stays_behind(monkeypatch):
    monkeypatch.setattr("kept.search.reordering.TOP", 2)
    reranker = FixedReranker(0.0, 0.0, 1.0, 1.0)
    order, degraded = reranked(reranker, ranked(0.9, 0.8, 0.7, 0.6))
    assert reranker.passages == ["1", "2"]
    assert rows(order) == [1, 2, 3, 4]
    assert degraded == ()
    scores = [scored.score for scored in order]
    assert scores == sorted(scores, reverse=True)
    assert all(sum(part.value for part in scored.parts()) == pytest.approx(scored.score) for scored in order)


def test_the_model_stops_when_its_time_is_used_up_and_it_is_said(monkeypatch):
    monkeypatch.setattr("kept.search.reordering.BUDGET_MS", 2_500)
    reranker = FixedReranker(0.0, 0.1, 1.0, 1.0)
    seconds = count()  # every look at the clock is a second later
    order, degraded = reranked(reranker, ranked(0.9, 0.8, 0.7, 0.6), lambda: float(next(seconds)))
    assert reranker.passages == ["1", "2"]
    assert rows(order)[2:] == [3, 4]
    assert degraded == ("Reranked 2 of 4: the time of 2500 ms was used up.",)


def test_a_model_that_fails_changes_nothing_and_it_is_said():
    before = ranked(0.9, 0.8)
    order, degraded = reranked(FixedReranker(fails=True), before)
    assert [scored.score for scored in order] == [scored.score for scored in before]
    assert degraded == ("Not reranked: The model failed.",)


# with real files and the real runtime


def write_judge(folder: Path, *, favourite="bread", strange_input=False, logit=None) -> Path:
    """Write a model whose logit is 10 for a pair with the favourite word and -10 for others, or always ``logit``."""
    table = np.full((len(VOCABULARY), 1), -10.0, np.float32)
    table[VOCABULARY[favourite], -1] = 10.0
    if logit is not None:
        table[:] = logit
    named = "pixels" if strange_input else "input_ids"
    nodes = [
        helper.make_node("Gather", ["table", named], ["looked_up"]),
        helper.make_node("ReduceMax", ["looked_up", "axis"], ["logits"], keepdims=0),
    ]
    given = [helper.make_tensor_value_info(named, TensorProto.INT64, ["batch", "sequence"])]
    out = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 1])]
    constants = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(np.array([1]), "axis")]
    graph = helper.make_graph(nodes, "judge", given, out, constants)
    folder.mkdir(parents=True, exist_ok=True)
    save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), str(folder / "model.onnx")
    )
    write_tokenizer(folder / "tokenizer.json")
    return folder


@pytest.fixture
def kitchen(tmp_path):
    workspace = tmp_path / "workspace"
    write_note(workspace, "memory/river.md", "the king sat on the bank of the river\n")
    write_note(workspace, "memory/oven.md", "the king ran fast to the oven with bread\n")
    return tmp_path


def test_a_model_in_a_folder_decides(kitchen):
    folder = write_judge(kitchen / "reranker")
    with open_memory(kitchen) as memory:
        assert paths(memory.search("king river bank"))[0] == "memory/river.md"
    with open_memory(kitchen, settings={PATH: str(folder)}) as memory:
        result = memory.search("king river bank", min_score=0.0)
        assert paths(result) == ["memory/oven.md", "memory/river.md"]
        assert result.degraded == ()
        part = next(part for part in result.hits[0].parts if part.name == "rerank")
        assert "the model's 0.99" in part.detail


def test_an_exact_match_stands_first_whatever_the_model_says(kitchen):
    with open_memory(kitchen, settings={PATH: str(write_judge(kitchen / "reranker"))}) as memory:
        assert paths(memory.search("bank of the river", min_score=0.0))[0] == "memory/river.md"


def test_what_the_model_finds_unfit_is_weak(kitchen, monkeypatch):
    monkeypatch.setattr("kept.search.reordering.WEIGHT", 1.0)
    monkeypatch.setattr("kept.search.pipeline.WEIGHT", 1.0)
    folder = write_judge(kitchen / "reranker", logit=-11.0)
    with open_memory(kitchen, settings={PATH: str(folder)}) as memory:
        result = memory.search("king fast oven")
        assert {hit.grade for hit in result} <= {"weak"}


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda folder: (folder / "model.onnx").write_bytes(b"no model"), "cannot be used"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "cannot be used"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "There is no model at"),
        (lambda folder: (folder / "model.onnx").unlink(), "There is no model at"),
        (lambda folder: write_judge(folder, strange_input=True), "it needs an input named pixels"),
        (lambda folder: write_judge(folder, logit=float("nan")), "not a judgement"),
        (write_folder, "not a judgement"),
    ],
)
def test_a_model_that_cannot_be_used_is_said_and_the_search_answers(kitchen, damage, reason):
    folder = write_judge(kitchen / "reranker")
    damage(folder)
    with open_memory(kitchen, settings={PATH: str(folder)}) as memory:
        result = memory.search("king river bank")
    assert paths(result)[0] == "memory/river.md"
    assert result.degraded[0].startswith("Not reranked: ")
    assert reason in result.degraded[0]


def test_a_missing_package_is_said(kitchen, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with open_memory(kitchen, settings={PATH: str(write_judge(kitchen / "reranker"))}) as memory:
        assert "onnxruntime, which is not installed" in memory.search("king river").degraded[0]


def test_a_real_cross_encoder_puts_the_answer_first(tmp_path):
    workspace = tmp_path / "workspace"
    write_note(workspace, "memory/port.md", "Staging listens on 5433 since March; ask Ada for the password.\n")
    write_note(
        workspace,
        "memory/ship.md",
        "The port of staging for the exhibition ships is Rotterdam, which port staff know.\n",
    )
    settings = {PATH: str(bge_folder().parent / "reranker_en")}  # ms-marco-MiniLM-L12 (int8)
    with open_memory(tmp_path, settings=settings) as memory:
        result = memory.search("which port does the staging database listen on?", min_score=0.0)
    assert result.degraded == ()
    assert paths(result)[0] == "memory/port.md"
