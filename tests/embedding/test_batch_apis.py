"""Big jobs through the providers' batch APIs: paid for once, whatever happens in between."""

import json
import queue
import re
import signal
import subprocess
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kept import Memory
from kept.base.net import ProviderAccount
from kept.base.reports import SyncReport
from kept.embedding.providers import GeminiEmbedder, OpenAIEmbedder, VoyageEmbedder
from kept.embedding.remote import RemoteEmbedder
from kept.index.batches import THRESHOLD, BatchBook, BatchJob, BatchProblem, read_book
from kept.index.sources import IndexLimits
from kept.server.doctor import examine
from kept.storage.files.file_storage import FileStorage
from kept.storage.record_store import Book, dump_book
from tests.support import embedding_batch_servers as batch_servers
from tests.support import embedding_servers as servers
from tests.support.commands import start_kept
from tests.support.embedding_servers import KEY, Reply
from tests.support.fake_time import FakePace
from tests.support.files import write_file
from tests.support.index_dump import read_cache
from tests.support.workspaces import open_memory

pytestmark = pytest.mark.slow

KINDS: dict[str, tuple[type[batch_servers.BatchProvider], type[RemoteEmbedder]]] = {
    "openai": (batch_servers.OpenAI, OpenAIEmbedder),
    "gemini": (batch_servers.Gemini, GeminiEmbedder),
    "voyage": (batch_servers.Voyage, VoyageEmbedder),
}
MANY = THRESHOLD + 20
DIMS = 16


@dataclass
class Place:
    """A provider, and memories whose notes it embeds."""

    name: str
    server: Any
    kind: type[RemoteEmbedder]
    fake: FakePace
    root: Path
    opened: list[Memory] = field(default_factory=list)
    limits: IndexLimits | None = None

    def write(self, count: int = MANY, *, name: str = "MEMORY.md", word: str = "topic") -> None:
        (self.root / "workspace").mkdir(exist_ok=True)
        items = "".join(f"- Fact {number} is about {word}{number}.\n" for number in range(count))
        (self.root / "workspace" / name).write_text(f"# Facts\n\n{items}")

    def embedder(self, **more: Any) -> RemoteEmbedder:
        account = ProviderAccount(self.server.base_url, KEY)
        return self.kind(account, policy=self.fake.pace(), **{"dimensions": DIMS, **more})

    def memory(self, *, embedder: RemoteEmbedder | None = None, clock: Any = None, **settings: Any) -> Memory:
        named = {f"memory_search.remote.batch.{name}": value for name, value in {"enabled": True, **settings}.items()}
        memory = open_memory(
            self.root,
            limits=self.limits,
            embedder=embedder or self.embedder(),
            settings=named,
            clock=clock,
            create=False,
        )
        self.opened.append(memory)
        return memory

    @property
    def book_path(self) -> Path:
        return self.root / "home" / "agents" / "main" / "batches.json"

    def book(self) -> BatchBook:
        return read_book(Book(FileStorage(str(self.book_path.parent)), self.book_path.name, BatchBook))


def place_of(name: str, fake: FakePace, root: Path) -> Iterator[Place]:
    kind, embedder = KINDS[name]
    with kind() as server:
        place = Place(name, server, embedder, fake, root)
        yield place
        for memory in place.opened:
            memory.close()


@pytest.fixture(params=KINDS)
def place(request, fake, tmp_path) -> Iterator[Place]:
    yield from place_of(request.param, fake, tmp_path)


@pytest.fixture
def openai(fake, tmp_path) -> Iterator[Place]:
    yield from place_of("openai", fake, tmp_path)


def said(report: SyncReport) -> str:
    return " ".join(problem.reason for problem in report.problems)


def test_many_texts_go_in_one_batch_and_are_found_by_meaning(place):
    place.write()
    memory = place.memory()
    report = memory.sync()
    assert (report.ok, report.problems) == (True, ())
    assert (report.embedded, report.cached, report.pending) == (MANY, 0, 0)
    assert place.server.steps == ["upload", "create", "poll", "download"]
    assert place.server.texts() == []
    result = memory.search("topic77")
    assert result.degraded == ()
    assert "topic77." in result.hits[0].snippet
    assert result.hits[0].vector_score is not None
    assert place.book().jobs == ()


