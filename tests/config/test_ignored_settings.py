"""Settings of earlier versions, and of the designs that Kept grew from: a file with them opens, and a notice says what
becomes of each."""

import json

from kept.config import load_config
from kept.config.read import IGNORED, REMOVED_TOKENS
from tests.support.files import write_file


def load(home, text):
    write_file(home / "config.yaml", text)
    return load_config(home=str(home), environ={}).config


def test_every_setting_of_the_table_is_ignored_with_a_notice_that_names_it(tmp_path):
    names = IGNORED | REMOVED_TOKENS
    tree: dict = {"agents": {"defaults": {}}, "gateway": {}}
    for name in names:
        *groups, last = name.split(".") if name.startswith("gateway.") else ["agents", "defaults", *name.split(".")]
        into = tree
        for group in groups:
            into = into.setdefault(group, {})
        into[last] = {"any": "value"}
    notices = load(tmp_path, json.dumps(tree)).notices
    assert {notice.partition(":")[0].removeprefix("agents.defaults.") for notice in notices} == names


def test_the_entry_of_an_agent_may_have_one_too(tmp_path):
    config = load(tmp_path, "agents: {list: [{id: main, sync: {git: {branch: x}}}]}")
    assert config.notices == ("agents.list[0].sync: Kept does not have this setting; it is ignored.",)


def test_whoever_set_a_token_hears_that_nothing_is_locked(tmp_path):
    (notice,) = load(tmp_path, "gateway: {http: {token: secret}}").notices
    assert "lets in every program of this machine" in notice
    assert "secret" not in notice


def test_a_value_that_a_setting_no_longer_takes_is_reported_and_does_not_stop_a_command(tmp_path):
    config = load(tmp_path, "agents: {defaults: {review: {agentWrites: listed}}}")
    assert config.agent.review.agent_writes == "at_once"
    assert [notice for notice in config.notices if "no longer has 'listed'" in notice]
