"""When the first provider fails: its fallback, words alone, and never two kinds of vectors in one comparison."""

import pytest

from kept import Memory
from kept.server.doctor import examine
from tests.support import embedding_servers as servers
from tests.support.embedding_servers import KEY, says
from tests.support.files import write_file


@pytest.fixture
def defaults():
    return {"fallback": "local"}


def test_vectors_of_two_providers_are_never_compared(workspace, opened, server):
    """An index of the first, the first down: words answer and it is said, until the fallback's vectors are there."""
    write_file(workspace / "memory/a.md", "The parrot is green.\n")
    opened().sync()
    server.always = says(500)
    memory = opened()
    result = memory.search("parrot")
    assert result.hits[0].vector_score is None
    assert "by word only" in result.degraded[0]
    write_file(workspace / "memory/b.md", "The zeppelin is silver.\n")
    report = memory.sync()
    assert "multilingual-384 was used instead." in report.failures
    result = memory.search("parrot")
    assert result.provider == "local"
    assert result.hits[0].vector_score is not None


def test_a_fallback_in_use_is_named_with_its_reason_by_search_status_and_doctor(workspace, opened, server):
    write_file(workspace / "memory/a.md", "The parrot is green.\n")
    server.always = says(500)
    opened().sync()
    later = opened()
    (reason,) = later.search("parrot").degraded
    assert reason.startswith("Using multilingual-384 instead of text-embedding-3-small: openai: ")
    assert "answered 500" in reason
    assert reason in later.status().degraded
    assert (later.status().provider, later.status().requested_provider) == ("local", "openai")
    assert not any("will be rebuilt" in line for line in later.status().degraded)
    assert reason in [check.detail for check in examine(later)]


def test_the_preferred_provider_comes_back_with_the_next_sync_that_is_asked_for(workspace, opened, server):
    write_file(workspace / "memory/a.md", "The parrot is green.\n")
    opened().sync()
    server.always = says(500)
    write_file(workspace / "memory/b.md", "The zeppelin is silver.\n")
    opened().sync()
    server.always = None
    calls = len(server.requests)
    memory = opened()
    assert memory.search("parrot").provider == "local"
    assert len(server.requests) == calls
    report = memory.sync()
    assert report.ok
    assert report.rebuilt == "the embedder changed from multilingual-384 to text-embedding-3-small"
    assert (report.embedded, report.cached) == (1, 1)
    assert memory.search("parrot").provider == "openai"


def test_a_provider_without_a_key_leaves_its_place_to_the_fallback(workspace, home):
    write_file(workspace / "memory/a.md", "The parrot is green.\n")
    settings = {"memory_search.provider": "openai", "memory_search.fallback": "local"}
    with Memory.open(workspace, home=home, settings=settings) as memory:
        result = memory.search("parrot")
    assert result.provider == "local"
    assert "OPENAI_API_KEY" in result.degraded[0]


def test_the_key_of_the_first_is_not_sent_to_the_fallback(workspace, opened, server, monkeypatch):
    write_file(workspace / "memory/a.md", "The parrot is green.\n")
    server.always = says(500)
    with servers.Ollama() as ollama:
        monkeypatch.setenv("OLLAMA_HOST", ollama.origin)
        headers = {"x-team": "secret-team"}
        memory = opened(**{"fallback": "ollama", "remote.headers": headers})
        memory.sync()
        assert memory.search("parrot").provider == "ollama"
        assert ollama.requests
        for request in ollama.requests:
            assert KEY not in str(request.headers)
            assert "x-team" not in request.headers
