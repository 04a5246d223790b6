"""Pictures and documents of messages: stored, handed to models that take them, and forgotten with the message."""

import asyncio
import base64
import hashlib
import os
import time

import pytest

from kept import SessionStore
from kept.cli.archive.archive_file import is_agent_record
from kept.config import load_config
from kept.models.base import DOCUMENTS, PICTURES, FilePart
from kept.models.registry import make_model
from kept.server.doctor import examine
from kept.testing import ScriptedChat
from tests.support.chat_server import ModelServer, Says
from tests.support.responders import asked
from tests.support.telegram_bot import bot
from tests.support.telegram_server import BotApi
from tests.support.waiting import wait_until_async
from tests.support.workspaces import open_memory

JPEG = b"\xff\xd8\xff\xe0 a picture of a cat"
PDF = b"%PDF-1.7 a report"
PHOTO = [{"file_id": "cat", "file_unique_id": "u", "width": 800, "height": 600, "file_size": len(JPEG)}]
REPORT = {"file_id": "report", "file_unique_id": "v", "file_name": "report.pdf", "mime_type": "application/pdf"}
DIGEST = hashlib.sha256(JPEG).hexdigest()


@pytest.fixture
def api():
    with BotApi() as server:
        server.files = {"cat": JPEG, "report": PDF}
        yield server


class SeeingChat(ScriptedChat):
    media = PICTURES | DOCUMENTS


def files_of(request) -> list[FilePart]:
    return [part for turn in request.turns for part in turn.parts if isinstance(part, FilePart)]


def send(tmp_path, api, model, *messages, **settings):
    async def scenario():
        async with bot(tmp_path, api, model, **settings) as at:
            for number, fields in enumerate(messages, 1):
                api.write(fields.pop("text", None), user=7, **fields)
                await wait_until_async(lambda number=number: len(api.sent) == number)
            await wait_until_async(lambda: not at.inbox.unfinished())
        await model.close()

    asyncio.run(scenario())


def stored(tmp_path) -> list[str]:
    folder = tmp_path / "home/agents/main/attachments"
    return sorted(os.listdir(folder)) if folder.exists() else []


def test_files_are_stored_and_handed_to_a_model_that_takes_them(tmp_path, api):
    model = SeeingChat(lambda request: "I see.")
    send(tmp_path, api, model, {"caption": "My cat", "photo": PHOTO}, {"document": REPORT}, {"text": "And?"})
    assert stored(tmp_path) == sorted([f"{DIGEST}.jpg", f"{hashlib.sha256(PDF).hexdigest()}.pdf"])
    assert files_of(model.requests[0]) == [FilePart("image/jpeg", JPEG)]
    assert asked(model.requests[0]).endswith("My cat\n\n(picture, 23 B)")
    assert files_of(model.requests[2]) == [FilePart("image/jpeg", JPEG), FilePart("application/pdf", PDF, "report.pdf")]
    memory = open_memory(tmp_path)
    sessions = SessionStore(memory.config)
    block = sessions.load(sessions.find("telegram", "7").id).messages[0].content[1]
    assert (block.path, block.sha256, block.size) == (f"attachments/{DIGEST}.jpg", DIGEST, len(JPEG))
    sessions.close()
    memory.close()


def test_a_model_that_takes_no_files_is_told_their_names(tmp_path, api):
    model = ScriptedChat(lambda request: "I see.")
    send(tmp_path, api, model, {"photo": PHOTO})
    assert files_of(model.requests[0]) == []
    assert asked(model.requests[0]).endswith("(picture, 23 B)")


def test_a_file_that_is_too_large_or_gone_is_only_named(tmp_path, api, monkeypatch):
    monkeypatch.setattr("kept.gateway.channels.chat_intake.MAX_ATTACHMENT_BYTES", 5)
    model = SeeingChat(lambda request: "I see.")
    del api.files["report"]
    send(tmp_path, api, model, {"photo": PHOTO}, {"document": REPORT})
    assert stored(tmp_path) == []
    assert [files_of(request) for request in model.requests] == [[], []]


def test_a_file_that_somebody_changed_is_not_handed_on_and_doctor_says_so(tmp_path, api):
    model = SeeingChat(lambda request: "I see.")
    send(tmp_path, api, model, {"photo": PHOTO})
    path = tmp_path / "home/agents/main/attachments" / f"{DIGEST}.jpg"

    def attachment_checks() -> list[str]:
        memory = open_memory(tmp_path)
        try:
            return [check.detail for check in examine(memory) if check.name == "attachments"]
        finally:
            memory.close()

    assert attachment_checks() == ["1 files that came with messages, all intact"]
    path.write_bytes(b"something else")
    assert "was changed" in attachment_checks()[0]
    send(tmp_path, api, model, {"text": "And?"}, {"text": "And?"})
    assert files_of(model.requests[-1]) == []
    path.unlink()
    assert attachment_checks() == ["1 files that messages mention are missing."]


def test_a_file_is_forgotten_with_its_message_and_others_stay(tmp_path, api):
    model = SeeingChat(lambda request: "I see.")
    send(tmp_path, api, model, {"caption": "xylograph", "photo": PHOTO}, {"caption": "garden", "document": REPORT})
    for name in stored(tmp_path):
        old = time.time() - 3_600
        os.utime(tmp_path / "home/agents/main/attachments" / name, (old, old))
    memory = open_memory(tmp_path)
    memory.forgetting.apply(memory.forgetting.plan("xylograph"))
    memory.close()
    assert stored(tmp_path) == [f"{hashlib.sha256(PDF).hexdigest()}.pdf"]


def test_files_are_part_of_an_archive():
    assert is_agent_record(f"attachments/{DIGEST}.jpg")
    assert not is_agent_record("attachments/evil.sh")
    assert not is_agent_record(f"attachments/a/{DIGEST}.jpg")


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
@pytest.mark.parametrize("media", ["image,pdf", None])
def test_providers_get_files_in_their_format(tmp_path, api, provider, media):
    with ModelServer() as server:
        server.otherwise = Says("I see.")
        url = server.anthropic_url if provider == "anthropic" else server.openai_url
        given = {"provider": provider, "base_url": url, "name": "m", "api_key": "sk-test-01234567", "media": media}
        settings = {f"model.{name}": value for name, value in given.items() if value is not None}
        config = load_config(settings=settings).config
        model = make_model(config.agent.model, config.keys)
        send(tmp_path, api, model, {"photo": PHOTO}, {"document": REPORT})
        content = server.chats[-1].body["messages"]
    picture, document = base64.b64encode(JPEG).decode(), base64.b64encode(PDF).decode()
    sent = [part for message in content if isinstance(message["content"], list) for part in message["content"]]
    sent = [part for part in sent if part["type"] != "text"]
    for part in sent:
        part.pop("cache_control", None)
    expected = {
        "anthropic": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": picture}},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": document}},
        ],
        "openai": [
            {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{picture}"}},
            {
                "type": "file",
                "file": {"filename": "report.pdf", "file_data": f"data:application/pdf;base64,{document}"},
            },
        ],
    }
    assert [part for part in sent if part["type"] != "system"] == (expected[provider] if media else [])
