"""A note: its text with links and tags, what links to it, and an editor that keeps every byte that is not changed."""

from __future__ import annotations

import posixpath
import re
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from kept.base.listings import NoteLinks
from kept.base.values import frozen
from kept.errors import (
    DocumentNotFound,
    KeptError,
    NoteConflict,
    NoteNotFound,
    NoteTooLarge,
    PathRefused,
)
from kept.index.chunking.properties import read_properties
from kept.memory import Memory
from kept.notes.history.line_changes import LinesOverlap, diff_versions, take_back
from kept.notes.line_edit import replace_text, save_text
from kept.notes.workspace import NoteText, Workspace, decode, is_visible, may_be_title, show_path
from kept.server.web.note_html import NoteSetting, plain_line, render_note
from kept.server.web.page_templates import place_url
from kept.server.web.visit import Page, Screen, Visit

LINES_PER_PAGE = 2_000
_CHARS_PER_PAGE = 200_000
NOTES_PER_PAGE = 50
_LINKS_SHOWN = 50
_VERSIONS_COMPARED = 100


@frozen
class NotePart:
    """Lines of a note that fit on a page."""

    text: str
    first: int
    last: int
    total: int


@frozen
class NoteContext:
    """Links and tags of a note, as the index has them. Empty for a note that is not indexed."""

    links: NoteLinks
    tags: tuple[str, ...] = ()
    degraded: tuple[str, ...] = ()

    @property
    def resolved(self) -> dict[str, str]:
        return {link.target: link.resolved for link in self.links.outgoing if link.resolved}


# reading


def show_note(visit: Visit) -> Response:
    path = visit.path["path"]
    if may_be_title(path):
        return visit.redirect(place_url("note", visit.memory.read(path, lines=1).path))
    opened = load_note(visit.memory, path)
    context = load_context(visit.memory, opened.path)
    lines = opened.text.split("\n")
    skipped = _skip_properties(lines)
    cited = parse_lines(visit.query.get("lines", ""))
    start = visit.number("from", cited[0] if cited and cited[0] > LINES_PER_PAGE else 1, least=1)
    part = cut_part(lines, max(start, skipped + 1))
    html = render_note(part.text, NoteSetting(opened.path, context.resolved, part.first, cited))
    linking: dict[str, list[int]] = {}
    for link in context.links.incoming:
        linking.setdefault(link.path, []).append(link.line)
    backlinks = list(linking.items())
    return visit.render(
        "note.html",
        opened=opened,
        title=context.links.title or opened.path,
        has_heading=part.text.lstrip().startswith("# "),
        part=part,
        html=html,
        context=context,
        backlinks=backlinks,
        sentences=[_sentence(visit.memory, path, lines[0]) for path, lines in backlinks[:_LINKS_SHOWN]],
        properties="\n".join(lines[:skipped]) if start <= 1 else "",
        newest=next(iter(visit.memory.history.changes(opened.path, max_results=1)), None),
        can_edit=visit.memory.workspace.may_write(visit.memory.workspace.locate(opened.path)),
    )


def _skip_properties(lines: list[str]) -> int:
    """Return how many lines at the beginning are properties, which are not shown as text."""
    properties = read_properties(lines)
    return 0 if properties.is_text else properties.lines


def load_note(memory: Memory, path: str) -> NoteText:
    return memory.workspace.read(memory.workspace.locate(path), max_bytes=memory.settings.max_file_bytes)


def load_context(memory: Memory, path: str) -> NoteContext:
    try:
        links = memory.notes.links(path)
        tags, degraded = memory.index_service.read(lambda index: index.live.notes.tags_of(path))
    except KeptError as exc:
        return NoteContext(NoteLinks(path, ""), degraded=(exc.message,))
    return NoteContext(links, tuple(tags), tuple(dict.fromkeys((*links.degraded, *degraded))))


def _sentence(memory: Memory, path: str, line: int) -> str:
    try:
        return plain_line(memory.read(path, start=line, lines=1).text).lstrip("#>-*+ ")
    except KeptError:  # the note is gone since it was indexed
        return ""


def parse_lines(text: str) -> tuple[int, int] | None:
    """Return first and last line of a range such as 3-9, or None."""
    match = re.match(r"([0-9]{1,9})(?:-([0-9]{1,9})$)?", text)
    return (int(match[1]), int(match[2] or match[1])) if match else None


