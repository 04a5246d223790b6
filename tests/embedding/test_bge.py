"""bge-small-en-v1.5, int8, as people use it: the real model, read from the package that has it."""

import itertools

import numpy as np
import onnxruntime
import pytest
from tokenizers import Tokenizer

from kept.embedding.model_catalogue import CATALOGUE
from tests.support.embedding_models import bge_folder, open_folder, rows, unit
from tests.support.workspaces import open_memory, paths, write_note

RELATED = [
    ("My daughter is allergic to peanuts.", "The girl must not eat nuts."),
    ("The train to Lyon was cancelled.", "Our rail journey did not take place."),
    ("We pay the developers in euros.", "Programmers get their salary in European currency."),
    ("The server ran out of disk space.", "There was no storage left on the machine."),
]


@pytest.fixture(scope="module")
def bge():
    return open_bge()


def open_bge():
    model = CATALOGUE["bge-small-en"]
    return open_folder(bge_folder(), dims=model.dims, calibration=model.calibration, query_prefix=model.query_prefix)


def test_its_vector_is_that_of_the_first_token(bge):
    text = "The staging database moved to port 5433."
    tokenizer = Tokenizer.from_file(str(bge_folder() / "tokenizer.json"))
    ids = np.array([tokenizer.encode(text).ids])
    session = onnxruntime.InferenceSession(str(bge_folder() / "model.onnx"), providers=["CPUExecutionProvider"])
    feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    (tokens,) = session.run(["last_hidden_state"], feed)
    (vector,) = rows(bge.embed([text], role="document"))
    assert vector @ unit(tokens[0, 0]) == pytest.approx(1.0, abs=1e-4)
    assert vector @ unit(tokens[0].mean(axis=0)) < 0.99


def test_a_vector_does_not_depend_on_what_was_embedded_with_it(bge):
    texts = ["king", "The train to Lyon was cancelled. " * 8, "a note about bread and an oven " * 3]
    together = list(bge.embed(texts, role="document"))
    alone = [bge.embed([text], role="document").data for text in texts]
    assert together == alone


def test_it_is_384_numbers_wide_and_says_so_before_it_is_loaded(bge):
    fresh = open_bge()
    assert fresh.identity == bge.identity
    assert fresh.identity.dims == 384
    assert {bge.embed(["king"], role=role).dims for role in ("query", "document")} == {384}


def test_its_scale_puts_unrelated_texts_near_zero_and_the_same_words_at_one(bge):
    texts = [text for text, _ in RELATED]
    vectors = rows(bge.embed(texts, role="document"))
    for one, other in itertools.combinations(vectors, 2):
        assert bge.calibration.score(float(one @ other)) < 0.3
    assert bge.calibration.score(float(vectors[0] @ vectors[0])) == 1.0


def test_a_note_is_found_by_meaning_without_a_common_word(tmp_path):
    workspace = tmp_path / "workspace"
    write_note(workspace, "memory/health.md", "Anna cannot have peanuts or almonds; she carries adrenaline.\n")
    write_note(workspace, "memory/travel.md", "The flight to Lisbon leaves from gate four on Sunday.\n")
    write_note(workspace, "memory/work.md", "Staging listens on port 5433 behind the proxy.\n")
    (tmp_path / "home" / "models").mkdir(parents=True)
    (tmp_path / "home" / "models" / "bge-small-en").symlink_to(bge_folder())
    with open_memory(
        tmp_path, settings={"memory_search.provider": "local", "memory_search.model": "bge-small-en"}
    ) as memory:
        result = memory.search("who is allergic to nuts?", min_score=0.0)
        nonsense = memory.search("purple monkeys juggling quantum teapots")
    assert paths(result)[0] == "memory/health.md"
    assert result.degraded == ()
    assert result.model == "bge-small-en"
    assert paths(nonsense) == []
