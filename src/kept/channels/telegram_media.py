"""Media of a Telegram message: what they are, and which file to fetch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kept.channels.media import MediaItem, kind_of

if TYPE_CHECKING:
    import telegram

_LARGEST_PICTURE_SIDE = 1_600
"""Models reduce larger pictures, so a larger version is not fetched."""


def read_media(message: telegram.Message) -> tuple[MediaItem, ...]:
    """Return the media of a message, at most one: Telegram sends the pictures of an album as several messages."""
    return tuple(_iter_media(message))


def _iter_media(message: telegram.Message) -> Iterator[MediaItem]:
    if message.photo:
        fitting = [size for size in message.photo if max(size.width, size.height) <= _LARGEST_PICTURE_SIDE]
        photo = max(fitting or message.photo[:1], key=lambda size: size.width * size.height)
        yield MediaItem("picture", None, photo.file_size, media_type="image/jpeg", source=photo.file_id)
    elif message.animation:  # also has a document
        yield _file(message.animation, "animation", fetched=False)
    elif message.document:
        yield _file(message.document, kind_of(message.document.mime_type or ""))
    elif message.voice:
        yield _file(message.voice, "voice message", fetched=False)
    elif message.video_note:
        yield _file(message.video_note, "video message", fetched=False)
    elif message.audio:
        yield _file(message.audio, "audio", fetched=False)
    elif message.video:
        yield _file(message.video, "video", fetched=False)
    elif message.sticker:
        yield MediaItem("sticker", message.sticker.emoji)
    else:
        yield from _iter_facts(message)


def _file(
    file: telegram.Animation
    | telegram.Document
    | telegram.Voice
    | telegram.VideoNote
    | telegram.Audio
    | telegram.Video,
    kind: str,
    *,
    fetched: bool = True,
) -> MediaItem:
    # Not the attribute: its type depends on the version of the library.
    duration = file.to_dict().get("duration")
    seconds = round(duration) if isinstance(duration, int | float) else None
    name = getattr(file, "file_name", None) or getattr(file, "title", None)
    media_type = getattr(file, "mime_type", None)
    return MediaItem(kind, name, file.file_size, seconds, media_type, file.file_id if fetched else None)


def _iter_facts(message: telegram.Message) -> Iterator[MediaItem]:
    """Yield what is not a file, with what it says."""
    if message.venue:
        yield MediaItem("place", f"{message.venue.title}, {message.venue.address}")
    elif message.location:
        yield MediaItem("location", f"{message.location.latitude:.5f}, {message.location.longitude:.5f}")
    elif message.contact:
        name = " ".join(filter(None, (message.contact.first_name, message.contact.last_name)))
        yield MediaItem("contact", f"{name}, {message.contact.phone_number}")
    elif message.poll:
        yield MediaItem("poll", message.poll.question)
    elif message.dice:
        yield MediaItem("dice", f"{message.dice.emoji} {message.dice.value}")
    elif message.effective_attachment is not None:
        yield MediaItem("media")
