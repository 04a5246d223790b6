"""A gateway that is killed again and again, at any moment, loses no message and sends no reply twice."""

import random
import re
import threading
from collections import Counter
from pathlib import Path

import httpx
import pytest

from kept import SessionStore
from kept.base.clock import SystemClock
from kept.gateway.inbox import Inbox, message_status
from kept.storage.files.file_storage import FileStorage
from tests.support.gateway_processes import ForkedProcess, Process
from tests.support.telegram_server import TOKEN, BotApi

pytestmark = pytest.mark.kills

ROUNDS = 50
_MARK = re.compile(r"<<(.*?)>>")


class Client:
    """Posts messages, and posts again what was not accepted for certain."""

    def __init__(self) -> None:
        self.texts: dict[str, tuple[str, str]] = {}
        self.accepted: set[str] = set()

    def post_all(self, url: str) -> None:
        with httpx.Client(base_url=url, timeout=30) as http:
            for message_id, (user, text) in list(self.texts.items()):
                if message_id in self.accepted:
                    continue
                try:
                    body = {"user": user, "text": text, "id": message_id, "wait": False}
                    answer = http.post("/v1/messages", json=body)
                except httpx.TransportError:
                    return
                assert answer.status_code in (202, 503), answer.text
                if answer.status_code == 202:
                    self.accepted.add(message_id)


def settings(api: BotApi) -> list[str]:
    return [
        "gateway.http.port=0", "gateway.auto_responder.debounce_ms=5", "gateway.auto_responder.max_queued=1000",
        f"gateway.telegram.base_url={api.url}", f"gateway.telegram.token={TOKEN}",
        "gateway.telegram.allow_users=7,8", "memory_search.provider=none", "memory_search.sources=memory",
    ]  # fmt: skip


def test_fifty_kills_lose_no_message_and_repeat_no_reply(tmp_path: Path):
    (tmp_path / "workspace").mkdir()
    chance = random.Random(6)
    client = Client()
    written: list[str] = []
    hit = Counter()
    with BotApi() as api:
        for number in range(ROUNDS):
            for at in range(3):
                mark = f"h{number}-{at}"
                client.texts[mark] = (f"user{at % 2}", f"Hello <<{mark}>>")
            gateway = ForkedProcess(tmp_path, *settings(api))
            url = gateway.url()
            killer = threading.Timer(chance.uniform(0.0, 0.4), gateway.process.kill)
            killer.start()
            client.post_all(url)
            for at in range(2):
                written.append(f"t{number}-{at}")
                api.write(f"Hi <<{written[-1]}>>", user=7 + at)
            killer.join()
            gateway.kill()
            assert not [line for line in gateway.lines if "Traceback" in line], gateway.lines
            hit.update(was_doing(tmp_path))
        last = Process(tmp_path, *settings(api))
        client.post_all(last.url())
        finish(tmp_path, api, written)
        assert last.stop() == 0
        assert last.lines[-1] == "Stopped."
        assert client.accepted == set(client.texts)
        check_http(tmp_path, client)
        check_telegram(tmp_path, api, written)
    check_transcripts(tmp_path, [*client.texts, *written])
    assert hit["answering"] >= 10, hit
    assert hit["delivering"] >= 1, hit


def open_inbox(tmp_path: Path) -> Inbox:
    return Inbox(FileStorage(str(tmp_path / "home/agents/main")), clock=SystemClock())


def was_doing(tmp_path: Path) -> set[str]:
    """What the kill came in the middle of."""
    doing: set[str] = set()
    inbox = open_inbox(tmp_path)
    for run in inbox.unfinished():
        doing.add("answering" if run.parts is None else "delivering")
    return doing | ({"waiting"} if inbox.waiting() else set())


def finish(tmp_path: Path, api: BotApi, written: list[str]) -> None:
    """Waits until Telegram has nothing left to give and the inbox nothing left to do."""
    pause = threading.Event()
    for _ in range(1200):
        inbox = open_inbox(tmp_path)
        came = sum(message.channel == "telegram" for message in inbox.messages())
        if came == len(written) and not inbox.waiting() and not inbox.unfinished():
            return
        pause.wait(0.05)
    raise AssertionError("not finished")


def check_http(tmp_path: Path, client: Client) -> None:
    inbox = open_inbox(tmp_path)
    for mark in client.texts:
        run = inbox.find_run(inbox.find("http", mark))
        assert message_status(run) == "answered", run
        assert f"<<{mark}>>" in run.reply


def check_telegram(tmp_path: Path, api: BotApi, written: list[str]) -> None:
    inbox = open_inbox(tmp_path)
    sent = Counter(mark for one in api.sent for mark in _MARK.findall(one["text"]))
    assert not [mark for mark, times in sent.items() if times > 1]
    unsure = {mark for run in inbox.unconfirmed_runs() for mark in _MARK.findall(run.reply or "")}
    assert set(written) - set(sent) <= unsure, "whatever did not arrive is known"
    for message in inbox.messages():
        assert message_status(inbox.find_run(message)) == "answered"


def check_transcripts(tmp_path: Path, marks: list[str]) -> None:
    """Everything was said once and answered once."""
    asked: Counter[str] = Counter()
    answered: Counter[str] = Counter()
    with SessionStore.open(home=tmp_path / "home") as sessions:
        for record in sessions.recent():
            loaded = sessions.load(record.id)
            assert not loaded.damage
            for message in loaded.messages:
                counted = asked if message.role == "user" else answered
                counted.update(_MARK.findall(message.text))
    assert asked == Counter(marks)
    assert answered == Counter(marks)
