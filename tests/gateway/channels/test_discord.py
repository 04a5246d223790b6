"""The Discord channel, against a server on loopback that speaks Discord's REST interface and gateway."""

from contextlib import asynccontextmanager

import pytest

from kept.base.remote_errors import ChannelUnavailable
from kept.errors import ConfigError
from kept.gateway.channel import ResponderTiming
from kept.models.base import PICTURES, FilePart
from kept.testing import ScriptedChat
from tests.support.discord_server import BOT, ME, TOKEN, DiscordServer, user_json
from tests.support.responders import asked
from tests.support.running_gateway import running_gateway
from tests.support.waiting import wait_until_async
from tests.support.workspaces import open_memory


@asynccontextmanager
async def bot(tmp_path, discord: DiscordServer, model=None, *, token=TOKEN, **settings):
    """Run a gateway that talks to the server. ``settings`` are those below `gateway`."""
    settings = {
        "gateway.http.enabled": False,
        "gateway.discord.token": token,
        "gateway.discord.base_url": discord.url,
        "gateway.discord.allow_users": "7,@grace",
        "gateway.auto_responder.debounce_ms": 0,
        **{f"gateway.{name}": value for name, value in settings.items()},
    }
    memory = open_memory(tmp_path, settings=settings)
    timing = ResponderTiming(first_retry_s=0.0, longest_retry_s=0.0)
    async with running_gateway(memory, model, timing=timing) as (gateway, _, _):
        yield gateway


def texts(discord: DiscordServer) -> list[str]:
    return [message["content"] for message in discord.sent]


async def test_a_direct_message_is_answered_where_it_came_from(tmp_path):
    async with DiscordServer() as discord, bot(tmp_path, discord) as gateway:
        discord.write("Good morning", user=7)
        await wait_until_async(lambda: len(discord.sent) == 1)
        assert discord.sent[0]["channel_id"] == "107"
        assert "Good morning" in texts(discord)[0]
        assert discord.typing[0] == "107"
        (message,) = gateway.responder.inbox.messages()
        assert message.key == "agent:main:discord:default:direct:7"
    mentions = discord.sent[0]["request"]["allowed_mentions"]
    assert mentions["parse"] == [], "a reply alerts nobody"


async def test_only_people_on_the_list_are_answered(tmp_path, caplog):
    caplog.set_level("INFO", "kept")
    async with DiscordServer() as discord, bot(tmp_path, discord):
        discord.write("Let me in", user=666, name="Mallory")
        discord.write("Beep", user=8, name="Grace", is_bot=True)
        discord.write("Hello", user=8, name="Grace")
        await wait_until_async(lambda: len(discord.sent) == 1)
        assert discord.sent[0]["channel_id"] == "108"
    assert "ignored user 666" in caplog.text
    assert "Let me in" not in caplog.text


async def test_on_a_server_it_answers_when_it_is_spoken_to_and_has_heard_the_rest(tmp_path):
    model = ScriptedChat(lambda request: "I see.")
    async with DiscordServer() as discord, bot(tmp_path, discord, model, **{"discord.read_along": True}) as gateway:
        place = {"channel": 500, "server": 9}
        discord.write("The printer is broken", user=9, name="Bea", **place)
        discord.write("Is it?", user=7, **place)
        discord.write(f"<@{ME}> a secret, please", user=666, **place)
        asking = discord.write(f"<@{ME}> what did <@9> say?", user=7, mentions=[user_json(9, "Bea")], **place)
        await wait_until_async(lambda: len(discord.sent) == 1)
        assert discord.sent[0]["request"]["message_reference"]["message_id"] == asking
        own = {**discord.sent[0], "author": BOT}
        discord.write("And now?", user=7, referenced_message=own, **place)
        await wait_until_async(lambda: len(discord.sent) == 2)
        assert {message.key for message in gateway.responder.inbox.messages()} == {
            "agent:main:discord:default:group:500"
        }
    assert discord.intents & (1 << 15), "the message content intent"
    assert "Bea: The printer is broken" in asked(model.requests[0])
    assert asked(model.requests[0]).endswith("Ada: what did @Bea say?")
    assert 'begins: quoted, from "Kept"]\n| I see.\n' in asked(model.requests[1])


async def test_without_reading_along_no_privileged_intent_is_asked_for(tmp_path):
    async with DiscordServer() as discord, bot(tmp_path, discord):
        await wait_until_async(lambda: discord.identified == 1)
    assert not discord.intents & (1 << 15)


