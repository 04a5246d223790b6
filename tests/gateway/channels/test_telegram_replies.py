"""What a person sees of a reply in Telegram: formatting, and a draft while it is written."""

import asyncio
import re

from hypothesis import given
from hypothesis import strategies as st

from kept.gateway.channels.telegram_messages import render_reply, visible_text
from kept.testing import ScriptedChat, Stall
from tests.support.telegram_bot import bot
from tests.support.waiting import wait_until_async


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


async def test_a_person_sees_the_draft_of_a_reply_and_a_group_that_it_is_written(tmp_path, api):
    gate = asyncio.Event()
    model = ScriptedChat(lambda request: ["It is **5433**", Stall(gate), ". Bye."])
    api.fail("sendMessageDraft", 429, retry_after=0)
    api.fail("sendMessageDraft", 403)
    async with bot(tmp_path, api, model, progress_s=0.01):
        api.write("Which port?", user=7)
        api.write("@kept_bot which port?", user=7, chat=-100)
        await wait_until_async(lambda: bool(api.drafts) and len(model.requests) == 2)
        await wait_until_async(lambda: any(action["chat_id"] == "-100" for action in api.actions))
        gate.set()
        await wait_until_async(lambda: len(api.sent) == 2)
    assert (api.drafts[0]["html"], {draft["chat_id"] for draft in api.drafts}) == ("It is <b>5433</b>", {"7"})
    assert {message["html"] for message in api.sent} == {"It is <b>5433</b>. Bye."}


async def test_a_command_that_fails_names_no_path_and_no_setting(tmp_path, api, caplog):
    async with bot(tmp_path, api) as at:
        (tmp_path / "workspace").rename(tmp_path / "elsewhere")
        api.write("/remember The key is under the mat.", user=7)
        await wait_until_async(lambda: len(api.sent) == 1)
        (tmp_path / "elsewhere").rename(tmp_path / "workspace")
        assert at.inbox.messages()
    assert api.sent[0]["text"] == "That did not work. The log of the gateway has the details."
    assert "a command failed" in caplog.text