def test_vectors_are_those_of_their_own_text_though_answers_come_in_any_order(place):
    place.write()
    by_batch = place.memory()
    by_batch.sync()
    with by_batch.index_service.inspecting() as (index, _):
        rows = read_cache(index)
    by_batch.close()
    for file in (place.root / "home" / "agents" / "main").glob("*.sqlite*"):
        file.unlink()
    by_call = place.memory(enabled=False)
    by_call.sync()
    with by_call.index_service.inspecting() as (index, _):
        assert read_cache(index) == rows


def test_batches_are_off_unless_they_are_enabled(openai):
    openai.write()
    assert openai.memory(enabled=False).sync().embedded == MANY
    openai.write(THRESHOLD - 1, word="other")
    assert openai.memory().sync().embedded == THRESHOLD - 1  # and few texts are asked for in ordinary calls
    assert openai.server.steps == []
    assert not openai.book_path.exists()


def test_what_is_under_way_is_looked_at_every_poll_interval(place):
    place.write()
    place.server.looks = 4
    assert place.memory(poll_interval_ms=1500).sync().ok
    assert place.fake.slept == [1.5] * 4
    assert place.server.steps.count("poll") == 4


def test_no_more_batches_than_allowed_are_under_way_at_once(openai):
    openai.limits = IndexLimits(job_texts=100)
    openai.write(550)
    openai.server.looks = 2
    most = 0

    def watch(step: str, when: str) -> None:
        nonlocal most
        under_way = sum("end" not in batch for batch in openai.server.batches.values())
        most = max(most, under_way)

    openai.server.at = watch
    report = openai.memory(concurrency=3).sync()
    assert (report.ok, report.embedded) == (True, 550)
    assert len(openai.server.batches) == 6
    assert most == 3


def test_usage_counts_what_a_batch_brought_and_estimates_what_is_not_told(place):
    place.write()
    embedder = place.embedder()
    place.memory(embedder=embedder).sync()
    assert embedder.usage.texts == MANY
    assert embedder.usage.tokens == 7 * MANY if place.name != "gemini" else embedder.usage.tokens > 7 * MANY


def test_texts_that_a_batch_did_not_take_are_asked_for_in_ordinary_calls(place):
    place.write()
    place.server.answers_poorly = lambda text: re.search(r"topic1\d\.", text) is not None
    report = place.memory().sync()
    assert (report.ok, report.embedded, report.pending) == (True, MANY, 0)
    assert len(place.server.texts()) == 10
    assert place.book() == BatchBook()


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [
            b'{"custom_id": "x"\n',
            b"\xff\xfe\n",
            b"[1, 2]\n",
            b"\n",
            {"custom_id": "nobody's"},
            *lines[9:],
        ],
        lambda lines: [b"[" * 100_000 + b"\n", *lines[9:], *lines[20:30]],
    ],
    ids=["lines that are no answers", "lines twice"],
)
def test_answers_that_cannot_be_understood_are_left_out(place, change):
    place.write()
    place.server.changes_output = change
    report = place.memory().sync()
    assert (report.ok, report.embedded, report.pending) == (True, MANY, 0)
    assert len(place.server.texts()) == 9


def shorter(lines: list[Any]) -> list[Any]:
    return [json.loads(re.sub(r"\[-?\d[^]]*\]", "[1.0, 0.0]", json.dumps(line))) for line in lines]


def zeros(lines: list[Any]) -> list[Any]:
    return [json.loads(re.sub(r"\[-?\d[^]]*\]", json.dumps([0.0] * DIMS), json.dumps(line))) for line in lines]


@pytest.mark.parametrize("change", [lambda lines: [b"<html>\n"], shorter, zeros], ids=["html", "shorter", "zeros"])
def test_a_batch_without_one_good_vector_has_failed_and_ordinary_calls_take_over(place, change):
    place.write()
    place.server.changes_output = change
    report = place.memory().sync()
    assert (report.ok, report.embedded, report.pending) == (True, MANY, 0)
    assert "done, but without vectors" in said(report)
    assert len(place.server.texts()) == MANY
    assert place.book().jobs == ()
    assert place.book().problem.failures == 1


