"""Calls over HTTP: what is tried again, what is not, and what is said about it."""

import io
import socket
from collections.abc import Iterator

import pytest

from kept.base.net import HttpClient, Timeouts, parse_endpoint
from kept.base.remote_errors import BadAnswer, EndpointDown, Overloaded, QuotaExhausted, RemoteError, RequestRefused
from kept.errors import ConfigError
from tests.support import embedding_servers as servers
from tests.support.fake_time import FakePace

LATER = Timeouts(attempt_s=5.0, total_s=100.0)
BODY = {"model": "m", "input": ["hello"], "encoding_format": "float"}


@pytest.fixture
def server() -> Iterator[servers.OpenAI]:
    with servers.OpenAI() as server:
        yield server


@pytest.fixture
def client(server: servers.OpenAI, fake: FakePace) -> HttpClient:
    return client_of(server.base_url, fake)


def client_of(base_url: str, fake: FakePace) -> HttpClient:
    headers = {"Authorization": f"Bearer {servers.KEY}"}
    return HttpClient(base_url, headers=headers, policy=fake.pace(), down={})


def ask(client: HttpClient, timeouts: Timeouts = LATER) -> object:
    return client.post_json("/embeddings", BODY, timeouts=timeouts)


def failure(client: HttpClient, timeouts: Timeouts = LATER) -> RemoteError:
    with pytest.raises(RemoteError) as caught:
        ask(client, timeouts)
    assert servers.KEY not in str(caught.value)
    assert "\n" not in caught.value.message
    return caught.value


def dead_address() -> str:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{unused.getsockname()[1]}"


def test_being_turned_away_for_the_moment_is_followed_by_longer_and_longer_pauses(server, client, fake):
    server.faults.extend([servers.says(429), servers.says(503)])
    ask(client)
    assert fake.slept == [0.5, 1.0]
    assert (client.calls, client.retries) == (3, 2)


def test_the_service_says_how_long_to_wait_and_at_most_a_minute_of_it_is_granted(server, client, fake):
    server.faults.extend([servers.says(429, retry_after="3"), servers.says(429, retry_after="86400")])
    ask(client)
    assert fake.slept == [3.0, 60.0]


@pytest.mark.parametrize("header", ["soon", "-5", "nan", "Fri, 99 Foo 2020", "1e999"])
def test_a_senseless_retry_after_does_no_harm(server, client, fake, header):
    server.faults.append(servers.says(429, retry_after=header))
    ask(client)
    assert 0.0 <= fake.slept[0] <= 60.0


def test_googles_way_of_asking_for_a_pause_is_understood(server, client, fake):
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "4s"}]
    server.faults.append(servers.says(429, {"error": {"code": 429, "message": "slow down", "details": details}}))
    ask(client)
    assert fake.slept == [4.0]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422])
def test_what_is_wrong_with_the_request_is_not_tried_again(server, client, fake, status):
    server.always = servers.says(status, {"error": {"message": "no"}})
    assert isinstance(failure(client), RequestRefused)
    assert (len(server.requests), fake.slept) == (1, [])


def test_a_quota_that_is_used_up_is_not_tried_again(server, client, fake):
    spent = {"message": "You exceeded your current quota", "type": "insufficient_quota", "code": "insufficient_quota"}
    server.always = servers.says(429, {"error": spent}, retry_after="1")
    assert isinstance(failure(client), QuotaExhausted)
    daily = [{"violations": [{"quotaId": "EmbedContentRequestsPerDayPerProjectPerModel-FreeTier"}]}]
    server.always = servers.says(429, {"error": {"message": "exceeded", "details": daily}})
    assert isinstance(failure(client), QuotaExhausted)
    assert (len(server.requests), fake.slept) == (2, [])


def test_a_redirect_is_not_followed_because_the_key_would_go_along(server, client):
    with servers.OpenAI() as elsewhere:
        server.always = servers.says(307, location=f"{elsewhere.base_url}/embeddings")
        assert "307" in failure(client).message
        assert elsewhere.requests == []


def test_a_query_is_not_waited_for_longer_than_it_may_take_in_all(server, client, fake):
    server.always = servers.says(429, retry_after="50")
    assert isinstance(failure(client, Timeouts(attempt_s=60.0, total_s=60.0)), Overloaded)
    assert fake.slept == [50.0]


def test_a_pause_that_ends_after_the_deadline_is_the_last(server, fake):
    class SlowToWake(FakePace):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds + 30.0)

    server.always = servers.says(429, retry_after="50")
    client = client_of(server.base_url, SlowToWake())
    assert isinstance(failure(client, Timeouts(attempt_s=60.0, total_s=60.0)), Overloaded)
    assert client.calls == 1


def test_a_dead_endpoint_costs_one_wait_and_is_asked_again_after_a_minute(fake):
    address = dead_address()
    client = client_of(address, fake)
    first = failure(client)
    assert isinstance(first, EndpointDown)
    assert first.message.startswith(f"{address} cannot be reached after 3 tries")
    waited = list(fake.slept)
    second = failure(client)
    assert second.message.startswith(first.message)
    assert "not called again for 60 s" in second.message
    assert (client.calls, fake.slept) == (3, waited)
    fake.now_s += 60
    failure(client)
    assert client.calls == 6


