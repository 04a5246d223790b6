"""What models used, by day and purpose; and the budget that stops them."""

import asyncio
import datetime as dt
import json
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict

import pytest

from kept.base.remote_errors import BudgetExhausted, ModelFailed, ModelUnavailable
from kept.base.reports import ModelSpending
from kept.config import load_config
from kept.gateway.app import open_model
from kept.models.base import Finished, ModelUsage
from kept.models.ledger import Ledger, MeteredChat
from kept.storage.files.file_storage import FileStorage
from kept.testing import FrozenClock, ScriptedChat, Stall
from tests.support.chat_requests import ask, request, text_of
from tests.support.chat_server import Says
from tests.support.commands import run_python
from tests.support.files import write_file
from tests.support.repository import ROOT


def answer(used: int):
    return ["Fine.", Finished("end", ModelUsage(used - 5, 5, 2))]


@pytest.fixture
def clock():
    return FrozenClock(dt.datetime(2026, 3, 14, 12).astimezone())


@pytest.fixture
def ledger(home, clock):
    return Ledger(FileStorage(str(home / "agents/main")), "models.jsonl", clock, ModelSpending)


def test_calls_are_counted_by_day_purpose_and_model(ledger, clock):
    model = MeteredChat(ScriptedChat(lambda asked: answer(100)), ledger)
    ask(model, "One")
    ask(model, "Two")
    ask(model, request("Three", purpose="flush"))
    clock.move(days=1)
    ask(model, "Four")
    assert [
        (entry.day, entry.purpose, entry.calls, entry.input, entry.output, entry.cached) for entry in ledger.by_day()
    ] == [
        ("2026-03-14", "flush", 1, 95, 5, 2),
        ("2026-03-14", "reply", 2, 190, 10, 4),
        ("2026-03-15", "reply", 1, 95, 5, 2),
    ]


def test_the_budget_stops_what_nobody_waits_for_first_and_says_so(ledger):
    inner = ScriptedChat(lambda asked: answer(400))
    model = MeteredChat(inner, ledger, budget_tokens=1_000)
    ask(model, request("One", purpose="flush"))
    ask(model, "Two")
    for purpose in ("flush", "summary"):
        with pytest.raises(BudgetExhausted, match="kept for replies"):
            ask(model, request("Three", purpose=purpose))
    ask(model, "Four")
    with pytest.raises(BudgetExhausted, match="Nothing was sent"):
        ask(model, "Five")
    assert len(inner.requests) == 3


ASKING = """
import sys
from kept.gateway.app import open_model
from kept.config import load_config
from kept.base.remote_errors import BudgetExhausted
from tests.support.chat_requests import ask, text_of
settings = {"model.provider": "openai", "model.name": "m", "model.base_url": sys.argv[1],
            "model.daily_budget_tokens": 100}
try:
    print(text_of(ask(open_model(load_config(settings=settings)), "x" * 200)))
except BudgetExhausted as exc:
    print(exc.code)
"""


def test_processes_share_one_budget_while_a_call_is_still_being_answered(server, environment):
    """What one has asked and not yet heard counts for the others: they are refused before it is answered."""
    others_have_ended = threading.Event()

    def answer_late(asked):
        assert others_have_ended.wait(60)
        return Says("Fine.", usage=(60, 5, 0))

    server.otherwise = answer_late

    def one(number):
        env = {**environment, "PYTHONPATH": str(ROOT)}
        return run_python(ASKING, server.openai_url, env=env, check=True).stdout.strip()

    with ThreadPoolExecutor(3) as pool:
        heard = []
        for done in as_completed([pool.submit(one, number) for number in range(3)]):
            heard.append(done.result())
            if len(heard) == 2:
                others_have_ended.set()
    assert heard == ["budget_exhausted", "budget_exhausted", "Fine."]
    assert len(server.chats) == 1


