"""Answers of the tools, as text for a model.

Recalled text is data. Every line of it begins with '> ', so that it can neither end its own quotation nor pass for a
result or a citation that the search did not return. Names are data too: headings, titles, channels and error messages
are quoted. So every word in a line without '> ' is ours:

    [1] memory/2026-03-13.md#L1-L5 (strong, score 0.83, 2026-03-13)
    > under: Staging
    > The staging database moved to port 5433.
    Also in sessions/20260314T140926Z_4f1c.jsonl#L4.

A citation says where a passage is, and a tool takes it as a path. A file name may contain anything, even a forged
result. So a path appears in our own lines only if it consists of letters, digits and a few punctuation characters. With
spaces and a few more, it is in double quotes; any other is shown as the URI of its resource, percent-encoded. A tool
accepts all three.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from string import ascii_letters, digits
from typing import TYPE_CHECKING

from kept.base.limits import clip, one_line
from kept.base.listings import Listing, TagCount
from kept.base.records import (
    FactValidity,
    Hit,
    ListedPeriod,
    Passage,
    SearchResult,
    Written,
    cite,
    parse_citation,
)
from kept.base.reports import Status
from kept.base.wording import plural
from kept.errors import UsageError

if TYPE_CHECKING:
    from kept.sessions.record import SessionRecord

NOTES = "kept://notes/"
LONG_NAME = "a note with a long name"
MAX_SHOWN_PATH_CHARS = 200
_NOTHING = "Nothing is remembered about that. Try other words or a longer period."
_UNCERTAIN = (
    "Nothing certain is remembered about that. These passages are the closest and probably about something else:"
)
_NOTHING_LISTED = "Nothing matches. Leave out a filter, or choose a longer period."
_PROBLEMS = "Problems:"
_NAME_CHARS = 200
_WEAK_CHARS = 160
"""A weak hit below better ones is shown by its beginning: seldom worth more of a model's context."""
_MOST_OCCURRENCES = 3
_ERROR_CHARS = 1_000
_PLAIN = frozenset(f"{ascii_letters}{digits}./_-")
_QUOTED = frozenset(" ,'&+")
"""Characters of a path that is shown in quotes. None of them can end a quotation."""
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")
"""Characters that are letters or marks by their Unicode category, but are not visible."""


def quote(text: str) -> str:
    """Quote every line. `splitlines` also splits at rare line separators, which a reader may take for a line end."""
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines()) or ">"


def search_text(result: SearchResult) -> str:
    is_answered = result.answered != "no"
    if result.period:
        parts = [_period_text(result.period, len(result.hits))]
    elif not result.hits:
        parts = [_NOTHING]
    else:
        parts = [plural(len(result.hits), "result") + ", best first:" if is_answered else _UNCERTAIN]
    for number, hit in enumerate(result.hits, 1):
        parts.append(_hit(number, hit, max_chars=_WEAK_CHARS if is_answered and hit.grade == "weak" else None))
    return "\n\n".join([*parts, *_problems(result.degraded)])


def _period_text(period: ListedPeriod, shown: int) -> str:
    """Return the heading of a list. The words of the query are quoted, like everything that others wrote."""
    count = plural(period.total, "entry", "entries") if period.total else "Nothing"
    more = f", the latest {shown} of them" if shown < period.total else ""
    order = ", oldest first:" if shown else "."
    return f"{count} from that time{more}{order}\n{quote(clip(one_line(f'time: {period.text}'), _NAME_CHARS))}"


def _hit(number: int | str, hit: Hit, *, max_chars: int | None = None) -> str:
    time = str(hit.timestamp)
    about = [time[:16]] if hit.listed else [f"{hit.grade}, score {hit.score:.2f}", time[:10]]
    cited = show_citation(hit.path, hit.start_line, hit.end_line)
    own = {line.strip("# ") for line in hit.snippet.splitlines() if line.startswith("#")}
    under = " > ".join(part for part in (hit.heading or "").split(" > ") if part not in own)
    names = {"under": under, "conversation": hit.title, "project": hit.project}
    head = _head(number, cited, hit.citation, ", ".join(about), names)
    snippet = clip(one_line(hit.snippet), max_chars) if max_chars else hit.snippet
    occurrences = ""
    for lead, others in (("Newer than", hit.newer_than), ("Also in", hit.also_in)):
        shown = [show_citation(other.path, other.start_line, other.end_line) for other in others[:_MOST_OCCURRENCES]]
        citations = ", ".join(filter(None, shown))
        occurrences += f"\n{lead} {citations}." if citations else ""
    further = "".join(f"\n{_further(passage, max_chars)}" for passage in hit.further)
    validity = _validity(hit.validity) if hit.validity else ""
    return f"{head}\n{quote(snippet)}{validity}{occurrences}{further}"