def test_an_endpoint_that_is_down_is_down_for_all_clients_of_the_process_and_no_other_endpoint_is(server, fake):
    down = {}
    address = dead_address()
    for expected in (3, 0):
        client = HttpClient(address, policy=fake.pace(), down=down)
        failure(client)
        assert client.calls == expected
    ask(HttpClient(server.base_url, headers={"authorization": f"Bearer {servers.KEY}"}, down=down))


def test_what_must_not_be_done_twice_is_tried_once_and_does_not_declare_the_endpoint_dead(server, client, fake):
    server.faults.append(servers.breaks_off)
    with pytest.raises(EndpointDown):
        client.post_json("/embeddings", BODY, timeouts=LATER, attempts=1)
    assert (client.calls, fake.slept) == (1, [])
    ask(client)


def test_a_download_that_broke_off_begins_again_from_the_start(server, client):
    server.faults.extend([half_of(b"abcdefgh"), servers.says(200, b"abcdefgh")])
    sink = io.BytesIO(b"something longer from before")
    client.download("/files/x", sink, query="alt=media", timeouts=LATER, max_bytes=100)
    assert sink.getvalue() == b"abcdefgh"
    assert [request.path for request in server.requests] == ["/v1/files/x?alt=media"] * 2
    assert "content-type" not in server.requests[0].headers


def half_of(body: bytes) -> servers.Fault:
    def fault(handler: servers.Handler, request: servers.Request) -> None:
        handler.send_response(200)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[: len(body) // 2])
        handler.wfile.flush()
        handler.break_off()

    return fault


def test_a_download_is_not_longer_than_it_may_be(server, client):
    server.always = servers.says(200, b"x" * 1000)
    with pytest.raises(BadAnswer, match="more than 100 bytes"):
        client.download("/files/x", io.BytesIO(), timeouts=LATER, max_bytes=100)


@pytest.mark.parametrize("address", ["http://files.example/x", "ftp://files.example/x", "/elsewhere", "", "https://"])
def test_a_download_follows_only_to_a_safe_place(server, client, address):
    server.always = servers.says(302, location=address)
    with pytest.raises(RequestRefused, match="302"):
        client.download("/files/x", io.BytesIO(), timeouts=LATER, max_bytes=100)


def test_a_download_is_not_sent_from_place_to_place(server, client):
    server.always = servers.says(302, location=f"{server.origin}/round/and/round?signature=abc")
    with pytest.raises(BadAnswer, match="redirects a file download a second time"):
        client.download("/files/x", io.BytesIO(), timeouts=LATER, max_bytes=100)
    there = server.requests[1]
    assert (there.path, "authorization" in there.headers) == ("/round/and/round?signature=abc", False)


def test_an_answer_that_does_not_end_is_not_read_to_the_end(server, fake, monkeypatch):
    monkeypatch.setattr("kept.base.net.client.MAX_ANSWER_BYTES", 1_000)
    server.always = servers.says(200, b" " * 10_000)
    assert "more than 1,000 bytes" in failure(client_of(server.base_url, fake)).message
    server.always = servers.says(400, b"x" * 1_000_000)
    assert len(failure(client_of(server.base_url, fake)).message) < 400


def test_connections_are_used_again(server, client):
    for _ in range(5):
        ask(client)
    client.close()
    ask(client)
    client.close()


@pytest.mark.parametrize(
    "address", ["", "localhost:11434", "ftp://host", "http://", "http://[::1", "http://a:b:c", "x"]
)
def test_what_is_no_address_is_refused_without_repeating_it(address):
    with pytest.raises(ConfigError, match=r"base_url: not an address\."):
        parse_endpoint(address)


def test_a_name_and_a_password_in_an_address_are_refused_without_repeating_them():
    with pytest.raises(ConfigError, match="do not belong into an address") as caught:
        parse_endpoint("https://ada:hunter22@example.com/v1")
    assert "hunter22" not in str(caught.value)


def test_a_key_in_the_query_of_an_address_is_sent_and_never_shown(server, fake, caplog):
    caplog.set_level("DEBUG")
    server.key = None
    client = HttpClient(f"{server.origin}/v1/?token=opensesame", policy=fake.pace(), down={})
    server.always = servers.says(500, {"error": "no opensesame"})
    message = failure(client).message
    assert server.requests[0].path == "/v1/embeddings?token=opensesame"
    assert "no [redacted]" in message
    assert "opensesame" not in message + caplog.text + client.endpoint.public_url


def test_a_key_that_is_cut_off_by_shortening_does_not_show_its_first_half(server, client):
    server.always = servers.says(400, {"error": "x" * 190 + servers.KEY})
    assert "sk-test" not in failure(client).message


@pytest.mark.parametrize("headers", [{"x y": "1"}, {"x": "a\nb"}, {"x": "\u0e01"}, {"": "1"}])
def test_a_header_that_cannot_be_sent_is_refused_at_once(headers):
    with pytest.raises(ConfigError, match="cannot be sent as a header"):
        HttpClient("http://localhost", headers=headers)
