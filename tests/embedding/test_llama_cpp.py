"""A GGUF model: a tiny one that the test writes, loaded and run by the real llama.cpp."""

import os
import stat
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from kept.base.remote_errors import EmbedderUnavailable
from kept.config.schema import LocalModelSettings
from kept.embedding.llama_cpp import open_model
from tests.support.commands import run_python
from tests.support.embedding_models import rows, write_folder, write_gguf
from tests.support.workspaces import open_memory, paths, write_note


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(scope="module")
def model(tiny):
    return open_model(LocalModelSettings(model_path=str(tiny)))


def embed(model, *texts, role="document"):
    return rows(model.embed(texts, role=role))


def test_texts_become_unit_vectors_of_the_width_that_the_file_declares(model):
    assert model.identity.provider == "llama_cpp"
    assert model.identity.model == "tiny"
    assert model.identity.dims == 32
    for vector in embed(model, "the cat sat on the mat", "king"):
        assert len(vector) == 32
        assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-5)


def test_a_long_text_is_cut_where_the_model_ends(model):
    long, start, other = embed(model, "king queen " * 400, "king queen " * 30, "cat " * 60)
    assert long @ start > 0.99
    assert long @ start > long @ other


def test_the_pooling_is_the_declared_one_unless_it_is_set(tmp_path):
    mean = write_gguf(tmp_path / "mean.gguf", pooling=gguf.PoolingType.MEAN)
    cls = write_gguf(tmp_path / "cls.gguf", pooling=gguf.PoolingType.CLS)
    none = write_gguf(tmp_path / "none.gguf", pooling=None)

    def vector(path, pooling="auto"):
        return embed(open_model(LocalModelSettings(model_path=str(path), pooling=pooling)), "the cat sat")[0]

    assert vector(mean) != pytest.approx(vector(cls), abs=1e-3)
    assert vector(mean, "cls") == pytest.approx(vector(cls), abs=1e-5)
    assert vector(none) == pytest.approx(vector(mean), abs=1e-5)


def test_prefixes_stand_before_queries_and_documents(tiny):
    settings = LocalModelSettings(model_path=str(tiny), query_prefix="query ", document_prefix="passage ")
    prefixed, plain = open_model(settings), open_model(LocalModelSettings(model_path=str(tiny)))
    assert embed(prefixed, "king", role="query")[0] == pytest.approx(embed(plain, "query king")[0], abs=1e-5)
    assert embed(prefixed, "king")[0] == pytest.approx(embed(plain, "passage king")[0], abs=1e-5)
    assert prefixed.identity.key != plain.identity.key


def test_the_identity_is_that_of_the_content(tmp_path, tiny, model):
    copy = tmp_path / "tiny.gguf"
    copy.write_bytes(tiny.read_bytes())
    os.utime(copy, (1, 1))
    assert open_model(LocalModelSettings(model_path=str(copy))).identity == model.identity
    other = write_gguf(tmp_path / "other" / "tiny.gguf", seed=2)
    assert open_model(LocalModelSettings(model_path=str(other))).identity.key != model.identity.key


def test_the_identity_changes_with_the_length_of_texts(tiny, model):
    shorter = open_model(LocalModelSettings(model_path=str(tiny), max_tokens=16))
    assert shorter.identity.key != model.identity.key


def test_the_library_listens_only_where_nobody_else_may_go(model):
    embed(model, "king")
    address = model._server.listening_address
    assert address.startswith("unix://")
    folder = Path(address.removeprefix("unix://")).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("deep", [False, True], ids=["a short path", "a path too long for a socket"])
def test_a_process_that_embeds_says_nothing_and_leaves_nothing_behind(tiny, tmp_path, deep):
    folder = tmp_path / ("d" * (90 if deep else 1))
    folder.mkdir(exist_ok=True)
    code = (
        "import sys; from kept.config.schema import LocalModelSettings as Settings;"
        "from kept.embedding.llama_cpp import open_model;"
        "open_model(Settings(model_path=sys.argv[1])).embed(['king'], role='query')"
    )
    process = run_python(code, tiny, env={"PATH": os.environ["PATH"], "TMPDIR": str(folder)})
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("kept_bytes", [0, 3, 30, 200, 20_000])
def test_a_damaged_file_is_refused_in_one_line(tmp_path, tiny, kept_bytes):
    file = tmp_path / "cut.gguf"
    file.write_bytes(tiny.read_bytes()[:kept_bytes])
    with pytest.raises(EmbedderUnavailable, match=r"cut\.gguf") as caught:
        open_model(LocalModelSettings(model_path=str(file))).embed(["king"], role="query")
    assert "\n" not in caught.value.message
    assert caught.value.hint


def test_a_model_that_ranks_is_refused(tmp_path):
    with pytest.raises(EmbedderUnavailable, match="ranks"):
        open_model(
            LocalModelSettings(model_path=str(write_gguf(tmp_path / "rank.gguf", pooling=gguf.PoolingType.RANK)))
        )


def test_a_missing_package_names_the_extra(tiny, monkeypatch):
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(EmbedderUnavailable, match="xllamacpp") as caught:
        open_model(LocalModelSettings(model_path=str(tiny)))
    assert "kept[llama-cpp]" in caught.value.hint


@pytest.mark.parametrize("provider", ["llama_cpp", "local", "auto"])
def test_notes_are_indexed_and_found_with_it(tmp_path, tiny, provider):
    write_note(tmp_path / "workspace", "memory/a.md", "the cat sat on the mat\n")
    write_note(tmp_path / "workspace", "memory/b.md", "king queen money\n")
    settings = {"memory_search.provider": provider, "memory_search.local.model_path": str(tiny)}
    with open_memory(tmp_path, settings=settings) as memory:
        result = memory.search("the cat sat")
        status = memory.status()
    assert paths(result)[0] == "memory/a.md"
    assert result.degraded == ()
    assert (status.provider, status.model, status.pending) == ("llama_cpp", "tiny", 0)


@pytest.mark.parametrize("path", ["onnx", None])
def test_llama_cpp_without_a_gguf_file_searches_by_word_and_says_so(tmp_path, path):
    write_note(tmp_path / "workspace", "memory/a.md", "the cat sat on the mat\n")
    settings = {"memory_search.provider": "llama_cpp"}
    if path:
        settings["memory_search.local.model_path"] = str(write_folder(tmp_path / path))
    with open_memory(tmp_path, settings=settings) as memory:
        result = memory.search("cat")
    assert paths(result) == ["memory/a.md"]
    assert any("Searching by word only" in reason for reason in result.degraded)
