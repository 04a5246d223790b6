"""What a person sees of a reply in Telegram: formatting, and edits while it is written."""

from __future__ import annotations

import asyncio
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kept.channels.telegram_html import render_reply, visible_text
from kept.remote_errors import ModelRefused
from kept.testing import ScriptedChat, Stall
from tests.support.telegram_bot import bot
from tests.support.telegram_server import BotApi
from tests.support.waiting import wait_until_async


@pytest.fixture
def api():
    with BotApi() as server:
        yield server


def last_edit(api: BotApi) -> str:
    return api.edits[-1]["text"] if api.edits else ""


def test_markdown_is_rendered():
    rendered = render_reply(
        "# Plan *x*\n\nSome **bold** `a<b` [link](https://example.org/?a=1&b=2) <b>raw</b>\n\n"
        "- one\n  - two\n\n3. three\n\n> quoted\n\n```python\nx < 1\n```\n\n| a | bb |\n|---|---|\n| 1 | 2 |"
    )
    assert rendered == (
        "<b>Plan <i>x</i></b>\n\n"
        'Some <b>bold</b> <code>a&lt;b</code> <a href="https://example.org/?a=1&amp;b=2">link</a>'
        " &lt;b&gt;raw&lt;/b&gt;\n\n"
        "• one\n  • two\n\n3. three\n\n<blockquote>quoted</blockquote>\n\n"
        '<pre><code class="language-python">x &lt; 1</code></pre>\n\n<pre>| a | bb |\n|---|---|\n| 1 | 2 |</pre>'
    )


def test_what_has_no_formatting_is_sent_as_it_is():
    assert render_reply("2 < 3, a_b_c and <<this>>\n\nNext paragraph.") is None


def test_a_link_to_anything_but_a_page_is_text():
    assert render_reply("**x** [click](ftp://example.org)") == "<b>x</b> click"


MARKDOWN = st.lists(
    st.sampled_from(
        ["**", "*", "`", "```\n", "\n", "\n\n", "- ", "1. ", "> ", "[a](b)", "| a |\n|---|\n", "<i>", "&", "x", " word"]
    ),
    max_size=30,
).map("".join)


@given(MARKDOWN)
def test_any_reply_is_well_formed_html(markdown):
    rendered = render_reply(markdown)
    if rendered is not None:
        assert "<" not in re.sub(r"</?(?:b|i|s|code|pre|blockquote|a)(?: [^<>]*)?>", "", rendered)
        assert visible_text(rendered).strip()
        depth: list[str] = []
        for close, tag in re.findall(r"<(/?)(\w+)[^>]*>", rendered):
            if close:
                assert depth.pop() == tag
            else:
                depth.append(tag)
        assert not depth


async def test_a_reply_arrives_formatted_and_as_text_if_telegram_refuses_that(tmp_path, api):
    async with bot(tmp_path, api, ScriptedChat(["It is **5433**.", "It is **5434**."])):
        api.write("Which port?", user=7)
        await wait_until_async(lambda: len(api.sent) == 1)
        api.fail("sendMessage", 400)
        api.write("Sure?", user=7)
        await wait_until_async(lambda: len(api.sent) == 2)
    assert (api.sent[0]["text"], api.sent[0]["html"]) == ("It is 5433.", "It is <b>5433</b>.")
    assert (api.sent[1]["text"], "html" in api.sent[1]) == ("It is **5434**.", False)


async def test_a_long_reply_is_cut_without_breaking_its_code(tmp_path, api):
    reply = "```python\n" + "print('x' < 'y')\n" * 400 + "```"
    async with bot(tmp_path, api, ScriptedChat([reply])) as at:
        api.write("Write a lot", user=7)
        await wait_until_async(lambda: bool(api.sent) and not at.inbox.unfinished() and not at.inbox.waiting())
    assert len(api.sent) > 1
    assert all(message["html"].startswith("<pre>") and message["html"].endswith("</pre>") for message in api.sent)


async def test_a_reply_is_edited_while_it_is_written_and_ends_exact(tmp_path, api):
    gate, last = asyncio.Event(), asyncio.Event()
    model = ScriptedChat(lambda request: ["It is **54", Stall(gate), "33**", Stall(last), ". Bye."])
    async with bot(tmp_path, api, model, preview_after_s=0.0) as at:
        api.write("Which port?", user=7)
        await wait_until_async(lambda: last_edit(api) == "It is **54")
        gate.set()
        await wait_until_async(lambda: last_edit(api) == "It is 5433")
        last.set()
        await wait_until_async(lambda: bool(at.inbox.messages()) and not at.inbox.unfinished())
    assert [message["html"] for message in api.sent] == ["It is <b>5433</b>. Bye."]


