"""Spans reach a collector that speaks OTLP over HTTP, and say nothing of what was searched or written."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kept.config import load_config
from kept.errors import ConfigError
from kept.ledger import open_model_ledger
from kept.llm.metered import MeteredChat
from kept.spans import span
from kept.testing import FakeEmbedder, ScriptedChat
from kept.tracing import tracing
from tests.support.chat_requests import ask
from tests.support.span_collector import attributes, collecting
from tests.support.workspaces import open_memory, write_note

PLANTED = "zanzibar7pelican"


@pytest.fixture
def collector():
    with collecting() as server:
        yield server


def test_searches_syncs_and_calls_are_sent_without_text(collector, tmp_path, workspace):
    write_note(workspace, "memory/words.md", f"# {PLANTED}\n\nThe code word is {PLANTED}.\n")
    config = load_config(
        home=str(tmp_path / "home"),
        workspace=str(workspace),
        settings={"gateway.tracing_endpoint": collector.endpoint},
    ).config
    with open_memory(tmp_path, embedder=FakeEmbedder()) as memory, tracing(config, service="test"):
        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        with span("request", method="POST", traceparent=parent) as request:
            with span("tool_call", tool="memory_search"):
                assert PLANTED in str(memory.search(f"what is {PLANTED}?").hits)
            request.set(route="/mcp", status=200)
        ask(MeteredChat(ScriptedChat(lambda _: f"It is {PLANTED}."), open_model_ledger(config, memory.clock)), PLANTED)
        with pytest.raises(ValueError, match=PLANTED), span("tool_call", tool="memory_write"):
            raise ValueError(PLANTED)
    by_name = {sent.name: sent for sent in collector.spans}
    assert {*by_name} == {"kept.request", "kept.tool_call", "kept.search", "kept.sync", "kept.model_call"}
    request, search, tool = by_name["kept.request"], by_name["kept.search"], collector.spans
    assert request.trace_id.hex() == "0af7651916cd43dd8448eb211c80319c"
    assert request.parent_span_id.hex() == "b7ad6b7169203331"
    assert attributes(request) == {"kept.method": "POST", "kept.route": "/mcp", "kept.status": 200}
    assert search.parent_span_id == next(sent.span_id for sent in tool if sent.name == "kept.tool_call")
    assert by_name["kept.sync"].parent_span_id == search.span_id
    assert attributes(search)["kept.hits"] == 1
    assert attributes(by_name["kept.sync"])["kept.indexed"] == 1
    model = attributes(by_name["kept.model_call"])
    assert (model["kept.purpose"], model["kept.ok"]) == ("reply", True)
    assert model["kept.input_tokens"] > 0
    assert attributes(by_name["kept.tool_call"])["error.type"] == "ValueError"
    assert PLANTED.encode() not in collector.raw


def test_nothing_is_sent_or_imported_without_an_endpoint(tmp_path):
    code = (
        "import sys\n"
        "from kept.config import load_config\nfrom kept.tracing import tracing\nfrom kept.spans import span\n"
        "config = load_config().config\n"
        "with tracing(config, service='x'), span('search'): pass\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.strip() == "[]"
    config = load_config(home=str(tmp_path), settings={"gateway.tracing_endpoint": "localhost:4318"}).config
    with pytest.raises(ConfigError, match="not an HTTP address"), tracing(config, service="x"):
        pass
