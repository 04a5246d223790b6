"""Every setting changes something: a test elsewhere shows its effect, or one of those at the end of this file."""

import ast
import json
import sys
from pathlib import Path

import pytest

from kept.agent.context import plan_budget
from kept.config import Config, load_config
from kept.config.agent_config import ProviderKeys
from kept.config.setting import setting_names
from kept.errors import ConfigError
from kept.gateway.app import open_model
from kept.models.base import ModelFamily
from kept.models.claude_cli import ClaudeCli, KeptServer
from kept.server.run_server import gateway_preset, serve_preset, web_preset
from tests.support.files import write_file
from tests.support.repository import ROOT
from tests.support.workspaces import open_memory, write_note

MOST_SETTINGS = 120
EFFECTS = dict(line.split() for line in (ROOT / "tests/config/effects.txt").read_text().splitlines())
"""The test that shows the effect, by the name of the setting."""


def test_there_are_few_settings_and_each_has_a_test_of_its_effect():
    assert len(setting_names()) <= MOST_SETTINGS
    assert {*EFFECTS} == {*setting_names()}


def test_the_tests_of_effects_are_there():
    tests = {path: names_in(path) for path in {place.partition("::")[0] for place in EFFECTS.values()}}
    places = [place.split("::") for place in EFFECTS.values()]
    assert [place for place in places if place[1] not in tests[place[0]]] == []


def names_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / path).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


# effects that no other test shows


def config_with(tmp_path: Path, **settings: object) -> Config:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return load_config(home=str(tmp_path), settings=named, environ={}).config


def test_every_server_listens_where_the_settings_say(tmp_path):
    for part, make in (
        ("serve", lambda config: serve_preset(config, None, None, ())),
        ("web", lambda config: web_preset(config, None, None)),
        ("http", gateway_preset),
    ):
        settings = {f"gateway__{part}__host": "::1", f"gateway__{part}__port": 1234}
        preset = make(config_with(tmp_path, **settings))
        assert (preset.host, preset.port) == ("::1", 1234)


def test_a_flush_comes_as_early_as_the_settings_say(tmp_path):
    config = config_with(tmp_path, compaction__memory_flush__soft_threshold_tokens=9_000)
    budget = plan_budget(200_000, config.agent.compaction)
    assert budget.compact_at - budget.flush_at == 9_000


def test_a_larger_multiplier_compares_more_candidates(tmp_path):
    for number in range(60):
        write_note(tmp_path / "workspace", f"memory/{number}.md", f"parrot {number}\n")
    found = []
    for multiplier in (1, 20):
        settings = {"memory_search.query.hybrid.candidate_multiplier": multiplier}
        with open_memory(tmp_path, settings=settings) as memory:
            result = memory.search("parrot", max_results=3)
            found.append(len(result) + len(result.dropped))
    assert found[0] < found[1]


def test_hits_below_the_least_score_are_left_out(tmp_path):
    write_note(tmp_path / "workspace", "MEMORY.md", "parrot\n")
    for least, hits in ((0.0, 1), (1.0, 0)):
        with open_memory(tmp_path, settings={"memory_search.query.min_score": least}) as memory:
            assert len(memory.search("parrot")) == hits


@pytest.fixture
def environment_with_key(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")


def test_a_model_gets_its_limits_from_the_settings(tmp_path, environment_with_key):
    settings = {"model.provider": "anthropic", "model.max_output_tokens": 77, "model.timeout_s": 9}
    model = open_model(load_config(home=str(tmp_path), settings=settings))._model
    assert (model.max_output_tokens, model.timeout_s) == (77, 9.0)


def test_one_of_the_choices_works_in_the_background(tmp_path, environment_with_key):
    settings = {"provider": "anthropic", "choices": {"fast": {"name": "small"}}, "background_choice": "fast"}
    write_file(tmp_path / "config.yaml", json.dumps({"agents": {"defaults": {"model": settings}}}))
    family = open_model(load_config(home=str(tmp_path)))
    assert isinstance(family, ModelFamily)
    assert family.background.name == "small"
    settings["background_choice"] = "slow"
    write_file(tmp_path / "config.yaml", json.dumps({"agents": {"defaults": {"model": settings}}}))
    with pytest.raises(ConfigError, match="fast"):
        load_config(home=str(tmp_path))


def test_tools_can_be_kept_from_the_program(tmp_path):
    for tools in (True, False):
        settings = config_with(tmp_path, model__program=sys.executable, model__tools=tools).agent.model
        model = ClaudeCli(settings, ProviderKeys(), kept_server=KeptServer(("kept",), {}))
        assert (model._kept is not None) is tools


def test_the_window_of_a_model_can_be_set(home, workspace):
    def window(**settings: object) -> int:
        return open_model(
            load_config(workspace=str(workspace), home=str(home), environ={}, settings=settings)
        ).context_window

    chosen = {"model.provider": "openai", "model.name": "gpt", "model.api_key": "k"}
    assert window(**chosen, **{"model.context_window": 9_000}) == 9_000
    assert window(**chosen) != 9_000