@pytest.mark.parametrize("word", ["failed", "expired", "cancelled"])
def test_a_batch_that_ends_badly_is_a_failure_and_what_it_brought_is_used(place, word):
    place.write()
    place.server.ends.append(word)
    report = place.memory().sync()
    assert (report.ok, report.embedded, report.pending) == (True, MANY, 0)
    assert f"failed at {place.name}: {word}." in said(report)
    assert b"Enqueued" not in place.book_path.read_bytes()  # only the kind of the reason is written down
    partial = place.name != "gemini" and word != "failed"
    assert len(place.server.texts()) == (MANY // 2 if partial else MANY)
    assert place.book().problem == BatchProblem(place.embedder().identity.key, 1, word)


def test_after_two_failures_batches_are_off_until_a_forced_index_succeeds(place):
    place.server.ends.extend(["failed", "expired"])
    place.write(word="first")
    assert "Batch mode is off" not in said(place.memory().sync())
    place.write(word="second")
    second = place.memory().sync()
    assert "Batch mode is off after 2 failures (the last: expired)" in said(second)
    assert second.pending == 0
    later = place.memory()
    assert any("Batch mode is off" in reason for reason in later.status().degraded)
    assert any("Batch mode is off" in reason for reason in later.search("first").degraded)
    assert any("Batch mode is off" in check.detail for check in examine(later))
    place.write(word="third")
    third = place.memory().sync()
    assert "kept index --force" in said(third)
    assert (third.ok, third.pending, len(place.server.batches)) == (True, 0, 2)

    place.write(word="fourth")
    forced = place.memory().sync(force=True)
    assert (said(forced), forced.pending, len(place.server.batches)) == ("", 0, 3)
    assert place.book() == BatchBook()
    place.write(word="fifth")
    place.memory().sync()
    assert len(place.server.batches) == 4


@pytest.mark.parametrize("step", ["upload", "create"])
def test_a_provider_without_batches_is_a_failure(place, step):
    place.write()
    place.server.step_faults[step] = deque([Reply(404, {"error": {"message": "Invalid URL"}})])
    report = place.memory().sync()
    assert (report.ok, report.pending, len(place.server.texts())) == (True, 0, MANY)
    assert "request refused (404)" in said(report)
    assert place.book().problem.failures == 1


def test_a_key_that_is_refused_or_a_quota_that_is_used_up_is_no_failure_of_batches(openai):
    openai.write()
    spent = {"error": {"message": "You exceeded it", "code": "insufficient_quota"}}
    openai.server.step_faults["create"] = deque([Reply(401, {"error": {"message": "no"}}), Reply(429, spent)])
    for word in ("first", "second"):
        openai.write(word=word)
        assert "No batch was created." in said(openai.memory().sync())
    assert openai.book() == BatchBook()


def test_a_batch_that_the_provider_has_forgotten_is_a_failure(place):
    place.write()
    place.memory(wait=False).sync()
    place.server.batches.clear()
    report = place.memory().sync()
    assert (report.ok, report.pending) == (True, 0)
    assert "request refused (404)" in said(report)


def test_a_batch_that_takes_too_long_is_waited_for_once_more_then_cancelled(place):
    place.write()
    place.server.looks = 10_000
    report = place.memory(timeout_minutes=10, poll_interval_ms=60_000).sync()
    assert (report.ok, report.pending, len(place.server.texts())) == (True, 0, MANY)
    assert "after 20 minutes" in said(report)
    assert 19 <= len(place.fake.slept) <= 21
    assert place.server.steps[-1] == "cancel"
    assert place.book().problem.failures == 1
    assert place.book().jobs == ()


def test_a_long_outage_leaves_the_batch_to_a_later_sync(place):
    place.write()
    place.server.step_faults["poll"] = deque([Reply(503, b"")] * 10_000)
    report = place.memory().sync()
    assert (report.ok, report.pending, place.server.texts()) == (False, MANY, [])
    assert "A batch could not be polled." in said(report)
    place.server.step_faults.clear()
    later = place.memory().sync()
    assert (later.ok, later.embedded, later.pending) == (True, MANY, 0)
    assert len(place.server.batches) == 1


def test_without_waiting_texts_are_found_by_word_until_a_later_sync_collects(place):
    place.write()
    place.server.looks = 3
    memory = place.memory(wait=False)
    report = memory.sync()
    assert report.failures == (
        f"{place.name} has {MANY} texts in a batch that is not done yet."
        " New text is found by word, not yet by meaning.",
    )
    assert (report.embedded, report.pending, place.fake.slept) == (0, MANY, [])
    assert [(batch.provider, batch.texts) for batch in memory.status().batches] == [(place.name, MANY)]
    hit = memory.search("topic77").hits[0]
    assert "topic77." in hit.snippet
    assert hit.vector_score is None
    assert memory.sync().pending == MANY
    assert memory.sync().pending == MANY
    collected = memory.sync()
    assert (collected.ok, collected.embedded, collected.pending, memory.status().batches) == (True, MANY, 0, ())
    assert place.server.texts() == ["topic77"]  # the query
    assert len(place.server.batches) == 1


def test_a_search_begins_a_batch_and_does_not_wait_for_it(place):
    place.write()
    place.server.looks = 2
    memory = place.memory()
    result = memory.search("topic77")
    assert "topic77." in result.hits[0].snippet
    assert any("in a batch that is not done yet" in reason for reason in result.degraded)
    assert place.fake.slept == []
    assert place.server.steps == ["upload", "create"]
    memory.search("topic78")
    assert place.server.texts() == ["topic77", "topic78"]  # the queries
    assert place.server.steps == ["upload", "create"]  # it is not looked at by every search
    assert memory.sync().pending == 0
    assert len(place.server.batches) == 1


def test_a_rebuild_does_not_pay_twice_either_and_the_index_from_before_stays_in_use(openai):
    openai.write()
    openai.memory(enabled=False).sync()
    requested = len(openai.server.texts())
    embedder = openai.embedder(model="text-embedding-3-large")
    openai.server.looks = 2
    memory = openai.memory(embedder=embedder, wait=False)
    report = memory.sync()
    assert "The old index is still in use." in report.failures[0]
    assert "topic77." in memory.search("topic77").hits[0].snippet
    assert memory.sync().rebuilt is None
    collected = memory.sync()
    assert (collected.ok, collected.embedded, collected.pending) == (True, MANY, 0)
    assert collected.rebuilt
    assert len(openai.server.batches) == 1
    assert len(openai.server.texts()) == requested


def test_a_batch_that_is_under_way_is_no_reason_to_fall_back_to_another_provider(openai):
    openai.write()
    openai.server.looks = 2
    named = {"remote.base_url": openai.server.base_url, "remote.api_key": KEY, "remote.batch.enabled": True}
    named |= {"remote.batch.wait": False, "provider": "openai", "fallback": "local", "dimensions": DIMS}
    settings = {f"memory_search.{name}": value for name, value in named.items()}
    memory = Memory.open(openai.root / "workspace", settings=settings)
    openai.opened.append(memory)
    assert memory.sync().pending == MANY
    assert memory.search("topic77").provider == "openai"
    assert memory.sync().pending == MANY
    assert memory.sync().pending == 0
    assert (memory.status().provider, len(openai.server.batches)) == ("openai", 1)


def test_neither_keys_nor_words_of_notes_are_written_down_and_the_file_is_private(place):
    place.write()
    place.memory(wait=False).sync()
    written = place.book_path.read_text()
    assert len(place.book().jobs[0].hashes) == MANY
    assert not re.search(r"topic|Fact|sk-test|workspace/", written)
    assert KEY not in written
    assert place.book_path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"\xff\x00",
        b"[" * 100_000,
        b'{"version": 9, "jobs": [], "problem": null}',
        b'{"version": 1, "jobs": [{"key": 1}], "problem": null}',
        b'{"version": 1, "jobs": [], "problem": {"failures": "two"}}',
        dump_book(BatchBook((BatchJob("k", "i", "p", 1, ("zz",)),))),
    ],
)
def test_a_damaged_file_is_reported_put_aside_and_ignored(openai, content):
    openai.write()
    openai.book_path.parent.mkdir(parents=True)
    openai.book_path.write_bytes(content)
    report = openai.memory().sync()
    assert (report.ok, report.embedded, report.pending) == (True, MANY, 0)
    assert "It was damaged" in said(report)
    assert openai.book_path.with_name("batches.json.damaged").read_bytes() == content
    assert said(openai.memory().sync()) == ""


