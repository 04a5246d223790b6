"""Settings: where they come from, what is refused, and what is never shown."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from kept.cli.archive.export import copy_settings
from kept.config import load_config
from kept.errors import ConfigError
from tests.support.files import tree_of, write_file

RESULTS = "memory_search.query.max_results"


@pytest.fixture
def load(home: Path, workspace: Path):
    """The settings of this home and workspace. ``env`` is the whole environment."""

    def load(*, env: dict[str, str] | None = None, **options: Any):
        named = {} if "KEPT_WORKSPACE" in (env or {}) else {"workspace": str(workspace)}
        return load_config(**{"home": str(home), "environ": env or {}, **named, **options})

    return load


def user_file(home: Path, text: str) -> Path:
    return write_file(home / "config.yaml", text)


def with_results(count: int) -> str:
    return f"agents: {{defaults: {{memory_search: {{query: {{max_results: {count}}}}}}}}}"


def refusal(load, **options: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(**options)
    return caught.value


# mappings


CHOSEN = [
    ("model.choices", {"fast": {"name": "x"}}, lambda agent: agent.model.choices["fast"].name == "x"),
    ("model.choices.fast", {"name": "x"}, lambda agent: agent.model.choices["fast"].name == "x"),
    ("model.prices", {"x": {"input": 1, "output": 2}}, lambda agent: agent.model.prices["x"].output == 2),
    (
        "session.reset.by_channel",
        {"telegram": {"idleMinutes": 10}},
        lambda agent: agent.session.reset.by_channel["telegram"].idle_minutes == 10,
    ),
    ("session.identity_links", {"ada": ["a:1"]}, lambda agent: agent.session.identity_links == {"ada": ("a:1",)}),
    ("memory_search.query", {"maxResults": 3}, lambda agent: agent.memory_search.query.max_results == 3),
]


@pytest.mark.parametrize(("key", "value", "is_set"), CHOSEN, ids=[key for key, *_ in CHOSEN])
@pytest.mark.parametrize("typed", [False, True], ids=["mapping", "text"])
def test_a_mapping_can_be_given_as_a_whole(load, key, value, is_set, typed):
    agent = load(settings={key: json.dumps(value) if typed else value}).config.agent
    assert is_set(agent)


def test_a_mapping_is_checked_like_the_same_in_a_file(load):
    unknown = refusal(load, settings={"model.choices": {"fast": {"nam": "x"}}})
    assert "Did you mean 'name'?" in unknown.hint
    assert "expected names and values" in refusal(load, settings={"model.choices": "fast"}).message
    limited = load(settings={"session.reset.by_channel": {"telegram": {"idle_minutes": 10**9}}})
    assert "out of range" in limited.config.notices[0]


def test_a_path_may_have_the_name_of_the_agent_in_it(load, home):
    user_file(
        home,
        "agents:\n  defaults:\n    workspace: ~/{agentId}-notes\n    memorySearch:\n"
        "      store: {path: '/indexes/{agentId}.sqlite'}\n      extraPaths: ['/journals/{agentId}']\n"
        "  list: [{id: research}]\n",
    )
    for agent in ("main", "research"):
        config = load(agent=agent, workspace=None).config
        assert config.workspace.endswith(f"/{agent}-notes")
        assert config.memory_search.store.path == f"/indexes/{agent}.sqlite"
        assert config.memory_search.extra_paths == (f"/journals/{agent}",)
    settings = {"memory_search.local.model_path": "/models/{agentId}"}
    assert load(agent="research", settings=settings).config.memory_search.local.model_path == "/models/research"


# layers


def test_each_layer_overrides_the_one_before(load, home):
    def shown(**options: Any) -> tuple[int, str]:
        loaded = load(**options)
        return loaded.config.memory_search.query.max_results, loaded.origins.get(RESULTS, "default")

    env = {"KEPT_MEMORY_SEARCH__QUERY__MAX_RESULTS": "14"}
    assert shown() == (6, "default")
    path = user_file(home, with_results(11))
    assert shown() == (11, f"user file {path}")
    user_file(
        home,
        "agents:\n  defaults: {memory_search: {query: {max_results: 11}}}\n"
        "  list: [{id: main, memory_search: {query: {max_results: 12}}}]",
    )
    assert shown() == (12, f"user file {path}, agent 'main'")
    assert shown(env=env) == (14, "environment")
    assert shown(env=env, settings={RESULTS: "15"}) == (15, "flags")


def test_the_workspace_may_come_from_every_layer(home, tmp_path):
    def workspace_of(env: dict[str, str] | None = None, **options: Any) -> str:
        return load_config(home=str(home), environ=env or {}, **options).config.workspace

    assert workspace_of() == str(home / "workspace")
    user_file(home, f"agents: {{defaults: {{workspace: {tmp_path / 'a'}}}}}")
    assert workspace_of() == str(tmp_path / "a")
    assert workspace_of({"KEPT_WORKSPACE": str(tmp_path / "b")}) == str(tmp_path / "b")
    assert workspace_of({"KEPT_WORKSPACE": str(tmp_path / "b")}, workspace=str(tmp_path / "c")) == str(tmp_path / "c")


def test_home_agent_and_file_come_from_the_environment_and_flags_win(tmp_path):
    other = write_file(tmp_path / "other.yaml", with_results(21))
    third = write_file(tmp_path / "third.yaml", with_results(22))
    env = {"KEPT_HOME": str(tmp_path / "h"), "KEPT_AGENT": "ada", "KEPT_CONFIG": str(other)}
    config = load_config(environ=env, new_agent=True).config
    assert (config.home, config.agent_id) == (str(tmp_path / "h"), "ada")
    assert config.memory_search.query.max_results == 21
    config = load_config(
        environ=env, home=str(tmp_path / "i"), agent="bob", config_file=str(third), new_agent=True
    ).config
    assert (config.home, config.agent_id) == (str(tmp_path / "i"), "bob")
    assert config.memory_search.query.max_results == 22


def test_camel_case_is_accepted_in_every_layer_and_the_gateway_is_set_in_each(load, home):
    user_file(home, "agents: {defaults: {memorySearch: {maxFileBytes: 5000, cache: {maxEntries: 7}}}}")
    env = {"KEPT_GATEWAY__AUTO_RESPONDER__DEBOUNCE_MS": "7"}
    loaded = load(env=env, settings={"memorySearch.sync.onSearch": "false", "gateway.autoResponder.maxConcurrent": "8"})
    search, responder = loaded.config.memory_search, loaded.config.gateway.auto_responder
    assert (search.max_file_bytes, search.cache.max_entries, search.sync.on_search) == (5000, 7, False)
    assert (responder.debounce_ms, responder.max_concurrent) == (7, 8)


def test_a_setting_given_in_both_spellings_is_refused(load, home):
    user_file(home, "agents: {defaults: {memorySearch: {}, memory_search: {}}}")
    assert "given twice" in refusal(load).message


# agents


def test_an_agent_overrides_the_defaults_key_by_key_and_only_for_itself(load, home):
    user_file(
        home,
        """
