"""Each provider against a server that speaks its documented wire format, in good times and bad."""

import json
import math
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from kept.base.net import DOCUMENT_TIMEOUTS, ProviderAccount, Timeouts
from kept.base.records import Matrix
from kept.base.remote_errors import EmbedderUnavailable, EmbeddingError, EmbeddingFailed
from kept.embedding.base import Embedder
from kept.embedding.providers import GeminiEmbedder, OllamaEmbedder, OpenAIEmbedder, VoyageEmbedder, host_url
from kept.embedding.remote import MAX_BATCH_TOKENS, RemoteEmbedder, iter_batches, token_bound
from tests.support import embedding_servers as servers
from tests.support.embedding_servers import KEY
from tests.support.fake_time import FakePace

KINDS: dict[str, tuple[type[servers.Provider], type[RemoteEmbedder]]] = {
    "openai": (servers.OpenAI, OpenAIEmbedder),
    "gemini": (servers.Gemini, GeminiEmbedder),
    "voyage": (servers.Voyage, VoyageEmbedder),
    "ollama": (servers.Ollama, OllamaEmbedder),
}
SOON = Timeouts(attempt_s=0.08, total_s=100.0)


@dataclass
class Pair:
    name: str
    server: servers.Provider
    kind: type[RemoteEmbedder]
    fake: FakePace

    def embedder(self, key: str | None = KEY, **more) -> RemoteEmbedder:
        headers = more.pop("headers", {})
        return self.kind(ProviderAccount(self.server.base_url, key, headers), policy=self.fake.pace(), **more)

    def failure(self, embedder=None, texts=("one", "two")) -> EmbeddingError:
        with pytest.raises(EmbeddingError) as caught:
            (embedder or self.embedder()).embed(texts, role="document")
        assert KEY not in caught.value.message + caught.value.hint
        assert "\n" not in caught.value.message
        return caught.value


@pytest.fixture(params=KINDS)
def pair(request, fake) -> Iterator[Pair]:
    kind, embedder = KINDS[request.param]
    with kind() as server:
        yield Pair(request.param, server, embedder, fake)


@pytest.fixture
def openai(fake) -> Iterator[Pair]:
    with servers.OpenAI() as server:
        yield Pair("openai", server, OpenAIEmbedder, fake)


@pytest.fixture
def ollama(fake) -> Iterator[Pair]:
    with servers.Ollama() as server:
        yield Pair("ollama", server, OllamaEmbedder, fake)


def rows(matrix: Matrix) -> list[tuple[float, ...]]:
    return [struct.unpack(f"<{matrix.dims}f", row) for row in matrix]


