"""Which embedder the settings mean, where its key comes from, and what it costs those who do not use it."""

import typing
from concurrent.futures import ThreadPoolExecutor

import pytest

from kept.base.remote_errors import EmbedderUnavailable
from kept.config import load_config
from kept.config.agent_config import KEY_VARIABLES
from kept.config.schema import LocalModelSettings, MemorySearchSettings, Provider, RemoteSettings
from kept.embedding.llama_cpp import open_model
from kept.embedding.providers import GeminiEmbedder, OllamaEmbedder, OpenAIEmbedder, VoyageEmbedder
from kept.embedding.registry import PROVIDERS, choose_chain, find_price, find_remote, make_embedder
from kept.embedding.static import StaticEmbedder
from kept.errors import ConfigError
from tests.support import embedding_servers as servers
from tests.support.commands import kept_environment, run_python
from tests.support.embedding_models import open_folder, rows, write_folder, write_gguf
from tests.support.workspaces import write_note

ENVIRONMENT = {
    "OPENAI_API_KEY": "sk-openai-00000000",
    "GOOGLE_API_KEY": "AIza-google-0000",
    "VOYAGE_API_KEY": "pa-voyage-00000000",
}


def chosen(environ: dict[str, str] | None = None, **settings: object):
    named = {f"memory_search.{name.replace('__', '.')}": value for name, value in settings.items()}
    config = load_config(settings=named, environ=environ or {}).config
    return make_embedder(config.memory_search.provider, config, config.memory_search)


def test_each_name_means_its_provider_and_its_usual_model():
    kinds = {
        "openai": (OpenAIEmbedder, "text-embedding-3-small", 1536),
        "gemini": (GeminiEmbedder, "gemini-embedding-001", 3072),
        "voyage": (VoyageEmbedder, "voyage-4-large", 1024),
        "ollama": (OllamaEmbedder, "nomic-embed-text", 768),
        "local": (StaticEmbedder, "multilingual-384", 384),
    }
    for name, (kind, model, dims) in kinds.items():
        embedder = chosen(ENVIRONMENT, provider=name)
        assert isinstance(embedder, kind)
        identity = embedder.identity
        assert (identity.provider, identity.model, identity.dims) == (name, model, dims)
        assert 0 <= embedder.calibration.floor < embedder.calibration.ceiling <= 1
    assert isinstance(chosen(ENVIRONMENT, provider="auto"), StaticEmbedder), "it stays on the machine"
    assert chosen(ENVIRONMENT, provider="none") is None
    settings = {"memory_search.provider": "openai", "memory_search.store.vector.enabled": False}
    assert choose_chain(load_config(settings=settings, environ=ENVIRONMENT).config).embedders == ()


@pytest.mark.parametrize(
    ("name", "variable"),
    [("openai", "OPENAI_API_KEY"), ("gemini", "GEMINI_API_KEY or GOOGLE_API_KEY"), ("voyage", "VOYAGE_API_KEY")],
)
def test_without_a_key_the_message_says_where_to_put_one(name, variable):
    with pytest.raises(EmbedderUnavailable) as caught:
        chosen(provider=name)
    assert f"set {variable}, or memory_search.remote.api_key" in caught.value.message
    with pytest.raises(EmbedderUnavailable):
        chosen(dict.fromkeys(variable.split(" or "), "  "), provider=name)


def sent_headers(server: servers.Provider, environ: dict[str, str], **settings: object) -> dict[str, str]:
    embedder = chosen(environ, remote__base_url=server.base_url, **settings)
    embedder.embed(["hello"], role="query")
    return server.requests[-1].headers


def test_a_key_from_the_environment_goes_to_its_own_provider_and_to_no_other_address():
    with servers.OpenAI() as server:
        server.key = None
        assert "authorization" not in sent_headers(server, ENVIRONMENT, provider="openai")
        headers = sent_headers(server, ENVIRONMENT, provider="openai", remote__api_key="sk-of-this-server")
        assert headers["authorization"] == "Bearer sk-of-this-server"
    own = chosen(ENVIRONMENT, provider="openai", remote__base_url="https://api.openai.com/v1/")
    assert own.client._headers["authorization"] == "Bearer sk-openai-00000000"
    assert chosen(ENVIRONMENT, provider="gemini").client._headers["x-goog-api-key"] == "AIza-google-0000"