agents:
  defaults: {memory_search: {provider: local, query: {max_results: 9, min_score: 0.1}}}
  list:
    - {id: ada, memory_search: {provider: none, query: {max_results: 3}}}
    - {id: bob}
""",
    )
    ada = load(agent="ada").config.memory_search
    assert (ada.provider, ada.query.max_results, ada.query.min_score) == ("none", 3, 0.1)
    for other in ("bob", "main"):
        search = load(agent=other).config.memory_search
        assert (search.provider, search.query.max_results) == ("local", 9)


@pytest.mark.parametrize("entry", ["{memory_search: {}}", "ada", "{id: ''}", "{id: [1]}"])
def test_an_agent_without_a_usable_id_is_refused(load, home, entry):
    path = user_file(home, f"agents: {{list: [{entry}]}}")
    error = refusal(load)
    assert error.message.startswith(f"{path}: agents.list[0]")


@pytest.mark.parametrize(
    "name", ["..", ".", "../up", "a/b", "/etc", "a\\b", "a\0b", "a b", "~", "é", "x" * 65, "-", "..."]
)
def test_an_agents_name_that_could_leave_the_home_is_refused(load, name):
    assert "cannot be an agent's name" in refusal(load, agent=name).message


# what is refused


@pytest.mark.parametrize(
    ("text", "named", "suggested"),
    [
        ("agent: {}", "agent:", "agents"),
        ("agents: {default: {}}", "agents.default:", "defaults"),
        ("agents: {list: [{id: main, modle: {}}]}", "agents.list[0].modle:", "model"),
        ("gateway: {auto_respnder: {}}", "gateway.auto_respnder:", "auto_responder"),
        ("gateway: {autoResponder: {maxConcurent: 1}}", "gateway.auto_responder.max_concurent:", "max_concurrent"),
    ],
)
def test_unknown_keys_are_noticed_everywhere_in_the_user_file(load, home, text, named, suggested):
    path = user_file(home, text)
    error = refusal(load)
    assert error.message.startswith(f"{path}: {named}")
    assert error.hint == f"Did you mean '{suggested}'?"


def test_a_setting_outside_of_its_group_is_told_where_it_belongs(load, home):
    path = user_file(home, "memory_search: {provider: none}")
    error = refusal(load)
    assert error.message == f"{path}: memory_search: there is no such setting here."
    assert error.hint == "Put it under agents.defaults."


@pytest.mark.parametrize("text", ["1: x", "agents: {1: x}", "agents: {defaults: {1: x}}", "gateway: {null: 1}"])
def test_a_key_that_is_not_text_is_an_unknown_key(load, home, text):
    user_file(home, text)
    assert "there is no such setting" in refusal(load).message


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("KEPT_MEMORY_SEARCH__PROVIDR", "provider"),
        ("KEPT_MEMORY_SERCH__PROVIDER", "memory_search"),
        ("KEPT_WORKSPCE", "KEPT_WORKSPACE"),
    ],
)
def test_an_unknown_variable_is_named_and_the_nearest_suggested(load, name, suggested):
    error = refusal(load, env={name: "none"})
    assert name in error.message
    assert error.hint == f"Did you mean '{suggested}'?"


@pytest.mark.parametrize("key", ["memory_search", "memory_search.query", "memory_search.provider.x", "", ".", "a..b"])
def test_a_flag_has_to_name_one_setting(load, key):
    refusal(load, settings={key: "1"})


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        (RESULTS, "many", "a whole number"),
        (RESULTS, "true", "a whole number"),
        (RESULTS, ".nan", "a whole number"),
        (RESULTS, "1" + "0" * 400, "a whole number"),
        (RESULTS, "[1]", "got a list"),
        ("memory_search.query.min_score", "x", "a number"),
        ("memory_search.query.hybrid.vector_weight", "heavy", "a number"),
        ("memory_search.enabled", "maybe", "true or false"),
        ("memory_search.backend", "skynet", "not one of the choices"),
        ("memory_search.provider", "{a: b}", "not one of the choices"),
        ("memory_search.sources", "[memory, dreams]", "not one of the choices"),
        ("memory_search.extra_paths", "{a: b}", "a list"),
        ("memory_search.extra_paths", "[[a]]", "expected text"),
        ("memory_search.query", "7", "a group of settings"),
        ("memory_search.remote.headers", "[a]", "names and values"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_where_it_stands(load, home, setting, value, expected):
    keys = setting.split(".")
    text = "".join(f"{'  ' * depth}{key}:\n" for depth, key in enumerate(["agents", "defaults", *keys[:-1]]))
    path = user_file(home, f"{text}{'  ' * (len(keys) + 1)}{keys[-1]}: {value}\n")
    error = refusal(load)
    assert error.message.startswith(f"{path}: agents.defaults.{setting}")
    assert expected in error.message


def test_a_wrong_value_names_the_place_it_was_given_in(load, home):
    user_file(home, "agents: {list: [{id: ada, memory_search: {query: {max_results: x}}}]}")
    assert "config.yaml: agents.list[0].memory_search.query.max_results:" in refusal(load, agent="ada").message
    user_file(home, "gateway: {auto_responder: {max_concurrent: x}}")
    assert "config.yaml: gateway.auto_responder.max_concurrent:" in refusal(load).message
    user_file(home, "")
    assert (
        "KEPT_MEMORY_SEARCH__QUERY__MAX_RESULTS"
        in refusal(load, env={"KEPT_MEMORY_SEARCH__QUERY__MAX_RESULTS": "x"}).message
    )
    assert RESULTS in refusal(load, settings={RESULTS: "x"}).message


@pytest.mark.parametrize("value", ["true", "Yes", "on", "1"])
def test_text_for_a_switch_is_understood(load, value):
    assert load(settings={"memory_search.remote.batch.enabled": value}).config.memory_search.remote.batch.enabled


def test_a_list_may_be_given_as_text_with_commas(load):
    config = load(env={"KEPT_MEMORY_SEARCH__EXTRA_PATHS": "~/a, /b,"}).config
    assert config.memory_search.extra_paths == ("~/a", "/b")


# numbers


@pytest.mark.parametrize(
    ("setting", "value", "kept"),
    [
        (RESULTS, 0, 1),
        ("memory_search.query.min_score", -3, 0.0),
        ("memory_search.query.hybrid.candidate_multiplier", 99, 20),
    ],
)
def test_numbers_out_of_range_are_clamped(load, setting, value, kept):
    result: Any = load(settings={setting: value}).config.agent
    for key in setting.split("."):
        result = getattr(result, key)
    assert result == kept
    assert type(result) is type(kept)


@pytest.mark.parametrize(
    ("vector", "text", "expected"),
    [
        (0.6, 0.6, (0.5, 0.5)),
        (0.7, None, (0.7, 0.3)),
        (None, 0.9, (0.1, 0.9)),
        (0, None, (0, 1)),
        ("auto", 0.4, (0.6, 0.4)),
        (5, None, (1, 0)),
    ],
)
def test_weights_sum_to_one(load, vector, text, expected):
    overrides = {"vector_weight": vector, "text_weight": text}
    settings = {f"memory_search.query.hybrid.{key}": value for key, value in overrides.items() if value is not None}
    hybrid = load(settings=settings).config.memory_search.query.hybrid
    assert (hybrid.vector_weight, hybrid.text_weight) == pytest.approx(expected)


def test_weights_that_are_not_given_or_both_zero_are_left_to_the_embedder(load):
    zero = {"memory_search.query.hybrid.vector_weight": 0, "memory_search.query.hybrid.text_weight": 0}
    for settings in ({}, zero):
        hybrid = load(settings=settings).config.memory_search.query.hybrid
        assert (hybrid.vector_weight, hybrid.text_weight) == ("auto", "auto")


def test_headers_of_an_agent_replace_those_of_all_agents(load, home):
    user_file(
        home,
        """
        agents:
          defaults: {memory_search: {remote: {base_url: "http://localhost:1/v1", headers: {a: b, c: d}}}}
          list: [{id: main, memory_search: {remote: {headers: {e: f}}}}]
        """,
    )
    remote = load().config.memory_search.remote
    assert (remote.base_url, remote.headers) == ("http://localhost:1/v1", {"e": "f"})


# OpenClaw

RESPONDER = """
gateway:
  autoResponder: {enabled: true, maxConcurrent: 3, debounceMs: 1500, maxHistoryMessages: 20, sessionMaxAgeMs: 14400000,
                  memoryIndexIntervalMessages: 5, memorySearchMaxResults: 5, memoryFtsEnabled: true}