def cosine(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


# in good times


def test_a_query_is_nearest_to_the_text_that_shares_its_words(pair):
    embedder = pair.embedder()
    assert isinstance(embedder, Embedder)
    texts = ["the cat sat on the mat", "staging moved to port 5433", "bread is baked on Sundays"]
    documents = embedder.embed(texts, role="document")
    query = rows(embedder.embed(["which port is staging on"], role="query"))[0]
    scores = [cosine(query, row) for row in rows(documents)]
    assert scores.index(max(scores)) == 1
    assert documents.gaps == ()
    assert documents.dims == embedder.identity.dims == pair.server.dims
    assert [math.hypot(*row) for row in rows(documents)] == pytest.approx([1.0] * 3, abs=1e-5)


def test_the_order_of_the_texts_is_kept_however_many_calls_they_take(pair):
    texts = [f"word{number} " * 40 for number in range(500)]
    matrix = pair.embedder(dimensions=64).embed(texts, role="document")
    assert len(pair.server.requests) >= 3
    packed = [struct.pack(f"<{matrix.dims}f", *unit(servers.bag(sent(pair, text), matrix.dims))) for text in texts]
    assert list(matrix) == packed


def sent(pair: Pair, text: str) -> str:
    return f"search_document: {text}" if pair.name == "ollama" else text


def unit(values: list[float]) -> list[float]:
    norm = math.sqrt(math.fsum(value * value for value in values))
    return [value / norm for value in values]


def test_no_call_has_more_than_eight_thousand_tokens_and_no_more_than_four_are_under_way(openai):
    under_way, most, lock = 0, 0, threading.Lock()
    together = threading.Barrier(4, timeout=5)

    def count(handler: servers.Handler, request: servers.Request) -> None:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        together.wait()  # nobody goes on until four are here
        with lock:
            under_way -= 1
        handler.reply(handler.server.owner.answer(request))

    openai.server.always = count
    texts = ["eight thousand tokens are a lot of words " * 24 for _ in range(192)]
    openai.kind(ProviderAccount(openai.server.base_url, KEY)).embed(texts, role="document")
    calls = openai.server.requests
    assert len(calls) == 8
    assert most == 4
    for call in calls:
        assert sum(token_bound(text) for text in call.body["input"]) <= 8_000


def test_the_role_is_told_to_those_who_ask_for_it(fake):
    seen: dict[str, list[str]] = {}
    for name, (kind, embedder) in KINDS.items():
        with kind() as server:
            limited = Pair(name, server, embedder, fake).embedder()
            for role in ("query", "document"):
                limited.embed(["hello"], role=role)
            seen[name] = [json.dumps(request.body) for request in server.requests]
    assert '"input_type": "query"' in seen["voyage"][0]
    assert '"input_type": "document"' in seen["voyage"][1]
    assert "RETRIEVAL_QUERY" in seen["gemini"][0]
    assert "RETRIEVAL_DOCUMENT" in seen["gemini"][1]
    assert "search_query: hello" in seen["ollama"][0]
    assert "search_document: hello" in seen["ollama"][1]
    assert seen["openai"][0] == seen["openai"][1]


def test_dimensions_are_asked_for_and_part_of_the_identity(pair):
    embedder = pair.embedder(dimensions=256)
    assert embedder.identity.dims == 256
    assert embedder.embed(["hello"], role="document").dims == 256
    assert embedder.identity.key != pair.embedder().identity.key


def test_texts_without_anything_in_them_are_never_sent(pair):
    matrix = pair.embedder().embed(["", "hello", " \n\t", "\u3000"], role="document")
    assert [any(row) for row in rows(matrix)] == [False, True, False, False]
    assert [(gap.row, gap.temporary) for gap in matrix.gaps] == [(0, False), (2, False), (3, False)]
    assert pair.server.texts() == [sent(pair, "hello")]


def test_a_model_that_nobody_has_heard_of_has_the_dimensions_that_it_gives(openai):
    openai.server.dims = 7
    embedder = openai.embedder(model="my-own")
    before = embedder.identity
    assert before.dims == 0
    assert embedder.embed(["hello"], role="document").dims == 7
    assert embedder.identity == before
    with pytest.raises(EmbeddingFailed):
        openai.embedder(model="my-own").embed([" "], role="document")


def test_servers_that_leave_out_the_index_keep_the_order(openai):
    openai.server.always = servers.changed(
        lambda data: [{"embedding": item["embedding"]} for item in sorted(data, key=lambda item: item["index"])]
    )
    assert [any(row) for row in rows(openai.embedder().embed(["a", "b"], role="document"))] == [True, True]
    openai.server.always = servers.changed(lambda data: [{**item, "index": 0} for item in data])
    assert "cannot be matched" in openai.failure().message


def test_a_model_that_ollama_does_not_have_is_named_with_the_command_that_gets_it(ollama):
    error = ollama.failure(ollama.embedder(model="mxbai-embed-large"))
    assert isinstance(error, EmbedderUnavailable)
    assert "not found, try pulling it first" in error.message
    assert "'ollama pull mxbai-embed-large'" in error.hint
    assert len(ollama.server.requests) == 1


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("gpu.local", "http://gpu.local:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        (":9999", "http://127.0.0.1:9999"),
        ("http://gpu.local:1", "http://gpu.local:1"),
        ("https://gpu.local/ollama", "https://gpu.local/ollama"),
        ("[::1]:5", "http://[::1]:5"),
        ("[::]", "http://127.0.0.1:11434"),
    ],
)
def test_ollamas_host_is_read_as_ollama_reads_it(given, address):
    assert host_url(given) == address


# identity


def test_an_identity_makes_no_call_and_tells_endpoints_apart_but_not_keys(pair):
    def identity(**more):
        return pair.embedder(**more).identity

    assert identity() == identity(key="sk-another-key-00000")
    assert identity(headers={"X-Api-Key": "a"}) == identity(headers={"X-Api-Key": "b"})
    assert identity(headers={"X-Team": "a"}) != identity(headers={"X-Team": "b"})
    assert identity(model="other").key != identity().key
    assert pair.server.requests == []
    elsewhere = pair.kind(ProviderAccount("https://example.com/v1", KEY)).identity
    assert elsewhere.key != identity().key
    same = pair.kind(ProviderAccount("https://EXAMPLE.com:443/v1/?key=secret", KEY)).identity
    assert same == elsewhere
    assert KEY not in repr(same)


