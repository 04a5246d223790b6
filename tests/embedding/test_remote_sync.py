"""Remote providers behind a memory: what is indexed, what is searched, and what is left when they fail."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kept import Memory
from kept.base.net import ProviderAccount
from kept.embedding.providers import OpenAIEmbedder
from kept.embedding.remote import RemoteEmbedder
from tests.support import embedding_servers as servers
from tests.support.embedding_servers import KEY
from tests.support.fake_time import FakePace
from tests.support.files import write_file

SECRETS = {"openai": "sk-proj-AAAABBBBCCCC", "header": "tok-DDDDEEEEFFFF", "query": "GGGGHHHHIIII"}


@pytest.fixture
def opened(workspace: Path) -> Iterator[Callable[..., Memory]]:
    memories: list[Memory] = []

    def open_memory(embedder: RemoteEmbedder | None = None, **settings: object) -> Memory:
        named = {f"memory_search.{name.replace('__', '.')}": value for name, value in settings.items()}
        memories.append(Memory.open(workspace, embedder=embedder, settings=named))
        return memories[-1]

    yield open_memory
    for memory in memories:
        memory.close()


def embedder_of(server: servers.Provider, fake: FakePace, **more) -> OpenAIEmbedder:
    return OpenAIEmbedder(ProviderAccount(server.base_url, KEY), policy=fake.pace(), **more)


def write(workspace: Path, count: int, *, first: int = 0, words: int = 3) -> None:
    for number in range(first, first + count):
        filler = f" filler{number}" * words
        write_file(workspace / f"memory/note-{number:04}.md", f"# Note {number}\n\nTopic{number} is here.{filler}\n")


def test_a_thousand_small_notes_make_at_most_a_hundred_calls(workspace, server, opened, fake):
    write(workspace, 1000)
    server.dims = 16
    report = opened(embedder_of(server, fake, dimensions=16)).sync()
    assert (report.ok, report.embedded, report.pending) == (True, 1000, 0)
    assert len(server.requests) <= 100


def test_what_was_embedded_once_is_not_sent_again(workspace, server, opened, fake):
    write(workspace, 20)
    opened(embedder_of(server, fake)).sync()
    calls = len(server.requests)
    os.rename(workspace / "memory" / "note-0001.md", workspace / "memory" / "renamed.md")
    memory = opened(embedder_of(server, fake))
    assert memory.sync().embedded == 0
    assert memory.sync(force=True).embedded == 0
    assert len(server.requests) == calls


def test_a_server_that_dies_half_way_loses_nothing(workspace, server, opened, fake):
    write(workspace, 10)
    memory = opened(embedder_of(server, fake))
    assert memory.sync().ok
    write(workspace, 60, first=10, words=150)
    served = len(server.requests)
    server.faults.extend([lambda handler, request: handler.reply(handler.server.owner.answer(request))] * 2)
    server.always = servers.dies
    report = memory.sync()
    assert not report.ok
    assert len(report.failures) == 1
    assert server.origin in report.failures[0]
    assert "found by word, not yet by meaning" in report.failures[0]
    assert (report.files, report.indexed) == (70, 60)
    assert 0 < report.embedded < 60
    assert report.pending == 60 - report.embedded
    assert served < len(server.requests)

    for number in (3, 9, 12, 69):
        result = memory.search(f"topic{number}")
        assert result.hits[0].path == f"memory/note-{number:04}.md"
        assert any("Searching by word only" in reason and server.origin in reason for reason in result.degraded)

    with servers.OpenAI() as revived:
        again = opened(OpenAIEmbedder(ProviderAccount(revived.base_url, KEY)))
        assert again.sync().pending == 0


def test_an_outage_during_a_rebuild_leaves_the_old_index_in_use_and_keeps_what_arrived(workspace, server, opened, fake):
    write(workspace, 60, words=150)
    opened(embedder_of(server, fake, model="before")).sync()
    memory = opened(embedder_of(server, fake, model="after"))
    server.faults.extend([lambda handler, request: handler.reply(handler.server.owner.answer(request))] * 2)
    server.always = servers.says(503)
    report = memory.sync()
    assert "The old index is still in use." in report.failures[0]
    assert report.rebuilt is None
    assert memory.search("topic7").hits[0].path == "memory/note-0007.md"
    server.always = None
    after = memory.sync()
    assert after.rebuilt
    assert after.cached > 0
    assert after.cached + after.embedded == 60


def test_a_dead_endpoint_costs_a_search_one_wait_only(workspace, server, opened, fake):
    write(workspace, 3)
    embedder = embedder_of(server, fake)
    memory = opened(embedder)
    memory.sync()
    server.stop()
    embedder.close()
    assert memory.search("topic1").hits
    calls = embedder.usage.calls
    for _ in range(5):
        result = memory.search("topic2")
        assert result.hits[0].path == "memory/note-0002.md"
        assert "is not called again for" in result.degraded[0]
    assert embedder.usage.calls == calls


def test_a_text_that_is_refused_is_reported_found_by_word_and_asked_for_once(workspace, server, opened, fake):
    write(workspace, 20)
    write_file(workspace / "memory/bad.md", "# Bad\n\nPoison is in here.\n")
    server.refuses = lambda text: "Poison" in text
    memory = opened(embedder_of(server, fake))
    report = memory.sync()
    assert (report.ok, report.embedded, report.pending) == (True, 20, 0)
    (problem,) = report.problems
    assert problem.path == "memory/bad.md"
    assert "not welcome" in problem.reason
    calls = len(server.requests)
    assert memory.search("poison").hits[0].path == "memory/bad.md"
    assert memory.sync().ok
    assert len(server.requests) == calls + 1  # the query
    again = opened(embedder_of(server, fake))  # as the next process does
    assert again.sync().ok
    assert len(server.requests) == calls + 1
    server.refuses = lambda text: False
    assert again.sync(force=True).pending == 0
    write_file(workspace / "memory/bad.md", "# Good\n\nMended is in here.\n")
    assert memory.sync().pending == 0


def test_secrets_are_in_no_error_no_log_no_report_and_not_in_the_index(workspace, server, opened, caplog, tmp_path):
    caplog.set_level("DEBUG")
    write(workspace, 5)
    server.key = None
    address = f"{server.base_url}?token={SECRETS['query']}"
    settings = {
        "provider": "openai",
        "remote__base_url": address,
        "remote__api_key": SECRETS["openai"],
        "remote__headers": {"X-Access-Token": SECRETS["header"], "X-Team": "blue"},
    }
    memory = opened(**settings)
    texts = [repr(memory.sync()), repr(memory.search("topic1")), repr(memory.status()), repr(memory.config)]
    request = server.requests[0]
    assert request.headers["authorization"] == f"Bearer {SECRETS['openai']}"
    assert request.headers["x-access-token"] == SECRETS["header"]
    assert request.path.endswith(f"?token={SECRETS['query']}")

    write(workspace, 5, first=5)
    server.always = servers.says(400, {"error": {"message": f"I was told {' '.join(SECRETS.values())}"}})
    texts += [repr(memory.sync()), repr(memory.search("topic8"))]
    server.always = servers.says(401, {"error": {"message": f"Incorrect API key: {SECRETS['openai']}"}})
    texts += [repr(memory.sync()), repr(memory.search("topic9"))]
    assert "does not accept the API key" in texts[-1]
    memory.close()
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 10
    for name, secret in SECRETS.items():
        if name == "query":
            texts[3] = texts[3].replace(address, "")  # an address is a setting, and shown as one
        assert secret not in caplog.text
        assert not any(secret in text for text in texts), name
        assert not any(secret.encode() in content for content in written)