"""
RESOLVED = """
agents:
  defaults:
    memorySearch:
      enabled: true
      sources: [memory, sessions]
      extraPaths: []
      provider: local
      remote:
        baseUrl: http://127.0.0.1:9/v1
        batch: {enabled: false, wait: true, concurrency: 2, pollIntervalMs: 2000, timeoutMinutes: 60}
      experimental: {sessionMemory: true}
      fallback: none
      local: {modelPath: ~, modelCacheDir: ~/.cache/models}
      store: {driver: sqlite, path: ~/.openclaw/memory/main.sqlite,
              vector: {enabled: true, extensionPath: /usr/lib/vec0.so}}
      chunking: {tokens: 400, overlap: 80}
      sync: {onSessionStart: true, onSearch: true, watch: true, watchDebounceMs: 1500, intervalMinutes: 0,
             sessions: {deltaBytes: 100000, deltaMessages: 50}}
      query: {topK: 5, minScore: 0.35,
              hybrid: {enabled: true, vectorWeight: 0.7, textWeight: 0.3, candidateMultiplier: 4}}
      cache: {enabled: true, maxEntries: 50000}
"""
FLUSH = "agents: {defaults: {compaction: {memoryFlush: {enabled: true, softThresholdTokens: 4000}}}}"


@pytest.mark.parametrize(("block", "ignored"), [(RESPONDER, 1), (RESOLVED, 5), (FLUSH, 0)])
def test_the_blocks_of_the_documents_are_accepted_as_they_stand(load, home, block, ignored):
    user_file(home, block)
    notices = load().config.notices
    assert [notice.partition(":")[2] for notice in notices] == [
        " Kept does not have this setting; it is ignored."
    ] * ignored


# the files as files


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "---\n", "null\n", "\ufeff", "agents:\n", "agents: {}\n"])
def test_a_file_that_says_nothing_sets_nothing(load, home, text):
    before = load().config
    user_file(home, text)
    assert load().config == before


LINES = "agents:\n  defaults:\n    workspace: "
MEANINGLESS = [
    "2026-99-99", "!!int ''", "!!float x", "!!timestamp x", "!!bool x", "!!python/object:os.system x", "1" * 5000,
    "&a *b",
]  # fmt: skip
ENDLESS = ["1" + ":0" * 100_000, "!!int '1" + ":59" * 60_000 + "'", "0x" + "f" * 200_000]
UNREADABLE = [
    *((text, ": expected settings by name") for text in ("- a\n- b\n", "just text", "42")),
    *(
        (text, ": ")
        for text in ("agents: []", "agents: x", "agents: {defaults: []}", "agents: {list: {}}", "gateway: []")
    ),
    (f"{LINES}[unclosed\n", ", line "),
    ("agents:\n\tdefaults: {}\n", ", line 2: "),
    *((f"{LINES}{value}\n", "") for value in MEANINGLESS),
    *((raw, "") for raw in (b"agents: \xff\xfe", b"agents: \x00", b"agents: \x1b[31m")),
    *((f"gateway:\n  stream: {number}\n", ", line 2: a number of more than 1,000 digits") for number in ENDLESS),
    (f"gateway: {{stream: 1{':1' * 200}.5}}\n", ""),
    ("# a comment\n" * 50_000, ": has more than 256,000 bytes, too many for settings."),
]


@pytest.mark.parametrize(("raw", "message"), UNREADABLE, ids=range(len(UNREADABLE)))
def test_a_file_that_says_no_settings_is_refused_by_its_name(load, home, raw, message):
    path = write_file(home / "config.yaml", raw)
    assert refusal(load).message.startswith(f"{path}{message}")


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 50_000, "{a: " * 50_000])
def test_yaml_nested_without_end_is_refused_and_does_not_take_the_process_down(kept, home, text):
    user_file(home, text)
    ended = kept("config", "path")
    assert ended.code == 2
    assert "nested too deeply" in ended.err


def laughs(levels: int) -> str:
    """Nine times as much on each line: ten lines stand for three billion words."""
    lines = ["x0: &a0 [lol, lol, lol]"]
    lines += [f"x{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines) + f"\nmemory_search: {{remote: {{headers: {{a: *a{levels - 1}}}}}}}\n"


def test_yaml_that_stands_for_more_than_it_says_is_refused_before_it_is_built(load, home):
    path = user_file(home, laughs(10))
    error = refusal(load)
    assert error.message == f"{path}, line 1: anchors (&a0) and aliases (*a0) are not allowed."
    assert "Write the value out" in error.hint


def test_signs_of_anchors_inside_of_texts_are_nothing_special(load, home):
    user_file(home, "agents: {defaults: {workspace: '/notes/a&b/*c'}}")
    assert load(workspace=None).config.workspace == "/notes/a&b/*c"


def test_a_pipe_in_the_place_of_the_file_is_refused_at_once(kept, home, workspace):
    home.mkdir(parents=True, exist_ok=True)
    path = home / "config.yaml"
    os.mkfifo(path)
    before = tree_of(workspace)
    ended = kept("search", "anything")
    assert (ended.code, len(ended.err.splitlines())) == (2, 1)
    assert f"{path}: is not a file." in ended.err
    assert tree_of(workspace) == before


def test_a_folder_in_the_place_of_the_file_is_refused(load, home):
    (home / "config.yaml").mkdir(parents=True)
    assert "config.yaml: " in refusal(load).message


def test_a_workspace_that_is_not_a_path_is_refused(load):
    refusal(load, workspace="a\0b")


# what is shown


SECRETS = """
agents:
  defaults:
    memory_search:
      remote:
        base_url: "https://ada:hunter2-in-url@example.org/v1?key=hunter2-in-query"
        api_key: hunter2-search
        headers: {Authorization: Bearer hunter2-header}
    model: {api_key: hunter2-model, base_url: "https://hunter2-token@example.org"}
    mcp_servers:
      program: {command: npx, env: {TOKEN: hunter2-env}}
      address: {url: "https://example.org/mcp?key=hunter2-mcp", headers: {Authorization: hunter2-mcp-header}}
