"""Settings of one agent are changed in the file, and everything else in it stays as it is."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kept.config.agent_entry import plan_entry
from kept.errors import ConfigError
from tests.support.files import write_file

VALUES = {"workspace": "/new folder/ü", "workspace_layout": "vault"}
NEW = '    - id: "main"\n      workspace: "/new folder/ü"\n      workspace_layout: "vault"\n'
CASES = {
    "": "agents:\n  list:\n" + NEW,
    "# only a comment": "# only a comment\nagents:\n  list:\n" + NEW,
    "gateway: {http: {port: 1}} # g\n": "gateway: {http: {port: 1}} # g\nagents:\n  list:\n" + NEW,
    "agents:\n": "agents:\n  list:\n" + NEW,
    "agents:\n  list:   # people\n": "agents:\n  list:   # people\n" + NEW,
    "agents:\n  defaults:\n    workspace: /a # a\n# end\n": (
        "agents:\n  defaults:\n    workspace: /a # a\n"
        '  list:\n    - id: "main"\n      workspace: "/new folder/ü"\n      workspace_layout: "vault"\n# end\n'
    ),
    "agents:\n  list:\n    # bob\n    - id: bob # b\n      workspace: /b\n  # after\n": (
        "agents:\n  list:\n    # bob\n    - id: bob # b\n      workspace: /b\n" + NEW + "  # after\n"
    ),
    "agents:\n  list:\n  - workspace: '/old'   # mine\n    id: main\n    model:\n      name: x\n": (
        "agents:\n  list:\n  - workspace: \"/new folder/ü\"   # mine\n    id: main\n"
        '    workspace_layout: "vault"\n    model:\n      name: x\n'
    ),
    "agents:\n  list:\n    - id: main\n      workspace:\n      workspaceLayout: kept\n": (
        'agents:\n  list:\n    - id: main\n      workspace: "/new folder/ü"\n      workspaceLayout: "vault"\n'
    ),
    "agents: {list: [{id: bob}, {id: main}]} # x\n": (
        'agents: {list: [{id: bob}, {id: main, workspace: "/new folder/ü", workspace_layout: "vault"}]} # x\n'
    ),
    "agents: {list: []}\n": 'agents: {list: [{id: "main", workspace: "/new folder/ü", workspace_layout: "vault"}]}\n',
    "agents: {}\n": 'agents: {list: [{id: "main", workspace: "/new folder/ü", workspace_layout: "vault"}]}\n',
    "\ufeffagents:\r\n  list:\r\n    - id: main\r\n": (
        "\ufeffagents:\r\n  list:\r\n    - id: main\r\n"
        '      workspace: "/new folder/ü"\r\n      workspace_layout: "vault"\r\n'
    ),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after"), CASES.items())
def test_only_the_values_are_changed(tmp_path, before, after):
    file = write_file(tmp_path / "config.yaml", before)
    assert plan_entry(str(file), "main", VALUES).decode() == after
    assert file.read_bytes().decode() == before, "nothing is written yet"


@pytest.mark.parametrize(
    "text",
    [
        "{}\n",
        "{gateway: {}}\n",
        "agents: 7\n",
        "agents:\n  list: x\n",
        "agents:\n  list:\n    - &a {id: main}\n",
        "a: [\n",
        "--- {a: 1}\n--- {b: 2}\n",
        b"\xff\n",
    ],
)
def test_what_cannot_be_changed_safely_is_refused_with_what_to_do(tmp_path, text):
    file = write_file(tmp_path / "config.yaml", text)
    with pytest.raises(ConfigError, match="cannot be changed here") as refusal:
        plan_entry(str(file), "main", VALUES)
    assert 'needs workspace: "/new folder/ü", workspace_layout: "vault"' in refusal.value.hint


@given(workspace=st.text(st.characters(blacklist_categories=("Cs",)), min_size=1))
def test_any_path_is_read_back_or_refused(tmp_path_factory, workspace):
    file = write_file(tmp_path_factory.mktemp("c") / "config.yaml", "agents:\n  list:\n    - id: bob\n")
    try:
        content = plan_entry(str(file), "main", {"workspace": workspace})
    except ConfigError:
        return
    assert yaml.safe_load(content)["agents"]["list"] == [{"id": "bob"}, {"id": "main", "workspace": workspace}]