def test_where_nothing_can_be_written_down_nothing_is_paid_for(openai):
    openai.write()
    openai.book_path.mkdir(parents=True)
    report = openai.memory().sync()
    assert (report.ok, report.pending, openai.server.steps) == (True, 0, [])
    assert "batches.json" in said(report)


def test_a_job_that_was_collected_and_not_struck_off_costs_nothing(place):
    place.write()
    kept: list[bytes] = []
    place.server.at = lambda step, when: kept.append(place.book_path.read_bytes()) if step == "download" else None
    place.memory().sync()
    place.book_path.write_bytes(kept[-1])
    place.write(MANY + 1)
    report = place.memory().sync()
    assert (report.ok, report.embedded, report.pending) == (True, 1, 0)
    for file in place.book_path.parent.glob("*.sqlite*"):
        file.unlink()
    assert place.memory().sync().pending == 0  # and where the index is gone, its answers are fetched again
    assert len(place.server.batches) == 1
    assert len(place.server.texts()) == 2


def lose(handler: servers.Handler, request: servers.Request) -> None:
    handler.server.owner.answer(request)
    handler.break_off()


def on_create(place: Place, fault: servers.Fault) -> None:
    """The fault happens to the first request that makes a batch; all else goes well."""
    pending = [fault]

    def always(handler: servers.Handler, request: servers.Request) -> None:
        if pending and place.server.step_of(request) == "create":
            pending.pop()(handler, request)
        else:
            handler.reply(place.server.answer(request))

    place.server.always = always


