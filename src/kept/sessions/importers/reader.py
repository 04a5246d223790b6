"""Readers of formats. Each format declares what a file of it is, where a session begins, and what a record says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from kept.base.limits import as_dict
from kept.base.values import frozen
from kept.sessions.entries import Body
from kept.sessions.importers.draft import Draft, DraftBuilder, as_text, key_for, present_fields, read_time
from kept.sessions.importers.source import Record, Source


class Reader:
    """Reader of one format, for one import."""

    channel: ClassVar[str]
    """Name of the format, and channel in the keys of its conversations."""

    def __init__(self, agent_id: str) -> None:
        self.agent_id = agent_id

    def is_wanted(self, path: str, root: str) -> bool:
        """Return whether a file below a folder may have conversations."""
        raise NotImplementedError

    def read(self, path: str) -> Iterator[tuple[Source, Draft | None]]:
        """Yield the sources in a file: each with every session in it, or with None if it has none."""
        raise NotImplementedError


@frozen
class Said:
    """What a record says; without a body, nothing that is kept."""

    body: Body | None = None
    parent: Any = ""


class LineReader(Reader):
    """Reader of files with one session each, a record in every line."""

    header: ClassVar[str]
    """Type of the record that names the session."""
    kinds: ClassVar[tuple[str, ...]]
    """Types of other records. The first one begins the session if the header is lost."""
    kept_fields: ClassVar[tuple[str, ...]]
    """Fields of the header that become metadata."""
    id_field: ClassVar[str] = "id"

    def is_wanted(self, path: str, root: str) -> bool:
        return path.endswith(".jsonl")

    def read(self, path: str) -> Iterator[tuple[Source, Draft | None]]:
        source = Source(path)
        yield source, self.read_source(source)

    def read_source(self, source: Source) -> Draft | None:
        """Return the session of all records of a source."""
        builder: DraftBuilder | None = None
        for record in source.records():
            if builder is None:
                builder = self.begin(source, record)
                if builder is None or record.tree.get("type") == self.header:
                    continue
            fields = self.fields_of(record)
            own_id, when = fields.get(self.id_field), record.tree.get("timestamp")
            if builder.is_repeated(record, own_id):
                continue
            when = when if read_time(when) else as_dict(fields.get("message")).get("timestamp")
            content = self.read_record(builder, record)
            builder.add(record, content.body, own_id=own_id, parent=content.parent, when=when)
        return None if builder is None else self.finish(builder)

    def begin(self, source: Source, record: Record) -> DraftBuilder | None:
        """Begin the session with a record, or return None if that is of another format."""
        kind = as_text(record.tree.get("type"))
        if kind != self.header and kind not in self.kinds:
            return None
        header = self.fields_of(record) if kind == self.header else {}
        builder = DraftBuilder(source, self.channel, as_text(header.get("id")) or source.name)
        builder.created = read_time(header.get("timestamp")) or read_time(record.tree.get("timestamp"))
        builder.metadata = present_fields(header, *self.kept_fields)
        if not header:
            source.report("has no header; the session is named after the file", line=record.line)
        return builder

    def fields_of(self, record: Record) -> dict[str, Any]:
        """Return the fields that say what a record is."""
        return record.tree

    def read_record(self, builder: DraftBuilder, record: Record) -> Said:
        raise NotImplementedError

    def finish(self, builder: DraftBuilder) -> Draft:
        return builder.finish(key_for(self.agent_id, self.channel, builder.id))
