"""Settings of earlier versions, and of the designs that Kept grew from: a file with them opens, and a notice says what
becomes of each."""

from __future__ import annotations

import json

import pytest

from kept.config import load_config
from kept.config.removed import NOTICES
from kept.errors import ConfigError
from tests.support.files import write_file

RESPONDER = """
gateway:
  autoResponder:
    enabled: true
    maxConcurrent: 3
    debounceMs: 1500
    maxHistoryMessages: 20
    sessionMaxAgeMs: 14400000
    memoryIndexIntervalMessages: 5
    memorySearchMaxResults: 5
    memoryFtsEnabled: true
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
      store:
        driver: sqlite
        path: ~/.openclaw/memory/main.sqlite
        vector: {enabled: true, extensionPath: /usr/lib/vec0.so}
      chunking: {tokens: 400, overlap: 80}
      sync:
        onSessionStart: true
        onSearch: true
        watch: true
        watchDebounceMs: 1500
        intervalMinutes: 0
        sessions: {deltaBytes: 100000, deltaMessages: 50}
      query:
        topK: 5
        minScore: 0.35
        hybrid: {enabled: true, vectorWeight: 0.7, textWeight: 0.3, candidateMultiplier: 4}
      cache: {enabled: true, maxEntries: 50000}
"""
FLUSH = "agents: {defaults: {compaction: {memoryFlush: {enabled: true, softThresholdTokens: 4000}}}}"


def load(home, text):
    write_file(home / "config.yaml", text)
    return load_config(home=str(home), environ={}).config


def test_every_setting_of_the_table_is_ignored_with_a_notice_that_names_it(tmp_path):
    names = {*NOTICES} - {"memory_search.query.top_k"}
    tree: dict = {"agents": {"defaults": {}}, "gateway": {}}
    for name in names:
        *groups, last = name.split(".") if name.startswith("gateway.") else ["agents", "defaults", *name.split(".")]
        into = tree
        for group in groups:
            into = into.setdefault(group, {})
        into[last] = {"any": "value"}
    notices = load(tmp_path, json.dumps(tree)).notices
    assert {notice.partition(":")[0].removeprefix("agents.defaults.") for notice in notices} == names


def test_the_entry_of_an_agent_and_the_environment_may_have_one_too(tmp_path):
    write_file(tmp_path / "config.yaml", "agents: {list: [{id: main, sync: {git: {branch: x}}}]}")
    config = load_config(home=str(tmp_path), environ={"KEPT_GATEWAY__LEASE_SECONDS": "3"}).config
    end = "Kept no longer has this setting; it is ignored."
    assert config.notices == (f"agents.list[0].sync: {end}", f"KEPT_GATEWAY__LEASE_SECONDS: {end}")


@pytest.mark.parametrize("text", ["gateway: {streams: 3}", "agents: {defaults: {gateway: {stream: 3}}}"])
def test_any_other_unknown_setting_is_still_an_error(tmp_path, text):
    with pytest.raises(ConfigError, match="no such setting"):
        load(tmp_path, text)


def test_an_option_cannot_set_a_removed_setting(tmp_path):
    with pytest.raises(ConfigError, match="no such setting"):
        load_config(home=str(tmp_path), environ={}, settings={"gateway.stream": 3})


def test_a_removed_token_says_who_is_let_in(tmp_path):
    (notice,) = load(tmp_path, "gateway: {http: {token: secret}}\n").notices
    assert "kept token create" in notice
    assert "lets in every program" in notice


# OpenClaw


@pytest.mark.parametrize("block", [RESPONDER, RESOLVED, FLUSH])
def test_the_blocks_of_the_documents_are_accepted_as_they_stand(tmp_path, block):
    assert load(tmp_path, block).agent_id == "main"


def test_a_setting_without_an_effect_says_so(tmp_path):
    config = load(tmp_path, RESPONDER)
    assert config.gateway.auto_responder.memory_search_max_results == 5
    assert config.notices == (
        "gateway.auto_responder.memory_fts_enabled: Kept always searches by word; the setting has no effect.",
    )
    notices = load(tmp_path, RESOLVED).notices
    assert [notice.partition(":")[0].rpartition(".")[2] for notice in notices] == [
        "experimental",
        "model_cache_dir",
        "driver",
        "extension_path",
        "top_k",
    ]


def test_a_setting_with_another_name_here_is_used(tmp_path):
    assert load(tmp_path, RESOLVED).memory_search.query.max_results == 5
    both = "agents: {defaults: {memorySearch: {query: {topK: 5, maxResults: 9}}}}"
    assert load(tmp_path, both).memory_search.query.max_results == 9
    with pytest.raises(ConfigError):
        load(tmp_path, "agents: {defaults: {memorySearch: {query: {topK: many}}}}")


def test_conversations_are_left_out_if_the_experiment_with_them_was_off(tmp_path):
    off = "agents: {list: [{id: main, memorySearch: {experimental: {sessionMemory: false}}}]}"
    config = load(tmp_path, off)
    assert config.memory_search.sources == ("memory",)
    assert config.notices[0].endswith("sessionMemory: false is read as memory_search.sources: [memory].")
    on = "agents: {defaults: {memorySearch: {experimental: {sessionMemory: true}}}}"
    assert load(tmp_path, on).memory_search.sources == ("memory", "sessions")
    named = "agents: {defaults: {memorySearch: {experimental: {sessionMemory: false}, sources: [sessions]}}}"
    assert load(tmp_path, named).memory_search.sources == ("sessions",)