def test_the_first_variable_counts_and_the_configuration_before_all():
    both = {"GEMINI_API_KEY": "first-key", "GOOGLE_API_KEY": "second-key"}
    assert chosen(both, provider="gemini").client._headers["x-goog-api-key"] == "first-key"
    configured = chosen(both, provider="gemini", remote__api_key="configured")
    assert configured.client._headers["x-goog-api-key"] == "configured"


def test_ollama_is_found_where_its_variable_says_unless_the_settings_say_otherwise():
    with servers.Ollama() as server:
        host = server.origin.removeprefix("http://")
        chosen({"OLLAMA_HOST": host}, provider="ollama").embed(["hello"], role="query")
        assert len(server.requests) == 1
    elsewhere = chosen({"OLLAMA_HOST": "gpu"}, provider="ollama", remote__base_url="http://other:1")
    assert elsewhere.client.endpoint.origin == "http://other:1"
    with pytest.raises(ConfigError, match="OLLAMA_HOST: not an address"):
        chosen({"OLLAMA_HOST": "http://[::1"}, provider="ollama")


def test_keys_are_not_shown_where_a_configuration_is_printed():
    config = load_config(settings={"memory_search.remote.api_key": "sk-configured-000"}, environ=ENVIRONMENT).config
    for secret in (*ENVIRONMENT.values(), "sk-configured-000"):
        assert secret not in repr(config)


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


@pytest.mark.parametrize("name", ["openai", "gemini", "voyage", "ollama"])
def test_a_provider_knows_its_own_name_its_default_model_and_what_it_costs(name):
    remote = find_remote(name)
    assert remote.provider == name
    price = find_price(name, remote.default_model, MemorySearchSettings())
    assert (price > 0) == (name in KEY_VARIABLES)


def test_the_settings_know_the_same_names():
    assert set(typing.get_args(Provider)) == set(PROVIDERS)


def test_the_price_of_an_unknown_model_or_of_another_endpoint_is_unknown():
    assert find_price("openai", "text-embedding-9", MemorySearchSettings()) is None
    elsewhere = MemorySearchSettings(remote=RemoteSettings(base_url="http://127.0.0.1:1234/v1"))
    assert find_price("openai", "text-embedding-3-small", elsewhere) is None
    assert find_price("somebody-elses", "a-model", MemorySearchSettings()) is None


OPTIONAL = (
    *("onnxruntime", "tokenizers", "xllamacpp", "kept.embedding.onnx", "kept.embedding.llama_cpp"),
    *("httpx", "ssl", "openai", "kept.base.net", "kept.embedding.remote", "importlib.metadata", "concurrent.futures"),
)


def loaded_after(tmp_path, code: str, *args: str) -> set[str]:
    program = f"import sys\n{code}\nprint(*(name for name in {OPTIONAL!r} if name in sys.modules))"
    return set(run_python(program, *args, env=kept_environment(tmp_path), check=True).stdout.split())


def test_choosing_a_remote_provider_does_not_import_the_http_library_before_the_first_call(tmp_path):
    code = (
        "from kept.config import load_config\n"
        "from kept.embedding.registry import make_embedder\n"
        "config = load_config(settings={'memory_search.provider': 'ollama'}, environ={}).config\n"
        "make_embedder('ollama', config, config.memory_search).identity"
    )
    assert "httpx" not in loaded_after(tmp_path, code)


def test_an_index_and_a_search_with_the_built_in_model_import_none_of_it(tmp_path):
    write_note(tmp_path / "workspace", "MEMORY.md", "The king sat on the mat.\n")
    code = "from kept import Memory\nwith Memory.open() as memory: assert len(memory.search('king'))"
    assert loaded_after(tmp_path, code) == set()


def test_opening_a_memory_with_a_model_does_not_load_the_runtime(tmp_path):
    model = write_gguf(tmp_path / "tiny.gguf")
    write_note(tmp_path / "workspace", "MEMORY.md", "The king sat on the mat.\n")
    code = (
        "from kept import Memory\n"
        "with Memory.open(settings={'memory_search.local.model_path': sys.argv[1]}) as memory: memory.add('A note.')"
    )
    assert loaded_after(tmp_path, code, str(model)) == set()
