"""Who has no model of their own pays nothing for those who have."""

from tests.support.commands import kept_environment, run_python
from tests.support.embedding_models import write_gguf
from tests.support.workspaces import write_note

OPTIONAL = (
    *("onnxruntime", "tokenizers", "xllamacpp", "kept.embedding.onnx", "kept.embedding.llama_cpp"),
    *("httpx", "ssl", "openai", "kept.base.net", "kept.embedding.remote", "importlib.metadata", "concurrent.futures"),
)


def loaded_after(tmp_path, code: str, *args: str) -> set[str]:
    program = f"import sys\n{code}\nprint(*(name for name in {OPTIONAL!r} if name in sys.modules))"
    return set(run_python(program, *args, env=kept_environment(tmp_path), check=True).stdout.split())


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