# in bad times


def test_a_wrong_key_is_said_to_be_wrong_with_the_variable_that_sets_it(pair):
    if pair.name == "ollama":
        pair.server.always = servers.says(401, {"error": "unauthorized"})
    error = pair.failure(pair.embedder(key="sk-wrong-key-000000"))
    assert isinstance(error, EmbedderUnavailable)
    assert not error.retryable
    assert "sk-wrong" not in error.message
    assert "memory_search.remote.api_key" in error.hint
    assert (pair.name.upper() + "_API_KEY" in error.hint) == (pair.name != "ollama")
    assert len(pair.server.requests) == 1


@pytest.mark.parametrize("key", ["sk-abc\ndef", "sk-\u0e01", "sk-\x00"])
def test_a_key_with_a_line_break_in_it_is_refused_without_being_repeated(pair, key):
    with pytest.raises(EmbedderUnavailable) as caught:
        pair.embedder(key=key)
    assert "sk-" not in str(caught.value) + repr(caught.value.__cause__)
    pair.embedder(key=f" {KEY}\n").embed(["hello"], role="query")


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (servers.says(429, {"error": "slow down"}), "answered 429 after 3 tries: slow down"),
        (servers.says(429, retry_after="1"), "answered 429 after 3 tries: Too Many Requests"),
        (servers.bad_gateway, "answered 502 after 3 tries: a web page"),
        (servers.drips, "did not answer within 0.08 s after 3 tries"),
        (servers.breaks_off, "closed the connection after 3 tries"),
        (servers.says(200, b'{"data": [{"embe'), "not JSON"),
        (servers.says(200, b'{"data": 3, "embeddings": 3}'), "answered without"),
        (servers.says(200, b"null"), "answered without"),
        (servers.says(200, b'{"data": [{"embedding": "x"}], "embeddings": ["x"]}'), ""),
        (servers.changed(lambda rows: rows[:-1]), "gave 1 vectors for 2 texts"),
        (servers.changed(lambda rows: rows + rows[:1]), "gave 3 vectors for 2 texts"),
    ],
)
def test_whatever_goes_wrong_is_said_in_one_line_and_once_it_is_over_all_is_well(pair, fault, says, monkeypatch):
    pair.server.always = fault
    timeouts = SOON if "did not answer" in says else DOCUMENT_TIMEOUTS
    monkeypatch.setattr("kept.embedding.remote.DOCUMENT_TIMEOUTS", timeouts)
    error = pair.failure()
    assert isinstance(error, EmbeddingFailed)
    assert says in error.message
    assert error.message.startswith(f"{pair.name}: {pair.server.origin}")
    pair.server.always = None
    pair.fake.now_s += 60
    assert pair.embedder().embed(["one", "two"], role="document").gaps == ()


def vector_of(row):
    """The list of numbers in one entry of an answer, wherever the provider puts it."""
    return row if isinstance(row, list) else row.get("embedding") or row.get("values")


def spoilt(value: float | None, *, all_of_it: bool = False):
    def change(entries):
        numbers = vector_of(entries[0])
        for at in range(len(numbers)) if all_of_it else (0,):
            numbers[at] = value
        return entries

    return servers.changed(change)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None, 1e200, 10**400])
def test_what_is_not_a_finite_number_counts_as_nothing(pair, value):
    pair.server.always = spoilt(value)
    matrix = pair.embedder().embed(["one", "two"], role="document")
    assert all(math.isfinite(value) for row in rows(matrix) for value in row)
    assert [math.hypot(*row) for row in rows(matrix)] == pytest.approx([1.0, 1.0], abs=1e-5)
    pair.server.always = spoilt(value, all_of_it=True)
    (gap,) = pair.embedder().embed(["one", "two"], role="document").gaps
    assert "without direction" in gap.reason


@pytest.mark.parametrize("value", ["0.1", True, [1.0], {}])
def test_a_vector_of_something_else_than_numbers_is_refused(pair, value):
    pair.server.always = spoilt(value)
    assert "not a number" in pair.failure().message


