"""Sort Telegram messages: addressed to the bot, overheard in a group, or to be ignored. Render replies for Telegram.

A text that the sender only passed on, by forwarding it or through an inline bot, is marked as forwarded: it is data for
the agent, and never a command. So is the message that is replied to. Pictures and other media are named in the text.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from kept.agent.events import GroupLine, Inbound
from kept.base.limits import clip
from kept.gateway.channel import ANY_AGENT
from kept.gateway.channels.chat_intake import (
    QUOTED_CHARS,
    AddressedMessage,
    Allowed,
    MediaItem,
    OverheardMessage,
    Person,
    kind_of,
    short_name,
    with_media,
)
from kept.sessions.entries import FORWARDED, QUOTED
from kept.sessions.session_key import DEFAULT_ACCOUNT, SessionKey

if TYPE_CHECKING:
    import telegram
    from markdown_it import MarkdownIt
    from markdown_it.tree import SyntaxTreeNode

_GROUPS = ("group", "supergroup")
_COMMAND = re.compile(r"\s*(/[A-Za-z]\w*)@(\w+)")


def read_message(
    message: telegram.Message, *, me: Person, allowed: Allowed, account_id: str = DEFAULT_ACCOUNT
) -> AddressedMessage | OverheardMessage | Person | None:
    """Sort a message. Return the sender if they are not allowed, and None if the message is to be ignored.

    In a group, a message that is not addressed to the bot is overheard.
    """
    sender, chat, media = message.from_user, message.chat, tuple(_iter_media(message))
    own = message.text or message.caption or ""
    if sender is None or sender.is_bot or not (own or media):
        return None
    in_group = chat.type in _GROUPS
    if not in_group and chat.type != "private":
        return None
    is_allowed, origin, name = sender in allowed, _origin(message), _name(sender)
    key = _key(message, account_id, in_group=in_group)
    if in_group and not (is_allowed and _is_addressed(message, own, me)):
        speaker = name if origin is None else f"forwarded by {name} from {origin}"
        return OverheardMessage(key, GroupLine(speaker, with_media(own, media), message.date))
    if not is_allowed:
        return Person(sender.id, sender.username or "")
    if origin is None and _is_for_another_bot(own, me):
        return None
    metadata: dict[str, Any] = {"chat": chat.id, "thread": _thread(message), "message": message.message_id}
    if origin is not None:
        metadata[FORWARDED] = origin
    else:
        own = _without_mention(own, me.username)
    if quoted := _quoted(message):
        metadata[QUOTED] = quoted
    message_id = f"{chat.id}:{message.message_id}"
    if account_id != DEFAULT_ACCOUNT:  # each bot has its own numbers for the messages of a person
        message_id = f"{account_id}:{message_id}"
    return AddressedMessage(key, Inbound(message_id, with_media(own, media), name, message.date, metadata), media)


def _quoted(message: telegram.Message) -> dict[str, str] | None:
    """Return the passage that the sender quotes, or else the message that they reply to, and whose it is."""
    original = message.reply_to_message
    text = message.quote.text if message.quote is not None else ""
    if not text and original is not None and original.forum_topic_created is None:  # else it begins the topic
        text = clip(with_media(original.text or original.caption or "", _iter_media(original)), QUOTED_CHARS)
    if message.external_reply is not None:
        name = _origin_name(message.external_reply.origin)
    else:
        name = _name(original.from_user if original is not None else None)
    return {"from": name, "text": text} if text else None


def _origin(message: telegram.Message) -> str | None:
    """Return the author of a text that the sender only passed on, or None if the sender wrote it."""
    if message.forward_origin is not None:
        return _origin_name(message.forward_origin)
    if message.is_automatic_forward or "forward_date" in message.api_kwargs:  # the latter in servers before 7.0
        return "somebody"
    bot = message.via_bot or message.sender_business_bot
    return None if bot is None else short_name(f"the bot {bot.full_name}")


def _origin_name(origin: telegram.MessageOrigin) -> str:
    for field in ("sender_user", "sender_chat", "chat"):
        if getattr(origin, field, None) is not None:
            return _name(getattr(origin, field))
    return short_name(getattr(origin, "sender_user_name", None) or "somebody")


def _name(owner: telegram.User | telegram.Chat | None) -> str:
    return (
        "somebody" if owner is None else short_name(owner.full_name or getattr(owner, "title", None) or str(owner.id))
    )


def _key(message: telegram.Message, account_id: str, *, in_group: bool) -> SessionKey:
    thread = _thread(message)
    user_id = f"{message.chat.id}:{thread}" if thread else str(message.chat.id)
    return SessionKey(ANY_AGENT, "telegram", account_id, "group" if in_group else "direct", user_id)


def _thread(message: telegram.Message) -> int | None:
    """Return the topic of a group, which is a conversation. A chain of replies has a thread id too, but is not one."""
    return message.message_thread_id if message.is_topic_message else None


def _is_addressed(message: telegram.Message, text: str, me: Person) -> bool:
    """Return True if the sender addresses the bot. A forwarded text does not, even if it mentions the bot."""
    if _origin(message) is not None or _is_for_another_bot(text, me):
        return False
    original = message.reply_to_message
    if original is not None and original.from_user is not None and original.from_user.id == me.id:
        return True
    return _COMMAND.match(text) is not None or _mention(me.username).search(text) is not None


def _is_for_another_bot(text: str, me: Person) -> bool:
    command = _COMMAND.match(text)
    return command is not None and command[2].lower() != me.username.lower()


def _mention(username: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)@{re.escape(username)}\b", re.IGNORECASE)


def _without_mention(text: str, username: str) -> str:
    """Return a text without the mention of the bot, unless that is all of it. Remove the name in /help@name too."""
    command = _COMMAND.match(text)
    if command is not None:
        return f"{command[1]}{text[command.end() :]}"
    return _mention(username).sub("", text, count=1).strip() or text


_LARGEST_PICTURE_SIDE = 1_600
"""Models reduce larger pictures, so a larger version is not fetched."""


def _iter_media(message: telegram.Message) -> Iterator[MediaItem]:
    """Yield the media of a message, at most one: Telegram sends the pictures of an album as several messages."""
    if message.photo:
        fitting = [size for size in message.photo if max(size.width, size.height) <= _LARGEST_PICTURE_SIDE]
        photo = max(fitting or message.photo[:1], key=lambda size: size.width * size.height)
        yield MediaItem("picture", None, photo.file_size, media_type="image/jpeg", source=photo.file_id)
    elif message.document:  # so has an animation
        yield _file(message.document, kind_of(message.document.mime_type or ""))
    elif file := message.voice or message.video_note or message.audio or message.video:
        kind = "voice message" if message.voice else "audio" if message.audio else "video"
        yield _file(file, kind, fetched=False)
    elif message.sticker:
        yield MediaItem("sticker", message.sticker.emoji)
    elif message.location:
        yield MediaItem("location", f"{message.location.latitude:.5f}, {message.location.longitude:.5f}")
    elif message.contact:
        name = " ".join(filter(None, (message.contact.first_name, message.contact.last_name)))
        yield MediaItem("contact", f"{name}, {message.contact.phone_number}")
    elif message.poll:
        yield MediaItem("poll", message.poll.question)
    elif message.effective_attachment is not None:
        yield MediaItem("media")


def _file(file: Any, kind: str, *, fetched: bool = True) -> MediaItem:
    # Not the attribute: its type depends on the version of the library.
    duration = file.to_dict().get("duration")
    seconds = round(duration) if isinstance(duration, int | float) else None
    name = getattr(file, "file_name", None) or getattr(file, "title", None)
    media_type = getattr(file, "mime_type", None)
    return MediaItem(kind, name, file.file_size, seconds, media_type, file.file_id if fetched else None)


# Replies: Markdown as the HTML that Telegram renders. It knows bold, italic, strikethrough, code, links and quotations.
# Headings become bold, lists get bullets, and tables stand in a block of code. Everything else is text, so nothing that
# a model writes can be taken for a tag.

_TAGS = {"heading": "b", "strong": "b", "em": "i", "s": "s"}
_LINKS = ("http://", "https://", "tg://", "mailto:")
_PLAIN = ("root", "paragraph", "inline", "text", "softbreak")


def render_reply(markdown: str) -> str | None:
    """Return a reply as HTML, or None if it has no formatting."""
    from markdown_it.tree import SyntaxTreeNode

    root = SyntaxTreeNode(_parser().parse(markdown))
    if all(node.type in _PLAIN for node in root.walk()):
        return None
    rendered = "\n\n".join(_iter_blocks(root.children, markdown.splitlines()))
    return rendered if visible_text(rendered).strip() else None


def visible_text(rendered: str) -> str:
    """Return what a reader sees. Its length is the one that Telegram limits."""
    return html.unescape(re.sub(r"<[^>]*>", "", rendered))


@cache
def _parser() -> MarkdownIt:
    """Return the parser for replies: CommonMark with tables and strikethrough, and HTML as text."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def _iter_blocks(nodes: Sequence[SyntaxTreeNode], lines: Sequence[str], *, in_quote: bool = False) -> Iterator[str]:
    """Yield blocks as HTML. ``lines`` are those of the whole reply."""
    for node in nodes:
        match node.type:
            case "paragraph" | "heading":
                yield _inline(node)
            case "fence" | "code_block":
                yield _code(node.content.rstrip("\n"), language=(node.info or "").split(" ")[0])
            case "bullet_list" | "ordered_list":
                yield _list(node, lines, in_quote=in_quote)
            case "blockquote":
                quoted = "\n\n".join(_iter_blocks(node.children, lines, in_quote=True))
                # Telegram does not take a quotation in another one.
                yield quoted if in_quote else f"<blockquote>{quoted}</blockquote>"
            case "table":
                first, end = node.map or (0, 0)
                yield _code("\n".join(lines[first:end]))
            case "hr":
                yield "———"
            case _:
                yield html.escape(node.content, quote=False)