async def test_a_preview_is_taken_up_by_the_next_process(tmp_path, api, monkeypatch):
    monkeypatch.setattr("kept.channels.gateway.SHUTDOWN_TIMEOUT_S", 0.0)
    stalled = ScriptedChat(lambda request: ["The answer", Stall()])
    async with bot(tmp_path, api, stalled, preview_after_s=0.0):
        api.write("Well?", user=7)
        await wait_until_async(lambda: last_edit(api) == "The answer")
    async with bot(tmp_path, api, ScriptedChat(["The answer is 42."]), preview_after_s=0.0) as at:
        await wait_until_async(lambda: bool(at.inbox.messages()) and not at.inbox.unfinished())
    assert [message["text"] for message in api.sent] == ["The answer is 42."]


async def test_the_rest_of_a_long_reply_follows_the_preview(tmp_path, api):
    reply = "\n\n".join(f"{number} " + "x" * 3_000 for number in range(3))
    gate = asyncio.Event()
    model = ScriptedChat(lambda request: [reply[:4_000], Stall(gate), reply[4_000:]])
    async with bot(tmp_path, api, model, preview_after_s=0.0) as at:
        api.write("Write a lot", user=7)
        await wait_until_async(lambda: bool(api.edits))
        gate.set()
        await wait_until_async(lambda: bool(at.inbox.messages()) and not at.inbox.unfinished())
    assert "\n\n".join(message["text"] for message in api.sent) == reply


async def test_a_preview_that_the_person_deleted_does_not_lose_the_reply(tmp_path, api):
    gate = asyncio.Event()
    model = ScriptedChat(lambda request: ["The answer", Stall(gate), " is 42."])
    async with bot(tmp_path, api, model, preview_after_s=0.0) as at:
        api.write("Well?", user=7)
        await wait_until_async(lambda: bool(api.edits))
        api.deleted.append(1)
        gate.set()
        await wait_until_async(lambda: len(api.sent) == 2 and not at.inbox.unfinished())
        assert not at.inbox.unconfirmed_runs()
    assert api.sent[1]["text"] == "The answer is 42."


async def test_telegram_may_ask_to_edit_less_often(tmp_path, api):
    model = ScriptedChat(lambda request: ["The answer", Stall(gate), " is 42."])
    gate = asyncio.Event()
    api.fail("editMessageText", 429, retry_after=3_000)
    async with bot(tmp_path, api, model, preview_after_s=0.0) as at:
        api.write("Well?", user=7)
        await wait_until_async(lambda: api.calls.count("editMessageText") == 1)
        gate.set()
        await wait_until_async(lambda: bool(at.inbox.messages()) and not at.inbox.unfinished())
    assert [message["text"] for message in api.sent] == ["The answer is 42."]


async def test_an_answer_that_is_stopped_leaves_no_half_of_it(tmp_path, api):
    model = ScriptedChat(lambda request: ["Half an", Stall()])
    async with bot(tmp_path, api, model, preview_after_s=0.0) as at:
        api.write("Well?", user=7)
        await wait_until_async(lambda: last_edit(api) == "Half an")
        api.write("/stop", user=7)
        await wait_until_async(lambda: api.deleted == [1] and len(api.sent) == 2 and not at.inbox.unfinished())
        assert api.sent[1]["text"] == "Stopped."


async def test_an_answer_that_fails_is_replaced_by_a_word_about_that(tmp_path, api):
    gate = asyncio.Event()
    failure = ModelRefused("https://10.0.0.1 does not like model.name", hint="Set model.base_url.")
    model = ScriptedChat(lambda request: ["Half an", Stall(gate), failure])
    async with bot(tmp_path, api, model, preview_after_s=0.0) as at:
        api.write("Well?", user=7)
        await wait_until_async(lambda: last_edit(api) == "Half an")
        gate.set()
        await wait_until_async(lambda: not at.inbox.unfinished())
    assert [message["text"] for message in api.sent] == [
        "The model does not accept this conversation. Start a new one with /new."
    ]


async def test_edits_can_be_turned_off(tmp_path, api):
    gate = asyncio.Event()
    model = ScriptedChat(lambda request: ["The answer", Stall(gate), " is 42."])
    async with bot(tmp_path, api, model, preview_after_s=0.0, stream=False):
        api.write("Well?", user=7)
        await wait_until_async(lambda: bool(model.requests))
        gate.set()
        await wait_until_async(lambda: len(api.sent) == 1)
    assert (api.edits, api.sent[0]["text"]) == ([], "The answer is 42.")


async def test_a_command_that_fails_names_no_path_and_no_setting(tmp_path, api, caplog):
    async with bot(tmp_path, api) as at:
        (tmp_path / "workspace").rename(tmp_path / "elsewhere")
        api.write("/remember The key is under the mat.", user=7)
        await wait_until_async(lambda: len(api.sent) == 1)
        (tmp_path / "elsewhere").rename(tmp_path / "workspace")
        assert at.inbox.messages()
    assert api.sent[0]["text"] == "That did not work. The log of the gateway has the details."
    assert "a command failed" in caplog.text