def _head(number: int | str, shown: str | None, path: str, about: str, names: Mapping[str, str | None]) -> str:
    """Return the first lines of an entry: where it is, and the names that others have given it."""
    lines = _names({"path": None if shown else path, **names})
    return f"[{number}] {shown or LONG_NAME} ({about})\n{lines}".rstrip("\n")


def _further(passage: Hit, max_chars: int | None) -> str:
    """Return a further passage of a note. It is shortened if its hit is, or if it is weak."""
    head = f"Also lines {passage.start_line} to {passage.end_line} ({passage.grade}, score {passage.score:.2f}):"
    if passage.grade == "weak":
        max_chars = _WEAK_CHARS
    snippet = clip(one_line(passage.snippet), max_chars) if max_chars else passage.snippet
    return f"{head}\n{quote(snippet)}{_validity(passage.validity) if passage.validity else ''}"


def _validity(validity: FactValidity) -> str:
    """Return one line about a fact that was replaced or that replaced another, or nothing."""
    if validity.holds:
        before = ", ".join(filter(None, map(_show_cited, validity.before)))
        since = f"\nHolds since {validity.since}" if validity.since else ""
        return f"{since or chr(10) + 'Holds'}; before: {before}." if before else f"{since}." if since else ""
    successor = _show_cited(validity.replaced_by) if validity.replaced_by else None
    if validity.until:
        return f"\nNo longer holds since {validity.until}{f'; replaced by {successor}' if successor else ''}."
    return f"\nHolds only since {validity.since}." if validity.since else "\nNo longer holds."


def _show_cited(citation: str) -> str | None:
    cited = parse_citation(citation)
    return show_citation(*cited) if cited else None


def sessions_text(sessions: Sequence[tuple[SessionRecord, Sequence[Hit]]], degraded: Iterable[str] = ()) -> str:
    parts = [plural(len(sessions), "conversation") + ":" if sessions else "No conversation was found."]
    for number, (record, hits) in enumerate(sessions, 1):
        when = f"{record.created:%Y-%m-%d %H:%M} to {record.updated:%Y-%m-%d %H:%M}"
        about = f"{when}, {plural(record.messages, 'message')}"
        names = {"channel": record.channel, "title": record.title}
        parts.append(_head(number, show_path(record.citation), record.citation, about, names))
        parts += [_hit(f"{number}.{rank}", hit) for rank, hit in enumerate(hits, 1)]
    return "\n\n".join([*parts, *_problems(degraded)])


def listing_text(listing: Listing) -> str:
    shown, total = len(listing), listing.total
    more = f" of {total:,}" if shown < total else ""
    parts = [f"{shown:,}{more} {'entry' if total == 1 else 'entries'}, newest first:" if shown else _NOTHING_LISTED]
    for number, file in enumerate(listing, 1):
        names = {"title": file.title, "begins": file.excerpt}
        parts.append(_head(number, show_path(file.path), file.path, f"{file.timestamp:%Y-%m-%d}", names))
    return "\n\n".join([*parts, *_problems(listing.degraded)])


def passage_text(passage: Passage) -> str:
    path = show_path(passage.path) or LONG_NAME
    if not passage.lines:
        return f"{path} has no line {passage.start}."
    last = passage.start + passage.lines - 1
    more = f"\n\nThere is more: read on from line {passage.next_from}." if passage.truncated else ""
    return f"{path}, lines {passage.start} to {last}:\n\n{quote(passage.text)}{more}"


def written_text(written: Written) -> str:
    cited = show_citation(written.path, written.start_line, written.end_line) or LONG_NAME
    if not written.is_new:
        return f"Not written again: {cited} says the same. Set 'again' to write it nevertheless."
    if written.is_proposed:
        name = show_name(written.path)
        return (
            f"Proposed for {name}, not written yet: a person has to accept it first (review {written.review}). "
            "No search finds it until then. Do not write it again."
        )
    parts = [f"Written to {cited}."]
    if written.replaced:
        parts.append(f"Struck through and dated: {_show_cited(written.replaced) or LONG_NAME}.")
    for fact in written.near:
        place = fact.path, fact.start_line, fact.end_line
        line = show_citation(*place) or LONG_NAME
        lead = "Looks like it changes" if fact.relation == "changes" else "Says much the same as"
        reference = show_citation(*place, fact.digest) if fact.relation == "changes" else None
        advice = f" To replace that line, give replaces: {reference}" if reference else ""
        parts.append(f"{lead} {line}.{advice}\n{quote(clip(one_line(fact.text), _NAME_CHARS))}")
    return "\n".join(parts)


