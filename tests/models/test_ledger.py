"""What embedding used and cost, by day; what it would cost; and which providers there are."""

import datetime as dt
import socket

import pytest

from kept import Memory
from kept.base.net import ProviderAccount
from kept.base.reports import Spending
from kept.embedding.providers import OpenAIEmbedder
from kept.models.ledger import Ledger
from kept.storage.files.file_storage import FileStorage
from kept.testing import FrozenClock
from tests.support import embedding_servers as servers
from tests.support.embedding_servers import KEY
from tests.support.fake_time import FakePace
from tests.support.files import write_file


@pytest.fixture
def server():
    with servers.OpenAI() as server:
        yield server


@pytest.fixture
def embedder(server, fake: FakePace):
    return OpenAIEmbedder(ProviderAccount(server.base_url, KEY), policy=fake.pace())


def test_calls_texts_tokens_and_cache_hits_are_counted_by_day(workspace, home, embedder, server):
    clock = FrozenClock(dt.datetime(2026, 3, 14, 12).astimezone())
    write_file(workspace / "memory/a.md", "The parrot is green.\n")
    with Memory.open(workspace, home=home, embedder=embedder, clock=clock) as memory:
        memory.sync()
        memory.search("parrot")
        clock.move(days=1)
        write_file(workspace / "memory/b.md", "The parrot is green.\n")
        memory.sync()
        first, second = memory.status().spending
    assert (first.day, first.provider, first.model) == ("2026-03-14", "openai", "text-embedding-3-small")
    assert (first.calls, first.texts, first.cached) == (2, 2, 0)
    assert first.tokens > 0
    assert first.cost_usd == pytest.approx(first.tokens * 0.02 / 1_000_000)
    assert (second.day, second.calls, second.cached) == ("2026-03-15", 0, 1)
    assert len(server.requests) == 2


def test_neither_a_key_nor_a_text_is_in_the_ledger(workspace, home, embedder):
    write_file(workspace / "memory/a.md", "The parrot is green.\n")
    with Memory.open(workspace, home=home, embedder=embedder) as memory:
        memory.sync()
    raw = (home / "agents/main/ledger.jsonl").read_text()
    assert KEY not in raw
    assert "parrot" not in raw
    assert (home / "agents/main/ledger.jsonl").stat().st_mode & 0o077 == 0


def test_a_long_ledger_is_summed_up_and_loses_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("kept.models.ledger.COMPACT_ABOVE_BYTES", 2_000)
    ledger = Ledger(FileStorage(str(tmp_path)), "ledger.jsonl", FrozenClock(), Spending)
    for _ in range(100):
        ledger.record(Spending("openai", "m", calls=1, texts=2, tokens=3, cached=4, retries=5))
    (day,) = ledger.by_day()
    assert (day.calls, day.texts, day.tokens, day.cached, day.retries) == (100, 200, 300, 400, 500)
    assert (tmp_path / "ledger.jsonl").stat().st_size < 2_500


def test_providers_are_listed_with_how_to_enable_them(kept):
    listed = {one["name"]: one for one in kept("models", "--json").json["providers"]}
    assert set(listed) == {"local", "openai", "gemini", "voyage", "ollama", "llama_cpp", "none"}
    assert (listed["local"]["available"], listed["local"]["inUse"], listed["local"]["dims"]) == (True, True, 384)
    assert (listed["openai"]["available"], listed["openai"]["model"]) == (False, "text-embedding-3-small")
    assert "OPENAI_API_KEY" in listed["openai"]["note"]
    assert "OPENAI_API_KEY" in kept("models").out
    with_key = kept("models", "--json", env={"OPENAI_API_KEY": KEY})
    assert KEY not in with_key.out
    assert next(one for one in with_key.json["providers"] if one["name"] == "openai")["available"]


def test_ollama_is_available_only_if_a_server_answers(kept):
    def state(host: str) -> dict[str, object]:
        providers = kept("--json", "models", env={"OLLAMA_HOST": host}).json["providers"]
        return next(provider for provider in providers if provider["name"] == "ollama")

    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    assert state(f"127.0.0.1:{port}")["available"] is False
    assert f"No server answers at http://127.0.0.1:{port}" in str(state(f"127.0.0.1:{port}")["note"])
    with servers.Ollama() as ollama:
        assert state(ollama.origin)["available"] is True