"""


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_secrets_are_never_shown(kept, home, form):
    user_file(home, SECRETS)
    ended = kept("config", "explain", *form)
    assert ended.code == 0
    assert "hunter2" not in ended.out + ended.err
    assert ended.out.count("(set)") == len(re.findall("hunter2", SECRETS))


def test_an_export_of_the_settings_has_no_secrets_of_servers():
    content, _ = copy_settings("config.yaml", SECRETS.encode())
    assert b"hunter2" not in content
    assert b"npx" in content


def test_a_secret_in_the_wrong_place_is_not_repeated_by_the_error(kept):
    for name in ("HEADERS", "API_KEY__X", "BATCH__WAIT"):
        ended = kept("config", "path", env={f"KEPT_MEMORY_SEARCH__REMOTE__{name}": "Bearer hunter2"})
        assert ended.code == 2
        assert name == "BATCH__WAIT" or "hunter2" not in ended.out + ended.err


def test_config_explain_in_a_pipe_has_one_line_for_each_setting_however_long(kept, tmp_path):
    deep = tmp_path / ("a" * 200) / "config.yaml"
    write_file(deep, with_results(3))
    lines = kept("--config", deep, "config", "explain", "memory_search.query").out.splitlines()
    assert len(lines) == 1 + 7
    assert [line for line in lines if RESULTS in line and line.rstrip().endswith(str(deep))]
