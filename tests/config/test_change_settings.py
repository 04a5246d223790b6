"""Changing settings by command: what is written, what is left as it was, and what is refused."""

import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kept import Memory
from kept.config import load_config
from kept.config.change_settings import change_setting, find_path, put_entry, remove_value, set_value
from kept.errors import ConfigError
from tests.support.commands import KEPT
from tests.support.files import write_file

FILE = """\
# My settings
agents:
  defaults:                        # for every agent
    memorySearch:
      query: {max_results: 8}      # small screen
      provider: 'auto'

  # single agents
  list:
    - id: main
      workspace: ~/notes   # mine
    - id: "research"
      workspace: ~/research

# the gateway
gateway:
  http:
    # above port
    port: 8000
    # below port
    host: 127.0.0.1
"""


@pytest.fixture
def file(home: Path) -> Path:
    return write_file(home / "config.yaml", FILE)


def changed_lines(before: str, after: str) -> tuple[list[str], list[str]]:
    """Return the lines that are gone, and the lines that are new."""
    old, new = before.splitlines(), after.splitlines()
    return [line for line in old if line not in new], [line for line in new if line not in old]


# set


@pytest.mark.parametrize(
    ("args", "gone", "new"),
    [
        (
            ["memory_search.query.max_results", "9"],
            ["      query: {max_results: 8}      # small screen"],
            ["      query: {max_results: 9}      # small screen"],
        ),
        (["memorySearch.extraPaths", "~/a", "~/b"], [], ["      extra_paths: [~/a, ~/b]"]),
        (["agents.defaults.model.name", "opus"], [], ["    model:", "      name: opus"]),
        (["model.name", "no"], [], ["    model:", "      name: 'no'"]),
        (["gateway.http.port", "9000"], ["    port: 8000"], ["    port: 9000"]),
        (["--agent", "research", "model.tools", "off"], [], ["      model:", "        tools: false"]),
        (
            ["--agent", "coder", "memory_search.provider", "none"],
            [],
            ["    - id: coder", "      memory_search:", "        provider: none"],
        ),
        (["workspace", "/n"], ["      workspace: ~/notes   # mine"], ["      workspace: /n   # mine"]),
        (
            ["session.reset.by_channel.telegram.mode", "none"],
            [],
            ["    session:", "      reset:", "        by_channel:", "          telegram:", "            mode: none"],
        ),
        (["model.daily_budget_tokens", "null"], [], ["    model:", "      daily_budget_tokens: null"]),
    ],
)
def test_set_changes_one_setting_and_keeps_comments_and_formatting(kept, home, file, args, gone, new):
    (home / "agents/coder").mkdir(parents=True)
    ended = kept("config", "set", *args)
    assert (ended.code, "config.yaml" in ended.out) == (0, True), ended.err
    assert changed_lines(FILE, file.read_text()) == (gone, new)
    assert kept("config", "path").code == 0


def test_new_settings_are_not_put_between_a_comment_and_what_it_is_about(kept, home, file):
    (home / "agents/coder").mkdir(parents=True)
    kept("config", "set", "memory_search.fallback", "none")
    kept("config", "set", "model.name", "opus", "--agent", "coder")
    text = file.read_text()
    assert "  # single agents\n  list:\n" in text
    assert "\n# the gateway\ngateway:\n" in text


def test_set_makes_a_private_file_where_there_is_none(kept, home):
    assert kept("config", "set", "model.name", "opus").code == 0
    text = (home / "config.yaml").read_text()
    assert text.startswith("# Settings of Kept.")
    assert yaml.safe_load(text) == {"agents": {"defaults": {"model": {"name": "opus"}}}}
    assert (home / "config.yaml").stat().st_mode & 0o777 == 0o600
    assert home.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("text", ["# only a comment", "agents:\n", "{}", "agents: {defaults: {}}\n", "\ufeff# x\n"])
def test_set_works_on_files_that_say_nothing_yet(kept, home, text):
    file = write_file(home / "config.yaml", text)
    assert kept("config", "set", "model.name", "opus").code == 0
    assert yaml.safe_load(file.read_text()) == {"agents": {"defaults": {"model": {"name": "opus"}}}}
    assert ("#" in text) == ("#" in file.read_text())


