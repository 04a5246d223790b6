"""Images and other files that notes refer to, from inside the workspace only."""

from __future__ import annotations

import os
import posixpath
from urllib.parse import quote

from starlette.responses import Response

from kept.errors import NoteNotFound, NoteTooLarge, PathRefused, WorkspaceError
from kept.notes.opened import OpenWorkspace
from kept.notes.workspace import Workspace, is_visible, show_path
from kept.server.web.visit import Visit

MOST_BYTES = 50_000_000
_SHOWN = {
    ".avif": "image/avif",
    ".bmp": "image/bmp",
    ".gif": "image/gif",
    ".ico": "image/x-icon",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webp": "image/webp",
    ".mp3": "audio/mpeg",
    ".mp4": "video/mp4",
    ".ogg": "audio/ogg",
    ".wav": "audio/wav",
    ".webm": "video/webm",
}
"""Types that are shown in a page. Everything else is offered as a download."""
_ATTACHMENT_FOLDERS = ("attachments", "assets", "files", "images")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""An SVG or a page that is opened by itself runs nothing, and has no origin."""


def show_file(visit: Visit) -> Response:
    """Send a file of the workspace."""
    path = visit.path["path"]
    content = read_file(visit.memory.workspace, path)
    media_type = _SHOWN.get(posixpath.splitext(path)[1].lower())
    headers = {"Content-Security-Policy": _POLICY}
    if media_type is None:
        name = quote(posixpath.basename(path), safe="")
        headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{name}"
    return Response(content, headers=headers, media_type=media_type or "application/octet-stream")


def read_file(workspace: Workspace, path: str) -> bytes:
    """Return a file of the workspace, or one of that name in a folder for attachments. Raise NoteNotFound."""
    shown = show_path(path)
    parts = path.split("/")
    if not path or "\0" in path or not all(part and is_visible(part) for part in parts):
        raise PathRefused(f"{shown}: hidden files and other folders are not shown.", hint="")
    with OpenWorkspace(workspace) as opened:
        # Where a link says, at the top, or in a folder for attachments.
        for candidate in (path, parts[-1], *(f"{folder}/{parts[-1]}" for folder in _ATTACHMENT_FOLDERS)):
            content = _find_content(opened, os.path.join(workspace.root, *candidate.split("/")), shown)
            if content is not None:
                return content
    raise NoteNotFound(f"{shown}: there is no such file.", hint="")


def _find_content(opened: OpenWorkspace, absolute: str, shown: str) -> bytes | None:
    state = opened.find_state(absolute)
    if state is None:
        return None
    if state.st_size > MOST_BYTES:
        raise NoteTooLarge(f"{shown}: more than the limit of {MOST_BYTES:,} bytes for a file on a page.", hint="")
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        handle = os.open(os.path.basename(absolute), flags, dir_fd=opened.folder_of(absolute))
        with open(handle, "rb") as file:
            return file.read(MOST_BYTES)
    except OSError as exc:
        raise WorkspaceError(f"{shown}: cannot be read ({exc.strerror}).") from exc