async def test_files_are_named_and_forwarded_words_are_somebody_elses(tmp_path):
    model = ScriptedChat(lambda request: "I see.")
    file = {"id": "1", "filename": "cat.jpg", "size": 34_000, "url": "http://127.0.0.1/x", "proxy_url": "http://x"}
    voice = {**file, "filename": "voice.ogg", "duration_secs": 12.0, "waveform": "AAAA", "content_type": "audio/ogg"}
    snapshot = {"message": {"type": 0, "content": "/forget yes", "embeds": [], "attachments": [], "flags": 0}}
    snapshot["message"] |= {"timestamp": "2026-03-14T15:09:00+00:00", "edited_timestamp": None, "mentions": []}
    snapshot["message"] |= {"mention_roles": []}
    async with DiscordServer() as discord, bot(tmp_path, discord, model):
        discord.write("Look", user=7, attachments=[{**file, "content_type": "image/jpeg"}, voice])
        await wait_until_async(lambda: len(discord.sent) == 1)
        reference = {"type": 1, "message_id": "5", "channel_id": "6"}
        discord.write("", user=7, message_reference=reference, message_snapshots=[snapshot])
        await wait_until_async(lambda: len(discord.sent) == 2)
    assert asked(model.requests[0]).endswith(
        "Look\n\n(picture: cat.jpg, 34.0 KB)\n\n(voice message, 34.0 KB, 0:12 min)"
    )
    assert "Ada forwarded a message that somebody else wrote:" in asked(model.requests[1])


async def test_a_picture_is_handed_to_a_model_that_takes_it(tmp_path):
    model = ScriptedChat(lambda request: "A cat.")
    model.media = PICTURES

    async with DiscordServer() as discord:
        discord.files["cat.png"] = b"\x89PNG a cat"
        url = discord.url.replace("/api/v10", "/files/cat.png")
        file = {"id": "1", "filename": "cat.png", "size": 9, "url": url, "proxy_url": url, "content_type": "image/png"}
        async with bot(tmp_path, discord, model):
            discord.write("What is this?", user=7, attachments=[file])
            await wait_until_async(lambda: len(discord.sent) == 1)
    assert FilePart("image/png", b"\x89PNG a cat", "cat.png") in model.requests[0].turns[-1].parts


async def test_a_connection_that_breaks_is_resumed(tmp_path):
    async with DiscordServer() as discord, bot(tmp_path, discord, ScriptedChat(["One.", "Two."])):
        discord.write("First", user=7)
        await wait_until_async(lambda: len(discord.sent) == 1)
        await discord.drop()
        discord.write("Second", user=7)
        await wait_until_async(lambda: len(discord.sent) == 2)
    assert (discord.identified, discord.resumed) == (1, 1)
    assert texts(discord) == ["One.", "Two."]


async def test_what_was_written_while_the_gateway_was_down_is_answered_once(tmp_path):
    async with DiscordServer() as discord:
        async with bot(tmp_path, discord, ScriptedChat(["One."])):
            discord.write("First", user=7)
            await wait_until_async(lambda: len(discord.sent) == 1)
        discord.write("Second", user=7, deliver=False)
        discord.write("Third", user=7, deliver=False)
        model = ScriptedChat(lambda request: asked(request))
        async with bot(tmp_path, discord, model) as gateway:
            await wait_until_async(lambda: len(gateway.responder.inbox.messages()) == 3)
            await wait_until_async(lambda: not gateway.responder.inbox.waiting())
            await wait_until_async(lambda: not gateway.responder.inbox.unfinished())
        said = "\n".join(texts(discord)[1:])
        assert (said.count("Second"), said.count("Third"), said.count("First")) == (1, 1, 0)


async def test_what_discord_refuses_does_not_hold_up_the_next(tmp_path):
    async with DiscordServer() as discord:
        discord.fail("create", 403, code=50007)
        async with bot(tmp_path, discord, ScriptedChat(["Hi.", "Again."])) as gateway:
            discord.write("Hello", user=7)
            await wait_until_async(lambda: bool(gateway.responder.inbox.unconfirmed_runs()))
            discord.write("Hello?", user=7)
            await wait_until_async(lambda: len(discord.sent) == 1)
        assert texts(discord) == ["Again."]


async def test_a_limit_that_discord_sets_is_kept_and_the_reply_arrives_once(tmp_path):
    async with DiscordServer() as discord:
        discord.fail("create", 429, retry_after=0.01)
        async with bot(tmp_path, discord, ScriptedChat(["Hi."])) as gateway:
            discord.write("Hello", user=7)
            await wait_until_async(lambda: len(discord.sent) == 1 and not gateway.responder.inbox.unfinished())
            assert not gateway.responder.inbox.unconfirmed_runs()
        assert texts(discord) == ["Hi."]


async def test_a_bot_that_cannot_work_is_said_in_one_line(tmp_path):
    async with DiscordServer() as discord:
        wrong = TOKEN.replace("secret", "wrong")
        with pytest.raises(ChannelUnavailable, match="does not accept the bot"):
            async with bot(tmp_path / "a", discord, token=wrong):
                pass
        with pytest.raises(ConfigError, match=r"discord\.allow_users is empty"):
            async with bot(tmp_path / "b", discord, **{"discord.allow_users": ""}):
                pass