def test_wrong_dimensions_are_refused_with_the_setting_to_change(pair):
    pair.server.dims = 12
    error = pair.failure()
    assert "gave a vector of 12 dimensions" in error.message
    assert "set memory_search.dimensions to 12 and run 'kept index'" in error.message


def test_one_answer_has_vectors_of_one_size(openai):
    def two_sizes(handler, request):
        openai.server.dims = 8
        answer = openai.server.answer(request)
        answer.body["data"][1]["embedding"].append(1.0)
        handler.reply(answer)

    openai.server.always = two_sizes
    error = openai.failure(openai.embedder(model="my-own"))
    assert "gave vectors of 9 and of 8 dimensions" in error.message


# what concerns the texts


def test_a_request_that_is_too_large_is_split_until_it_is_not(pair):
    pair.server.most_chars = 300
    texts = [f"number {number} of many" for number in range(60)]
    if pair.name == "gemini":
        # its server measures each text by itself, so here it is the call that is too large
        pair.server.most_chars = None
        pair.server.faults.append(servers.says(413, {"error": {"message": "Request payload size exceeds the limit"}}))
    matrix = pair.embedder().embed(texts, role="document")
    assert matrix.gaps == ()
    assert len(matrix) == 60
    assert len(pair.server.requests) > 2
    assert pair.fake.slept == []


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "This model's maximum context length is 8192 tokens, however you requested 9000 tokens"),
        (400, "Requested 309209 tokens, max 300000 tokens per request"),
        (400, "The max allowed tokens per submitted batch is 120000. Please lower the number of tokens in the batch."),
        (400, "the input length exceeds the context length"),
        (500, "input is too large to process. increase the physical batch size"),
        (413, "Payload Too Large"),
        (413, ""),
    ],
)
def test_providers_have_many_words_for_too_large(openai, status, message):
    openai.server.faults.append(servers.says(status, {"error": {"message": message}}))
    assert openai.embedder().embed(["one", "two"], role="document").gaps == ()
    sent = [request.body["input"] for request in openai.server.requests]
    assert sent == [["one", "two"], ["hello"], ["one"], ["two"]]


def test_a_single_text_that_is_too_long_is_represented_by_its_beginning(openai):
    openai.server.most_chars = 300
    matrix = openai.embedder().embed(["staging moved to port 5433. " + "filler " * 150], role="document")
    assert matrix.gaps == ()
    assert openai.server.texts()[-1].startswith("staging moved to port 5433.")
    assert len(openai.server.texts()[-1]) <= 300


def test_one_bad_text_does_not_sink_its_batch(pair):
    pair.server.refuses = lambda text: "poison" in text
    texts = [f"number {number}" for number in range(50)]
    texts[17] = "this is poison"
    matrix = pair.embedder().embed(texts, role="document")
    assert [at for at, row in enumerate(rows(matrix)) if not any(row)] == [17]
    (gap,) = matrix.gaps
    assert (gap.row, gap.temporary) == (17, False)
    assert "this text is not welcome" in gap.reason
    assert len(pair.server.requests) <= 14


def test_a_provider_that_takes_no_text_at_all_has_failed(pair):
    pair.server.refuses = lambda text: True
    error = pair.failure(texts=tuple(f"text {number}" for number in range(500)))
    assert "not welcome" in error.message
    assert len(pair.server.requests) <= 8


def test_what_was_used_is_counted_as_the_provider_counts_it(pair):
    embedder = pair.embedder()
    pair.server.faults.append(servers.says(503))
    embedder.embed(["one", "two"], role="document")
    usage = embedder.usage
    assert (usage.calls, usage.retries, usage.texts) == (2, 1, 2)
    expected = {"openai": 8, "voyage": 8}
    assert usage.tokens == expected.get(pair.name, sum(token_bound(sent(pair, text)) for text in ("one", "two")))


# batches


def test_batches_hold_every_text_once_in_order_and_a_giant_travels_alone():
    items = [(at, "x" * size) for at, size in enumerate([3, 30_000, 3, 3, 23_990, 9_000])]
    batches = list(iter_batches(items, lambda item: token_bound(item[1]), max_texts=2, max_weight=MAX_BATCH_TOKENS))
    assert [item for batch in batches for item in batch] == items
    assert [[row for row, _ in batch] for batch in batches] == [[0], [1], [2, 3], [4], [5]]
    assert list(iter_batches([], len, max_texts=1, max_weight=1)) == []