@pytest.mark.parametrize("fault", [lose, servers.says(503), servers.says(200, b"{}"), servers.says(200, b"<")])
def test_a_batch_whose_id_was_lost_on_the_way_is_found_and_not_made_twice(place, fault):
    def heard(handler: servers.Handler, request: servers.Request) -> None:
        if fault is not lose:
            place.server.answer(request)
        fault(handler, request)

    on_create(place, heard)
    place.write()
    report = place.memory().sync()
    assert (report.ok, report.embedded, report.pending, said(report)) == (True, MANY, 0, "")
    assert len(place.server.batches) == 1
    assert "list" in place.server.steps


def test_a_batch_that_cannot_be_made_has_failed_after_three_tries(place):
    place.server.step_faults["create"] = deque([Reply(503, b"")] * 10)
    place.write()
    report = place.memory().sync()
    assert "could not be created in 3 attempts" in said(report)
    assert (report.ok, report.pending, len(place.server.texts())) == (True, 0, MANY)
    assert place.server.steps.count("create") == 3


STEPS = [(step, when) for step in ("upload", "create", "poll", "download") for when in ("before", "after")]


@pytest.mark.kills
@pytest.mark.parametrize(("step", "when"), STEPS)
def test_a_process_that_is_killed_at_any_step_is_resumed_without_a_second_batch(place, step, when):
    place.write()
    victims: queue.Queue[subprocess.Popen[str]] = queue.Queue()
    struck: list[str] = []

    def kill(at: str, moment: str) -> None:
        if (at, moment) == (step, when) and not struck:
            struck.append(step)
            victim = victims.get(timeout=10)
            victim.kill()
            victim.wait()  # so that it cannot hear the answer

    place.server.at = kill
    killed = start_index(place)
    victims.put(killed)
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    after = start_index(place)
    out, err = after.communicate(timeout=60)
    assert after.returncode == 0, err
    report = json.loads(out)
    assert (report["failures"], report["pending"], report["embedded"]) == ([], 0, MANY)
    assert len(place.server.batches) == 1
    assert place.server.texts() == []
    assert place.book() == BatchBook()


def start_index(place: Place) -> subprocess.Popen[str]:
    write_file(
        place.root / "home/config.yaml",
        "agents: {defaults: {memory_search: {"
        f"provider: {place.name}, dimensions: {DIMS}, remote: {{base_url: '{place.server.base_url}', api_key: {KEY},"
        " batch: {enabled: true, poll_interval_ms: 100}}}}}\n",
    )
    return start_kept(place.root, "index", "--json")