def status_text(status: Status, sessions: int, tags: Sequence[TagCount] = ()) -> str:
    notes = status.source_counts.get("memory", {})
    conversations = status.source_counts.get("sessions", {})
    lines = [
        f"Notes in the index: {notes.get('files', 0)} ({plural(notes.get('chunks', 0), 'passage')})",
        f"Conversations in the index: {conversations.get('files', 0)} "
        f"({plural(conversations.get('chunks', 0), 'passage')}), of {sessions} in all",
        f"Last sync: {str(status.last_sync)[:16] if status.last_sync else 'never'}",
        f"State: {_state(status)}",
    ]
    embeddings = ", ".join(filter(None, (status.provider, status.model)))
    names = _names({"workspace": status.workspace, "embeddings": embeddings})
    if tags:
        shown_tags = ", ".join(f"#{tag.tag} ({tag.notes:,})" for tag in tags)
        names += quote(clip(f"tags: {one_line(shown_tags)}", _ERROR_CHARS))
    problems = (f"{problem.path}: {problem.reason}" for problem in status.problems)
    return "\n\n".join(["\n".join(lines), names.rstrip("\n"), *_problems((*status.degraded, *problems))])


def error_text(message: str, hint: str) -> str:
    """Return the error on one line, even if it repeats an argument with line breaks."""
    return f"Error: {clip(one_line(f'{message} {hint}'), _ERROR_CHARS)}"


def _state(status: Status) -> str:
    if not status.dirty:
        return "up to date"
    changed = plural(status.changed_files, "changed file") if status.changed_files else "to be rebuilt"
    return f"{changed}; the next search updates the index"


def _problems(degraded: Iterable[str]) -> list[str]:
    """Quote the reasons: they may repeat file names and messages of other programs."""
    reasons = [quote(clip(one_line(reason), _ERROR_CHARS)) for reason in degraded]
    return ["\n".join([_PROBLEMS, *reasons])] if reasons else []


def _names(names: Mapping[str, str | None]) -> str:
    """Return a quoted line for each name that others have chosen."""
    lines = (f"{label}: {clip(one_line(name), _NAME_CHARS)}" for label, name in names.items() if name)
    return "".join(f"{quote(line)}\n" for line in lines)


# citations


def show_path(path: str, place: str = "") -> str | None:
    """Return the path, and a place in it, in a form that is safe in our own lines, or None if that is too long."""
    unusual = {char for char in set(path) - _PLAIN if not _is_letter(char)}
    shown = path if unusual <= _QUOTED else uri_of(path)
    if len(shown) > MAX_SHOWN_PATH_CHARS:
        return None
    return f'"{shown}{place}"' if unusual and shown == path else f"{shown}{place}"


def show_name(name: str) -> str:
    """Return a name in a form that is safe among our own words: one line, shortened, and quoted if it has unusual
    characters."""
    import json
    import unicodedata

    seen = "".join(char for char in one_line(name) if unicodedata.category(char) not in ("Cc", "Cf"))
    cut = clip(seen, MAX_SHOWN_PATH_CHARS)
    return cut if all(map(_is_letter, set(cut) - _PLAIN)) else json.dumps(cut, ensure_ascii=False)


def show_citation(path: str, first_line: int, last_line: int, digest: str = "") -> str | None:
    return show_path(path, cite("", first_line, last_line) + (f"@{digest}" if digest else ""))


def uri_of(path: str) -> str:
    import urllib.parse

    return NOTES + urllib.parse.quote(path, errors="replace")


def from_uri(path: str) -> str:
    """Return the path that a URI names, decoded once, or that is in quotes; any other path is returned as it is."""
    path = path.strip('"')
    return decode(path.removeprefix(NOTES)) if path.startswith(NOTES) else path


def from_citation(path: str, start: int | None, lines: int | None) -> tuple[str, int | None, int | None]:
    """Return path, first line and number of lines. An explicit ``start`` or ``lines`` overrides the citation."""
    cited = parse_citation(path.strip('"'))
    if not cited:
        return from_uri(path), start, lines
    path, first, last = cited
    return from_uri(path), start or first, lines or max(1, last - first + 1)


def decode(text: str) -> str:
    import urllib.parse

    try:
        return urllib.parse.unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise UsageError("The path is not percent-encoded UTF-8.", hint="Encode it as UTF-8.") from None


def _is_letter(char: str) -> bool:
    """Return whether a character is a visible letter, mark or digit of any script."""
    import unicodedata

    return unicodedata.category(char)[0] in "LMN" and char not in _INVISIBLE
