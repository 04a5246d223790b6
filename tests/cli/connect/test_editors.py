"""One entry of a file is changed, and no other byte of it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kept.cli.connect.settings_editor import edit_json, edit_toml, parse_json
from kept.errors import ConfigError

PATH = ("mcpServers", "kept")
ENTRY = {"command": "/opt/kept", "args": ["mcp"]}


def set_entry(text, entry=ENTRY):
    return edit_json("file.json", text, PATH, entry)


def remove_entry(text):
    return edit_json("file.json", text, PATH, None)


def parse(text):
    return parse_json("file.json", text)


names = st.text(max_size=8)
trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=12,
)
layouts = st.sampled_from([None, 0, 1, 2, 4, "\t"])


@given(st.dictionaries(names, trees, max_size=4), st.dictionaries(names, trees, max_size=3), layouts, st.booleans())
def test_any_file_says_the_same_afterwards_and_the_entry(tree, servers, indent, has_servers):
    if has_servers:
        tree = {**tree, "mcpServers": servers}
    elif "mcpServers" in tree:
        return
    text = json.dumps(tree, indent=indent, ensure_ascii=indent == 2)
    edited = set_entry(text)
    old = servers.get("kept") if has_servers else None
    entry = {**old, **ENTRY} if isinstance(old, dict) else ENTRY
    assert json.loads(edited) == {**tree, "mcpServers": {**(servers if has_servers else {}), "kept": entry}}
    assert set_entry(edited) == edited, "a second time changes nothing"
    for line in text.splitlines()[1:-1]:
        assert line.rstrip(",").rstrip("{}") in edited
    without = json.loads(remove_entry(edited))
    assert without["mcpServers"] == {
        key: server for key, server in (servers if has_servers else {}).items() if key != "kept"
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{\n  "mcpServers": {\n    "kept": {\n      "command": "k"\n    }\n  }\n}\n'),
        (
            '{\n "mcpServers": {\n  "x": {}\n }\n}\n',
            '{\n "mcpServers": {\n  "kept": {"command": "k"},\n  "x": {}\n }\n}\n',
        ),
        ('{\r\n\t"mcpServers": {}\r\n}\r\n', '{\r\n\t"mcpServers": {"kept": {"command": "k"}}\r\n}\r\n'),
        ('{"mcpServers": {"x": {}}}', '{"mcpServers": {"x": {}, "kept": {"command": "k"}}}'),
    ],
)
def test_it_is_laid_out_as_the_rest_is(before, after):
    assert set_entry(before, {"command": "k"}) == after


gaps = st.lists(st.sampled_from(["", " ", "\n", "\r\n  ", "// mine, {\n", "/* yours, } */"]), max_size=3).map("".join)
members = st.lists(
    st.tuples(st.sampled_from(["kept", "a", "b", "c"]), gaps, gaps, gaps),
    unique_by=lambda member: member[0],
    max_size=4,
)


@given(members, gaps, st.booleans())
def test_taking_an_entry_out_leaves_every_comment_and_everything_else(servers, last, trailing):
    inner = ",".join(
        f'{before}"{name}"{between}:{{"command": "x, y"}}{behind}' for name, before, between, behind in servers
    )
    text = f'{{"mcpServers": {{{inner}{"," if servers and trailing else ""}{last}}}}}'
    edited = remove_entry(text)
    left = {name: {"command": "x, y"} for name, *_ in servers if name != "kept"}
    assert parse(edited) == {"mcpServers": left}
    own = next((between for name, _, between, _ in servers if name == "kept"), "")
    for comment in ("// mine, {", "/* yours, } */"):
        assert edited.count(comment) == text.count(comment) - own.count(comment)


@pytest.mark.parametrize(
    "text", ["[]", '"x"', '{"mcpServers": []}', '{"a": 1', "{" * 500, "{'a' 1}", '{a: "\\x"}', "{} {}"]
)
def test_what_cannot_be_changed_safely_is_refused(text):
    with pytest.raises(ConfigError):
        set_entry(text)


# TOML

CODEX = """# my settings
model = "gpt-5"   # the good one

[mcp_servers.docs]
command = "npx"
args = [
  "-y", # yes
  "docs",
]

# about projects
[projects."/home/me"]
trust_level = "trusted"
"""
KEYS = ("mcp_servers", "kept")


def test_a_table_is_added_behind_everything_else_and_taken_out_again():
    edited = edit_toml("config.toml", CODEX, KEYS, ENTRY)
    assert edited == CODEX + '\n[mcp_servers.kept]\ncommand = "/opt/kept"\nargs = ["mcp"]\n'
    assert edit_toml("config.toml", edited, KEYS, ENTRY) == edited
    assert edit_toml("config.toml", edited, KEYS, None) == CODEX
    assert edit_toml("config.toml", "", KEYS, ENTRY).startswith("[mcp_servers.kept]\n")


def test_a_comment_behind_a_table_that_is_taken_out_stays():
    before = CODEX.replace("# about projects", '[mcp_servers.kept]\ncommand = "k"\n\n# about projects')
    assert edit_toml("config.toml", before, KEYS, None) == CODEX
    assert edit_toml("config.toml", 'mcp_servers = "kept"\n', KEYS, None) == 'mcp_servers = "kept"\n'


def test_a_table_that_is_there_keeps_what_else_it_says():
    theirs = '[mcp_servers."kept"]\ncommand = "old"\ntimeout = 20\n\n[mcp_servers.kept.env]\nA = "b"\n\n'
    before = CODEX.replace("# about projects", f"{theirs}# about projects")
    table = '\n[mcp_servers.kept]\ncommand = "/opt/kept"\ntimeout = 20\nenv = { A = "b" }\nargs = ["mcp"]\n'
    assert edit_toml("config.toml", before, KEYS, ENTRY) == CODEX + table


@pytest.mark.parametrize(
    "text",
    [
        "model = ",
        'mcp_servers = { a = { command = "x" } }\n',
        "mcp_servers = 5\n",
        'mcp_servers.kept.command = "old"\n',
        '[mcp_servers]\nkept = { command = "old" }\n',
    ],
)
def test_toml_that_cannot_be_changed_safely_is_refused(text):
    with pytest.raises(ConfigError, match=r"config.toml") as refused:
        edit_toml("config.toml", text, KEYS, ENTRY)
    assert "Nothing was changed" in refused.value.hint
