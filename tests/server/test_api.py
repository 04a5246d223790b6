"""The HTTP API as programs in other languages see it."""

import httpx
import pytest
from starlette.testclient import TestClient

from kept import Memory, SessionStore, Toolbox
from kept.base.listings import FileSummary
from kept.base.records import SearchResult
from kept.client.server_connection import API
from kept.server.api import OPERATIONS, describe_api, make_api


@pytest.fixture
def api(server, tokens):
    with server.client(tokens["writer"]) as client:
        yield client


def ask(api: httpx.Client, operation: str, **arguments) -> httpx.Response:
    return api.post(f"{API}{operation}", json=arguments)


def test_a_search_answers_with_the_fields_of_its_result(api):
    result = ask(api, "search", query="which port is staging on?", max_results=1, min_score=0).json()["result"]
    (hit,) = result["hits"]
    assert (hit["path"], hit["start_line"], "5433" in hit["snippet"]) == ("MEMORY.md", 1, True)
    assert {*hit} <= {*FileSummary.__dataclass_fields__, *SearchResult.__dataclass_fields__, *_fields("Hit")}


def _fields(name: str) -> dict:
    return describe_api()["components"]["schemas"][name]["properties"]


@pytest.mark.parametrize(
    ("operation", "body", "problem"),
    [
        ("search", {"query": 5}, "'query' has to be of the type string"),
        ("search", {"tags": "one"}, "'tags' has to be a list of strings"),
        ("search", {"words": "x"}, "'words' is not an argument"),
        ("search", {"max_results": 10_000}, "max_results"),
        ("search", [], "object with the arguments"),
        ("add", {}, "argument 'text' is missing"),
        ("add", {"text": "x", "change_id": "x"}, "16 hexadecimal digits"),
        ("add", {"text": "x", "moment": "yesterday"}, "'moment' has to be of the type"),
        ("read", {"path": "../../etc/passwd"}, "is not allowed"),
    ],
)
def test_a_wrong_call_gets_one_line_that_says_what_to_do(api, operation, body, problem):
    answer = api.post(f"{API}{operation}", json=body)
    assert 400 <= answer.status_code < 500
    error = answer.json()["error"]
    assert problem in f"{error['message']} {error['hint']}"


@pytest.mark.parametrize(
    "draft", [{"id": "../x", "lines": ["{}"]}, {"id": "x", "lines": []}, {"id": "x", "lines": ["{}"]}]
)
def test_a_session_that_is_none_is_refused_and_writes_nothing(api, place, draft):
    before = {*place.rglob("*.jsonl")}
    draft |= {"created": "2026-01-01T00:00:00+00:00", "source": "a.jsonl"}
    answer = ask(api, "sessions/import_draft", draft=draft)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "entry_refused")
    assert {*place.rglob("*.jsonl")} == before


def test_an_unexpected_error_is_an_answer_like_any_other(tmp_path, monkeypatch):
    with (
        Memory.open(tmp_path / "notes", home=tmp_path / "home", create=True) as memory,
        SessionStore(memory.config) as sessions,
    ):
        monkeypatch.setattr(Memory, "status", lambda memory: 1 / 0)
        answer = TestClient(make_api(Toolbox(memory, sessions))).post(f"{API}status", json={})
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")


def test_paths_methods_and_bodies_that_there_are_not(api):
    assert api.post(f"{API}nothing", json={}).status_code == 404
    assert api.get(f"{API}search").status_code == 405
    assert api.post(f"{API}search", content=b"{", headers={"Content-Type": "application/json"}).status_code == 400
    assert api.post(f"{API}add", json={"text": "x" * 17_000_000}).status_code in (400, 413)


def test_openapi_describes_every_route_and_every_class_that_it_names(api):
    tree = api.get(f"{API}openapi.json").json()
    assert {*tree["paths"]} == {API + path for path in OPERATIONS}
    assert all(path["post"]["summary"].endswith(".") for path in tree["paths"].values())
    schemas = tree["components"]["schemas"]
    named = {ref.rpartition("/")[2] for ref in _refs(tree)}
    assert named == {*schemas}
    assert schemas["Hit"]["properties"]["further"]["items"] == {"$ref": "#/components/schemas/Hit"}
    assert schemas["Hit"]["properties"]["timestamp"] == {"type": "string", "format": "date-time"}


def _refs(tree):
    if isinstance(tree, dict):
        yield from ([tree["$ref"]] if "$ref" in tree else [])
        for value in tree.values():
            yield from _refs(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _refs(value)