def cut_part(lines: list[str], first: int) -> NotePart:
    """Return the lines from ``first`` on that fit on a page, at least one."""
    total = len(lines) - (1 if lines and lines[-1] == "" else 0)
    part: list[str] = []
    chars = 0
    for line in lines[first - 1 : first - 1 + LINES_PER_PAGE]:
        chars += len(line) + 1
        if part and chars > _CHARS_PER_PAGE:
            break
        part.append(line[:_CHARS_PER_PAGE])
    return NotePart("\n".join(part), first, min(total, first - 1 + len(part)), total)


# a list


def list_notes(visit: Visit) -> Response:
    tag, offset = visit.query.get("tag", "").strip(), (visit.page - 1) * NOTES_PER_PAGE
    listing = visit.memory.list(tags=[tag] if tag else (), max_results=NOTES_PER_PAGE, offset=offset)
    return visit.render(
        "notes.html",
        listing=listing,
        tag=tag,
        has_next=len(listing) == NOTES_PER_PAGE,
        tags=() if tag else visit.memory.notes.tags().tags,
    )


# editing


def edit_note(visit: Visit) -> Response:
    visit.require_change(visit.path["path"])
    opened = load_note(visit.memory, visit.path["path"])
    replace_text(opened.raw, opened.text, opened.path)  # refuses a note that cannot be edited exactly
    return _editor(visit, opened, opened.text)


def save_note(visit: Visit) -> Response:
    """Save the text of the form; or show it, if only a preview is asked for or the note has changed meanwhile."""
    memory, path = visit.memory, visit.path["path"]
    visit.require_change(path)
    text, digest = visit.text, visit.form.get("digest", "")
    if visit.form.get("do") == "preview":
        opened = load_note(memory, path)
        lines = text.split("\n")
        part = cut_part(lines, _skip_properties(lines) + 1)
        setting = NoteSetting(path, load_context(memory, opened.path).resolved, part.first)
        return _editor(visit, opened, text, digest=digest, preview=render_note(part.text, setting))
    try:
        is_new = save_text(
            memory.workspace,
            path,
            text,
            digest=digest,
            max_bytes=memory.settings.max_file_bytes,
            recorder=memory.history.open_recorder(visit.site.author, why=visit.form.get("why", "").strip()),
        )
    except NoteConflict:
        opened = load_note(memory, path)
        merged = _merge(memory, opened, text, digest)
        text = text if merged is None else merged
        conflict = diff_versions(opened.raw, replace_text(opened.raw, text, path), path, path)
        return _editor(visit, opened, text, status=409, conflict=conflict, is_merged=merged is not None)
    return visit.redirect(place_url("note", path), notice="Saved." if is_new else "Nothing was changed.")


def _merge(memory: Memory, opened: NoteText, text: str, digest: str) -> str | None:
    """Return the note as it is now with the changes of a text whose editing began at the version with this digest.

    None if both changed the same lines, or the history does not have that version of the note."""
    load_context(memory, opened.path)  # brings the history up to date
    changes = memory.history.changes(opened.path, max_results=_VERSIONS_COMPARED)
    if not any(digest in (change.before, change.after) for change in changes):
        return None
    try:
        original = memory.history.read_version(digest) or b""
        return decode(take_back(replace_text(original, text, opened.path), original, opened.raw))[0]
    except (LinesOverlap, KeptError):
        return None


def _editor(visit: Visit, opened: NoteText, text: str, **shown: Any) -> Response:
    values = {"digest": opened.version, "conflict": None, "preview": None, "is_merged": False, **shown}
    return visit.render("edit.html", opened=opened, text=text, why=visit.form.get("why", ""), **values)


# images and other files that notes refer to, from inside the workspace only

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
    # Where a link says, at the top, or in a folder for attachments.
    for candidate in (path, parts[-1], *(f"{folder}/{parts[-1]}" for folder in _ATTACHMENT_FOLDERS)):
        try:
            return workspace.storage.documents.read(candidate, max_bytes=MOST_BYTES).data
        except DocumentNotFound:
            continue
        except NoteTooLarge as exc:
            limit = f"more than the limit of {MOST_BYTES:,} bytes for a file on a page"
            raise NoteTooLarge(f"{shown}: {limit}.", hint="") from exc
    raise NoteNotFound(f"{shown}: there is no such file.", hint="")


SCREEN = Screen(
    name="note",
    label="Notes",
    home="/notes",
    pages=(
        Page("/notes", list_notes, "read"),
        Page("/note/{path:path}", show_note, "read"),
        Page("/edit/{path:path}", edit_note, "write notes"),
        Page("/edit/{path:path}", save_note, "write notes", ("POST",)),
        Page("/file/{path:path}", show_file, "read"),
    ),
    key="n",
)
