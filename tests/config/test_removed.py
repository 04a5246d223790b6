"""Settings of earlier versions, and of the designs that Kept grew from: a file with them opens, and a notice says what
becomes of each."""

from __future__ import annotations

import json

import pytest

from kept.config import load_config
from kept.config.removed import REMOVED
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
    names = REMOVED
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
    end = "Kept does not have this setting; it is ignored."
    assert config.notices == (f"agents.list[0].sync: {end}", f"KEPT_GATEWAY__LEASE_SECONDS: {end}")


@pytest.mark.parametrize("text", ["gateway: {streams: 3}", "agents: {defaults: {gateway: {stream: 3}}}"])
def test_any_other_unknown_setting_is_still_an_error(tmp_path, text):
    with pytest.raises(ConfigError, match="no such setting"):
        load(tmp_path, text)


def test_an_option_cannot_set_a_removed_setting(tmp_path):
    with pytest.raises(ConfigError, match="no such setting"):
        load_config(home=str(tmp_path), environ={}, settings={"gateway.stream": 3})


# OpenClaw


@pytest.mark.parametrize("block", [RESPONDER, RESOLVED, FLUSH])
def test_the_blocks_of_the_documents_are_accepted_as_they_stand(tmp_path, block):
    assert load(tmp_path, block).agent_id == "main"