def test_a_failure_costs_nothing_and_what_broke_off_costs_what_was_read(ledger):
    model = MeteredChat(ScriptedChat([ModelFailed("No."), ["Half an answer", ModelFailed("No.")]]), ledger)
    with pytest.raises(ModelFailed):
        ask(model, "x" * 400)
    (line,) = ledger.by_day()
    assert (line.calls, line.input, line.output, line.failures) == (1, 0, 0, 1)
    with pytest.raises(ModelFailed):
        ask(model, "x" * 400)
    (line,) = ledger.by_day()
    assert (line.calls, line.failures) == (2, 2)
    assert line.input > 100
    assert line.output > 0


async def test_a_call_that_is_cancelled_is_settled(ledger):
    inner = ScriptedChat([["Half", Stall()]])
    model = MeteredChat(inner, ledger)

    heard = asyncio.Event()

    async def go():
        async for _ in model.stream(request("x" * 400)):
            heard.set()

    task = asyncio.create_task(go())
    await heard.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (line,) = ledger.by_day()
    assert (line.calls, line.failures, inner.broken_off) == (1, 1, 1)
    assert line.input > 100


def test_a_ledger_that_cannot_be_written_stops_no_reply(home, ledger, caplog):
    home.mkdir()
    (home / "agents").write_text("in the way")
    assert text_of(ask(MeteredChat(ScriptedChat(["Fine."]), ledger), "Hello?")) == "Fine."
    assert "could not be written" in caplog.text


def test_a_budget_is_kept_by_the_model_that_settings_describe(server):
    settings = {
        "model.provider": "anthropic",
        "model.base_url": server.anthropic_url,
        "model.name": "some-model",
        "model.daily_budget_tokens": 150,
    }
    server.otherwise = Says("Fine.", usage=(140, 10, 0))
    assert text_of(ask(open_model(load_config(settings=settings)), "Hello?")) == "Fine."
    with pytest.raises(BudgetExhausted):
        ask(open_model(load_config(settings=settings)), "Hello?")
    assert len(server.chats) == 1


def test_without_a_model_one_line_says_what_to_set():
    with pytest.raises(ModelUnavailable, match="No model is set up") as caught:
        open_model(load_config())
    assert all(word in caught.value.hint for word in ("model.provider", "claude_cli", "anthropic", "openai"))


@pytest.mark.parametrize(("provider", "variable"), [("anthropic", "ANTHROPIC_API_KEY"), ("openai", "OPENAI_API_KEY")])
def test_without_a_key_one_line_says_which(provider, variable, monkeypatch):
    with pytest.raises(ModelUnavailable, match="no API key") as caught:
        open_model(load_config(settings={"model.provider": provider}))
    assert variable in caught.value.hint
    monkeypatch.setenv(variable, "sk-test-0123456789")
    model = open_model(load_config(settings={"model.provider": provider}))
    assert model.provider == provider
    monkeypatch.setenv(variable, "sk-\u2028odd")
    with pytest.raises(ModelUnavailable, match="characters that no key has"):
        open_model(load_config(settings={"model.provider": provider}))


def test_a_compatible_endpoint_needs_a_models_name(server):
    settings = {"model.provider": "openai", "model.base_url": server.openai_url}
    with pytest.raises(ModelUnavailable, match="needs a model's name"):
        open_model(load_config(settings=settings))


def test_status_shows_what_a_day_cost_by_model_and_purpose(kept, home):
    prices = {"big": {"input": 3, "output": 15, "cached": 0.3}, "small": {"input": 1, "output": 2}}
    write_file(home / "config.yaml", json.dumps({"agents": {"defaults": {"model": {"prices": prices}}}}))
    ledger = home / "agents/main/models.jsonl"
    rows = [
        ModelSpending(
            "anthropic", "big", "reply", "2026-03-14", calls=2, input=1_000_000, output=10_000, cached=500_000
        ),
        ModelSpending("anthropic", "small", "flush", "2026-03-14", calls=1, input=100_000, output=0),
        ModelSpending("openai", "unpriced", "summary", "2026-03-14", calls=1, input=5, output=5),
    ]
    write_file(ledger, "".join(f"{json.dumps(asdict(row))}\n" for row in rows))
    costs = [row["costUsd"] for row in kept("status", "--json").json["models"]["ledger"]]
    assert costs == [1.8, 0.1, None]
