"""Local models under several threads, as indexing uses them."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from kept.config.schema import LocalModelSettings
from kept.embedding.llama_cpp import open_model
from tests.support.embedding_models import open_folder, rows, write_folder, write_gguf

TEXTS = [f"the {word} sat on the mat" for word in ("cat", "dog", "king", "queen", "bread", "river", "bank", "oven")]


@pytest.mark.parametrize("kind", ["onnx", "gguf"])
def test_threads_that_come_first_together_get_the_vectors_that_one_would(tmp_path, kind):
    path = write_folder(tmp_path / "model") if kind == "onnx" else write_gguf(tmp_path / "tiny.gguf")
    opener = open_folder if kind == "onnx" else lambda path: open_model(LocalModelSettings(model_path=str(path)))
    alone = rows(opener(path).embed(TEXTS, role="document"))
    shared = opener(path)
    with ThreadPoolExecutor(8) as pool:
        many = list(pool.map(lambda text: rows(shared.embed([text], role="document"))[0], TEXTS * 4))
    for at, vector in enumerate(many):
        assert vector == pytest.approx(alone[at % len(TEXTS)], abs=1e-5)
