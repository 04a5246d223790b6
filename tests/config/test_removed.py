"""A setting that Kept no longer has is ignored, and one notice names it."""

from __future__ import annotations

import json

import pytest

from kept.config import load_config, removed
from kept.errors import ConfigError
from tests.support.files import write_file

TABLE = removed.REMOVED
FILE = """\
agents:
  defaults:
    oldGroup: {remote: origin, deep: {er: 1}}
    model: {choices: {fast: {name: haiku, oldWait: 3}}}
  list: [{id: main, memorySearch: {oldSwitch: true}}]
gateway: {oldWait: 3}
"""


@pytest.fixture(autouse=True)
def names(monkeypatch):
    gone = "old_group model.choices.*.old_wait memory_search.old_switch gateway.old_wait"
    monkeypatch.setattr(removed, "REMOVED", frozenset(gone.split()))


def test_removed_settings_of_a_file_are_ignored_with_a_notice_that_names_each(home):
    write_file(home / "config.yaml", FILE)
    config = load_config(home=str(home), environ={}).config
    assert {notice.partition(":")[0] for notice in config.notices} == {
        "agents.defaults.old_group", "agents.defaults.model.choices.fast.old_wait", "gateway.old_wait",
        "agents.list[0].memory_search.old_switch",
    }  # fmt: skip
    assert config.agent.model.choices["fast"].name == "haiku"


def test_a_removed_setting_of_the_environment_is_ignored_too(home):
    config = load_config(home=str(home), environ={"KEPT_GATEWAY__OLD_WAIT": "3"}).config
    assert config.notices == ("KEPT_GATEWAY__OLD_WAIT: Kept no longer has this setting; it is ignored.",)


@pytest.mark.parametrize("text", ["gateway: {old_waits: 3}", "agents: {defaults: {gateway: {old_wait: 3}}}"])
def test_any_other_unknown_setting_is_still_an_error(home, text):
    write_file(home / "config.yaml", text)
    with pytest.raises(ConfigError, match="no such setting"):
        load_config(home=str(home), environ={})


def test_an_option_cannot_set_a_removed_setting(home):
    with pytest.raises(ConfigError, match="no such setting"):
        load_config(home=str(home), environ={}, settings={"gateway.old_wait": 3})


def test_a_removed_token_says_who_is_let_in(home, monkeypatch):
    monkeypatch.setattr(removed, "REMOVED", TABLE)
    write_file(home / "config.yaml", "gateway: {http: {token: secret}}\n")
    (notice,) = load_config(home=str(home), environ={}).config.notices
    assert "kept token create" in notice
    assert "lets in every program" in notice


def test_every_setting_of_the_table_is_ignored(home, monkeypatch):
    monkeypatch.setattr(removed, "REMOVED", TABLE)
    tree: dict = {"agents": {"defaults": {}}, "gateway": {}}
    for name in TABLE:
        *groups, last = name.split(".") if name.startswith("gateway.") else ["agents", "defaults", *name.split(".")]
        into = tree
        for group in groups:
            into = into.setdefault(group, {})
        into[last] = {"any": "value"}
    write_file(home / "config.yaml", json.dumps(tree))
    notices = load_config(home=str(home), environ={}).config.notices
    assert {notice.partition(":")[0].removeprefix("agents.defaults.") for notice in notices} >= set(TABLE) - {"sync"}