def _inline(node: SyntaxTreeNode) -> str:
    """Return a paragraph, a heading or a part of one as HTML."""
    inner = "".join(map(_inline, node.children))
    match node.type:
        case "inline" | "paragraph":
            return inner
        case "heading" | "strong" | "em" | "s":
            return f"<{_TAGS[node.type]}>{inner}</{_TAGS[node.type]}>" if inner else ""
        case "link":
            href = str(node.attrs["href"])
            return f'<a href="{html.escape(href)}">{inner}</a>' if inner and href.lower().startswith(_LINKS) else inner
        case "code_inline":
            return f"<code>{html.escape(node.content, quote=False)}</code>"
        case "image":
            return inner or "picture"
        case "softbreak" | "hardbreak":
            return "\n"
        case _:
            return html.escape(node.content, quote=False)


def _list(node: SyntaxTreeNode, lines: Sequence[str], *, in_quote: bool) -> str:
    number = int(node.attrs.get("start", 1))
    items = []
    for offset, item in enumerate(node.children):
        bullet = "• " if node.type == "bullet_list" else f"{number + offset}. "
        content = "\n".join(_iter_blocks(item.children, lines, in_quote=in_quote))
        indent = "" if "<pre>" in content else " " * len(bullet)  # lines of code stay as they are
        items.append(bullet + content.replace("\n", f"\n{indent}"))
    return "\n".join(items)


def _code(text: str, *, language: str = "") -> str:
    escaped = html.escape(text, quote=False)
    if language:
        escaped = f'<code class="language-{html.escape(language)}">{escaped}</code>'
    return f"<pre>{escaped}</pre>"
