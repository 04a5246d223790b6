"""Pictures, documents and the like in a message, as any channel describes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from kept.limits import one_line
from kept.values import frozen

MediaKind = Literal["picture", "document", "voice message", "audio", "video", "video message", "sticker", "media"]
_NAME_CHARS = 80


@frozen
class MediaItem:
    kind: MediaKind | str
    """What it is, in a person's words."""
    name: str | None = None
    size_bytes: int | None = None
    seconds: int | None = None
    media_type: str | None = None
    source: str | None = None
    """Id or address under which the channel can fetch the file. None if there is none."""

    def describe(self) -> str:
        """Return a text that takes the place of the file, such as '(picture: cat.jpg, 34 kB)'."""
        name = one_line(self.name or "")[:_NAME_CHARS].strip("() ")
        head = f"{self.kind}: {name}" if name else self.kind
        size = format_size(self.size_bytes) if self.size_bytes else ""
        length = f"{self.seconds // 60}:{self.seconds % 60:02d} min" if self.seconds else ""
        return f"({', '.join(part for part in (head, size, length) if part)})"


def format_size(size_bytes: int) -> str:
    if size_bytes < 1_000:
        return f"{size_bytes} bytes"
    return f"{round(size_bytes / 1_000)} kB" if size_bytes < 1_000_000 else f"{size_bytes / 1_000_000:.1f} MB"


def with_media(text: str, items: Iterable[MediaItem]) -> str:
    """Return a text followed by the descriptions of what came with it."""
    return "\n\n".join(part for part in (text, *(item.describe() for item in items)) if part)


def kind_of(media_type: str) -> MediaKind:
    """Return what a file of a type is called."""
    prefix = media_type.partition("/")[0]
    kinds: dict[str, MediaKind] = {"image": "picture", "audio": "audio", "video": "video"}
    return kinds.get(prefix, "document")
