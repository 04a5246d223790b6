"""Style sheet, scripts and icon: read once, and confirmed by their hash when a browser asks again."""

from __future__ import annotations

import hashlib
from importlib.resources import files

from starlette.responses import Response

from kept.values import frozen

_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


@frozen
class StaticFile:
    name: str
    content: bytes
    media_type: str

    @property
    def tag(self) -> str:
        return f'"{hashlib.sha256(self.content).hexdigest()[:20]}"'

    def answer(self, known_tag: str) -> Response:
        headers = {"ETag": self.tag, "Cache-Control": "no-cache"}
        if known_tag == self.tag:
            return Response(status_code=304, headers=headers)
        return Response(self.content, headers=headers, media_type=self.media_type)


def load_static_files() -> list[StaticFile]:
    """Return every file in the folder ``static``."""
    folder = files("kept.web").joinpath("static")
    entries = sorted((entry for entry in folder.iterdir() if entry.is_file()), key=lambda entry: entry.name)
    return [
        StaticFile(entry.name, entry.read_bytes(), _TYPES["." + entry.name.rpartition(".")[2]]) for entry in entries
    ]