def test_set_changes_the_value_that_is_in_effect(kept, home):
    write_file(home / "config.yaml", "agents: {defaults: {model: {name: a}}, list: [{id: main, model: {name: b}}]}\n")
    kept("config", "set", "model.name", "c")
    assert kept("config", "get", "model.name").out == "c\n"
    kept("config", "set", "agents.defaults.model.name", "d")
    assert load_config(home=str(home), agent="other", environ={}, new_agent=True).config.agent.model.name == "d"


def test_set_says_if_another_layer_overrides_it(kept, file):
    ended = kept("config", "set", "memory_search.sync.watch", "true", env={"KEPT_MEMORY_SEARCH__SYNC__WATCH": "false"})
    assert ended.code == 0
    assert "no effect now" in ended.err
    assert "environment" in ended.err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["memory_search.query.max_reslts", "3"], "Did you mean 'memory_search.query.max_results'?"),
        (["max_results", "3"], "Did you mean 'memory_search.query.max_results'?"),
        (["foo", "3"], "foo: there is no such setting. 'kept config explain'"),
        (["memory_search.query", "3"], "is a group of settings"),
        (["memory_search.query.max_results", "many"], "expected a whole number"),
        (["memory_search.query.min_score", "7"], "out of range (0 to 1). Nothing was changed."),
        (["--", "memory_search.query.max_results", "-3"], "out of range"),
        (["memory_search.backend", "google"], "Choose one of: builtin, qmd."),
        (["memory_search.enabled", "perhaps"], "expected true or false"),
        (["model.name", "a", "b"], "takes one value"),
        (["memory_search.extra_paths", "[a"], "Nothing was changed."),
        (["gateway.http.port.x", "1"], "there is no such setting"),
        (["gateway", "1"], "is a group of settings"),
        (["--agent", "../x", "model.name", "y"], "cannot be an agent's name"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line_and_changes_nothing(kept, file, args, message):
    ended = kept("config", "set", *args)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert message in ended.err
    assert file.read_text() == FILE


def test_a_secret_is_not_repeated(kept, file):
    ended = kept("config", "set", "model.api_key", "hunter2-secret")
    assert "hunter2" not in ended.out + ended.err
    assert "hunter2" not in kept("config", "set", "model.api_key", "hunter2-secret", "--json").out
    assert "api_key: hunter2-secret" in file.read_text()


def test_a_link_to_the_settings_stays_a_link(kept, home, tmp_path):
    dotfile = write_file(tmp_path / "dotfiles/kept.yaml", FILE)
    home.mkdir()
    (home / "config.yaml").symlink_to(dotfile)
    assert kept("config", "set", "model.name", "opus").code == 0
    assert (home / "config.yaml").is_symlink()
    assert "name: opus" in dotfile.read_text()


def test_changes_at_the_same_time_are_all_kept(environment, file, workspace):
    names = ["tokens", "overlap"]
    keys = [*(f"memory_search.chunking.{name}" for name in names), "memory_search.cache.max_entries", "tools.max_steps"]
    env = {**environment, "KEPT_WORKSPACE": str(workspace)}
    running = [subprocess.Popen([KEPT, "config", "set", key, "77"], env=env, stdout=subprocess.DEVNULL) for key in keys]
    assert [process.wait(60) for process in running] == [0] * len(keys)
    assert file.read_text().count(": 77") == len(keys)


# unset


def test_unset_removes_one_setting_and_keeps_the_comments_around_it(kept, file):
    ended = kept("config", "unset", "gateway.http.port")
    assert ended.code == 0
    assert "8737 (default)" in ended.out
    assert file.read_text() == FILE.replace("    port: 8000\n", "")
    ended = kept("config", "unset", "gateway.http.port")
    assert (ended.code, "is not in" in ended.out) == (0, True)


@pytest.mark.parametrize(
    "args",
    [["model.name", "x"], ["memory_search.query.hybrid.enabled", "false"], ["session.reset.by_channel.a.mode", "none"]],
)
def test_what_set_has_added_unset_removes_without_a_trace(kept, home, args):
    before = FILE.replace(" {max_results: 8}      # small screen", "\n        max_results: 8")
    file = write_file(home / "config.yaml", before)
    kept("config", "set", *args)
    assert file.read_text() != before
    kept("config", "unset", args[0])
    assert file.read_text() == before


def test_a_group_with_a_comment_in_it_is_not_removed(kept, home):
    file = write_file(home / "config.yaml", "agents:\n  defaults:\n    model:\n      # why\n      name: x\n")
    kept("config", "unset", "model.name")
    assert "# why" in file.read_text()
    assert kept("config", "get", "model.name").out == "null\n"


# any file

keys = st.sampled_from(
    ["model.name", "model.tools", "memory_search.query.max_results", "gateway.http.port", "workspace"]
)
values = {"model.name": "no", "model.tools": False, "workspace": "~/x y # z"}
styles = st.sampled_from([{}, {"default_flow_style": True}, {"indent": 4}, {"default_style": '"'}])


@settings(max_examples=60)
@given(start=st.lists(keys, unique=True), changes=st.lists(st.tuples(keys, st.booleans()), max_size=6), style=styles)
def test_any_change_gives_exactly_that_change(start, changes, style):
    tree: dict = {}
    for key in start:
        put(tree, key, values.get(key, 7))
    text = yaml.safe_dump(tree, **style)
    for key, remove in changes:
        path = find_path(yaml.safe_load(text), key.split("."), agent=None)
        if remove and path in leaves(yaml.safe_load(text)):
            text = remove_value(text, path)
            expected = None
        else:
            expected = values.get(key, 9)
            text = set_value(text, path, expected, agent=None)
        found = leaves(yaml.safe_load(text))
        assert found.get(path) == expected


@settings(max_examples=100)
@given(lines=st.lists(st.integers(0, 14), max_size=5), key=keys, remove=st.booleans())
def test_every_comment_survives_in_its_order(lines, key, remove):
    text = FILE.splitlines()[1:]
    for number, at in enumerate(sorted(lines, reverse=True)):
        indent = len(text[at]) - len(text[at].lstrip())
        text.insert(at, f"{'':{indent}}# remark {number}")
    before = "\n".join(text) + "\n"
    path = find_path(yaml.safe_load(before), key.split("."), agent=None)
    if remove and path in leaves(yaml.safe_load(before)):
        after = remove_value(before, path)
    else:
        after = set_value(before, path, 9)
    remarks = [line.strip() for line in before.splitlines() if line.strip().startswith("#")]
    assert [line.strip() for line in after.splitlines() if line.strip().startswith("#")] == remarks


def put(tree: dict, key: str, value: object) -> None:
    *groups, last = find_path({}, key.split("."), agent=None)
    for group in groups:
        tree = tree.setdefault(group, {})
    tree[last] = value


def leaves(tree: object, at: tuple = ()) -> dict:
    if not isinstance(tree, dict):
        return {} if tree is None else {at: tree}
    return {path: value for key, inner in tree.items() for path, value in leaves(inner, (*at, key)).items()}


# entries of agents

VALUES = {"workspace": "/new folder/ü", "workspace_layout": "vault"}
NEW = "    - id: main\n      workspace: /new folder/ü\n      workspace_layout: vault\n"
ENTRIES = {
    "# only a comment": "# only a comment\nagents:\n  list:\n" + NEW,
    "gateway: {http: {port: 1}} # g\n": "gateway: {http: {port: 1}} # g\nagents:\n  list:\n" + NEW,
    "agents:\n": "agents:\n  list:\n" + NEW,
    "agents:\n  list:   # people\n": "agents:\n  list:   # people\n" + NEW,
    "agents:\n  defaults:\n    workspace: /a # a\n# end\n": (
        "agents:\n  defaults:\n    workspace: /a # a\n  list:\n" + NEW + "# end\n"
    ),
    "agents:\n  list:\n    # bob\n    - id: bob # b\n      workspace: /b\n  # after\n": (
        "agents:\n  list:\n    # bob\n    - id: bob # b\n      workspace: /b\n" + NEW + "  # after\n"
    ),
    "agents:\n  list:\n  - workspace: '/old'   # mine\n    id: main\n    model:\n      name: x\n": (
        "agents:\n  list:\n  - workspace: /new folder/ü   # mine\n    id: main\n    model:\n      name: x\n"
        "    workspace_layout: vault\n"
    ),
    "agents:\n    list:\n        -   id: main\n            workspaceLayout: kept\n": (
        "agents:\n    list:\n        -   id: main\n            workspaceLayout: vault\n"
        "            workspace: /new folder/ü\n"
    ),
    "agents: {list: [{id: bob, model: x}, {id: main}]} # x\n": (
        "agents: {list: [{id: bob, model: x}, {id: main, workspace: /new folder/ü, workspace_layout: vault}]} # x\n"
    ),
    "agents: {list: []}\n": "agents: {list: [{id: main, workspace: /new folder/ü, workspace_layout: vault}]}\n",
    "agents:\r\n  list:\r\n    - id: main # é\r\n": (
        "agents:\r\n  list:\r\n    - id: main # é\r\n      workspace: /new folder/ü\r\n"
        "      workspace_layout: vault\r\n"
    ),
}


@pytest.mark.parametrize(("before", "after"), ENTRIES.items())
def test_the_entry_of_an_agent_is_added_or_changed_in_its_place(before, after):
    assert put_entry(before, "main", VALUES) == after


@pytest.mark.parametrize(
    "text",
    [
        "agents: 7\n",
        "agents:\n  list: x\n",
        "agents: {list: [&a {id: main}], defaults: *a}\n",
        "a: [\n",
        "agents: {}\nagents:\n  a: 2\n",
    ],
)
def test_a_file_that_cannot_be_changed_safely_is_refused(text):
    with pytest.raises(ConfigError):
        put_entry(text, "main", VALUES)


@given(workspace=st.text(st.characters(blacklist_categories=("Cs",)), min_size=1))
def test_any_path_is_read_back_or_refused(workspace):
    try:
        content = put_entry("agents:\n  list:\n    - id: bob\n", "main", {"workspace": workspace})
    except ConfigError:
        return
    assert yaml.safe_load(content)["agents"]["list"] == [{"id": "bob"}, {"id": "main", "workspace": workspace}]


# out of range


def test_a_number_out_of_range_is_reported_once_and_not_silently_clamped(kept, home, workspace):
    write_file(home / "config.yaml", "agents: {defaults: {memory_search: {query: {min_score: 7}}}}\n")
    write_file(workspace / "MEMORY.md", "lighthouse\n")
    notice = "agents.defaults.memory_search.query.min_score: 7 is out of range (0 to 1); 1.0 is used."
    for args in (["search", "lighthouse"], ["add", "x"], ["config", "path"], ["index"]):
        ended = kept(*args)
        assert (ended.out + ended.err).count("out of range") == 1, args
        assert ended.err.startswith(f"Note: {notice}\n"), args
    assert kept("search", "lighthouse", "--json").json["degraded"] == [notice]
    assert kept("status", "--json").json["degraded"] == [notice]
    with Memory.open(workspace, home=home) as memory:
        assert [memory.search("lighthouse").degraded for _ in range(2)] == [(notice,), ()]


# looking


def test_explain_and_get_show_a_branch_by_any_part_of_its_name(kept):
    names = [row["setting"] for row in kept("config", "explain", "query", "--json").json["settings"]]
    assert names
    assert all(name.startswith("memory_search.query.") for name in names)
    assert kept("config", "get", "query.max_results").out == "6\n"
    assert [row["setting"] for row in kept("config", "get", "token", "--json").json["settings"]] == [
        "gateway.telegram.token",
        "gateway.discord.token",
    ]
    for prefix in ("memorySearch.query", "agents.defaults.memory_search.query"):
        assert kept("config", "explain", prefix, "--json").json["settings"][0]["setting"] == names[0]
    ended = kept("config", "explain", "zzzz")
    assert ended.code == 2
    assert len(ended.err) < 200
    assert "Did you mean 'query'?" in kept("config", "get", "qurey").err
    assert kept("--set", "foo=1", "status").err.startswith("Error: foo: there is no such setting. ")


def test_a_mapping_is_set_as_a_whole(home):
    typed = '{ada: ["telegram:5054"]}'
    change = change_setting(load_config(home=str(home), environ={}), "session.identity_links", [typed], agent=None)
    assert change.value == {"ada": ["telegram:5054"]}
    tree = yaml.safe_load((home / "config.yaml").read_text())["agents"]["defaults"]
    assert tree["session"]["identity_links"] == change.value


def test_a_comment_between_a_key_and_its_value_is_left_for_an_editor(kept, home):
    text = "agents:\n  defaults:\n    memory_search:\n      extra_paths: # vault of Ada\n        - /tmp/a\n"
    file = write_file(home / "config.yaml", text)
    assert kept("config", "set", "memory_search.extra_paths", "/tmp/b").code == 2
    assert file.read_text() == text
