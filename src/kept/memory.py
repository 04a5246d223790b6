"""Memory: the notes of a workspace and the index that recalls them, as one object."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from kept.base.clock import Clock, SystemClock
from kept.base.durable import make_private_folder
from kept.base.limits import require_number, require_text
from kept.base.records import Filter, Passage, Progress, SearchResult, SeenTail, Written
from kept.base.timings import timed
from kept.base.visibility import Viewer
from kept.config import Config, LoadedConfig, load_config
from kept.config.layers import FLAGS
from kept.errors import UsageError, WorkspaceMissing
from kept.notes.workspace import Workspace
from kept.search.memory_view import MemoryView, SearchRequest

if TYPE_CHECKING:
    import datetime as dt

    from kept.base.listings import Listing
    from kept.base.reports import Status, SyncReport
    from kept.client.remote_memory import RemoteMemory
    from kept.embedding.base import Embedder
    from kept.forgetting.forgetter import MemoryForgetting
    from kept.index.sources import IndexLimits
    from kept.memory_history import MemoryHistory
    from kept.notes.history.note_history import Author
    from kept.notes.review_queue import ReviewQueue
    from kept.search.browse import MemoryNotes
    from kept.search.query_dates import When
    from kept.search.service import IndexService


_COMPARED_PASSAGES = 6
"""Passages with words of a new fact whose notes are compared with it: few, and one is read as quickly as the fact is
written."""


class Memory:
    """Memory of one agent: the notes of a workspace, and the index that recalls them.

    >>> with Memory.open(workspace="~/notes") as memory:
    ...     memory.add("The staging database moved to port 5433.")
    ...     for hit in memory.search("which port is staging on?"):
    ...         print(hit.citation, hit.snippet)

    Besides these methods there are `notes` (tags and links), `history` (changes and undo), `review` (writes of agents)
    and `forgetting`.

    Safe to share between threads, and between processes that use the same workspace. Opening a memory is cheap: the
    index and the embedder are opened, and their modules imported, when they are first used.
    """

    def __init__(
        self,
        config: Config,
        *,
        embedder: Embedder | None = None,
        clock: Clock | None = None,
        limits: IndexLimits | None = None,
        project: str | None = None,
        viewer: Viewer | None = None,
    ) -> None:
        """Use `Memory.open` instead, except with a configuration. ``project`` is the name of a project."""
        if not isinstance(config, Config):
            raise UsageError(
                f"Memory() takes a Config, not {config!r:.80}.", hint="Open a folder with Memory.open(folder)."
            )
        self._is_closed = False
        self.config = config
        self.project = project
        """Project that this memory is bound to: it writes there, and nothing of other projects is found or read."""
        self.viewer = viewer
        """Person or group that this memory is for: nothing private of others is found or read. None for the owner."""
        self.settings = config.agent.memory_search
        self.workspace = Workspace.of(config)
        self.place = self.workspace.root
        """Where the notes are, for people: a folder, or the address of a server."""
        self.clock = clock or SystemClock()
        self.view = MemoryView(config, self.workspace, self.clock, project, viewer)
        self._own_embedder = embedder
        self._limits = limits

    @classmethod
    def open(
        cls,
        workspace: str | os.PathLike[str] | None = None,
        *,
        home: str | os.PathLike[str] | None = None,
        agent: str | None = None,
        config: str | os.PathLike[str] | None = None,
        settings: Mapping[str, Any] | None = None,
        embedder: Embedder | None = None,
        clock: Clock | None = None,
        create: bool = False,
        project: str | os.PathLike[str] | None = None,
        person: str | None = None,
    ) -> Memory:
        """Open the memory of an agent.

        ``settings`` overrides single settings by their dotted name, such as ``{"memory_search.provider": "none"}``.
        ``embedder`` replaces the provider that the settings name. ``create`` creates a missing workspace, and
        the agent if it is new; without it, raise WorkspaceMissing. ``project`` binds the memory to a project, by its
        name or by a folder of its repository (``"."``); see `Memory.project`. ``person`` opens it as a person of
        ``session.identity_links``, an account (``telegram:5054``) or a conversation sees it; see `Memory.as_person`.
        """
        loaded = load_config(
            home=os.fspath(home) if home else None,
            workspace=os.fspath(workspace) if workspace else None,
            agent=agent,
            config_file=os.fspath(config) if config else None,
            settings=settings,
            trust_workspace=workspace is not None,
            new_agent=create,
        )
        opened = Workspace.of(loaded.config)
        if create:
            opened.make()
            make_private_folder(loaded.config.paths.folder)
        try:
            opened.require()
        except WorkspaceMissing as exc:
            hint = "Create it with Memory.open(…, create=True) or 'kept init', or open another folder."
            raise WorkspaceMissing(exc.message, hint=hint) from None
        name = None
        if project is not None:
            from kept.notes.projects import get_project

            name = get_project(opened, os.fspath(project))
        memory = cls(loaded.config, embedder=embedder, clock=clock, project=name)
        return memory if person is None else memory.as_person(person)

    @classmethod
    def of(cls, loaded: LoadedConfig) -> Memory:
        """Return the memory of settings that a command loaded. Raise WorkspaceMissing if its workspace does not
        exist."""
        run_settings = tuple(name for name, layer in loaded.origins.items() if layer == FLAGS)
        memory = cls(replace(loaded.config, run_settings=run_settings))
        memory.workspace.require()
        return memory

    @staticmethod
    def connect(url: str, *, token: str) -> RemoteMemory:
        """Return the memory that a server keeps: `kept serve`, asked with a token. It has the methods of this class."""
        from kept.client.remote_memory import RemoteMemory
        from kept.client.server_connection import Login, ServerConnection

        return RemoteMemory(ServerConnection(Login.of(url, token)))

    def as_person(self, person: str | Viewer | None) -> Memory:
        """Return this memory as a person sees it: without private conversations and notes of others.

        ``person`` is a name of ``session.identity_links``, an account (``telegram:5054``) or a conversation. Notes that
        are added go to the person's folder in memory/private. Both share the index; close this one.
        """
        if not (person is None or isinstance(person, Viewer)):
            from kept.sessions.people import People

            require_text(person=person)
            person = People(self.config).find(person)
        view = Memory(self.config, embedder=self._own_embedder, clock=self.clock, project=self.project, viewer=person)
        vars(view)["_service"] = self.index_service
        return view

    def __enter__(self) -> Memory:
        self._require_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the index. Every later use raises UsageError, except another `close`."""
        self._is_closed = True
        service: IndexService | None = vars(self).get("_service")
        if service is not None:
            service.close()

    def _require_open(self) -> None:
        if self._is_closed:
            raise UsageError("The memory is closed.", hint="Open it again with Memory.open().")

    def _require_unbound(self, what: str) -> None:
        """Raise UsageError in a memory for a person or a project, which would see the texts of others there."""
        self._require_open()
        if self.viewer is not None or self.project is not None:
            hint = "Open the memory without a person and without a project."
            raise UsageError(f"{what} has texts of everybody and of every project.", hint=hint)

    # notes

    def add(
        self,
        text: str,
        *,
        to: str | os.PathLike[str] | None = None,
        replaces: str | None = None,
        again: bool = False,
        by_tool: bool = False,
        only_propose: bool = False,
        project: str | None = None,
        author: Author | None = None,
        why: str = "",
        moment: dt.datetime | None = None,
        change_id: str | None = None,
    ) -> Written:
        """Append a text to today's log, to long-term memory (``to="memory"``) or to a note by its path.

        The text is on disk when this returns, and the next search finds it. Set ``by_tool`` if a model chose the
        text: then only MEMORY.md and notes below memory/ can be written. A text for a file of the system prompt is only
        proposed, and so is every text if ``review.agent_writes`` or ``only_propose`` says so: see
        `Written.is_proposed` and `review`. With ``project``, or in a memory that is bound to one, log and long-term
        memory are those of the project; ``project="none"`` writes to the shared ones. The history records ``author``
        and ``why``. ``moment`` is when it was said, if not now. A second call with the same ``change_id``, 16
        hexadecimal digits, writes nothing and returns the first result.

        ``replaces`` cites a line (``MEMORY.md#L12``) that the text takes the place of. That line is struck through and
        dated, and stays; the new one says since when it holds. It is written above the old one, or to today's log if
        that is in a daily note, unless ``to`` is given. Raise CitationMismatch if no fact that holds is cited.

        A single line that the note or long-term memory has already is not written, unless ``again`` is set;
        `Written.is_new` is False then. `Written.near` has the lines that the text repeats or seems to change.
        """
        from kept.notes.fact_match import may_be_fact
        from kept.notes.history.note_history import open_recorder, python_author
        from kept.notes.note_writer import Addition, NoteWriter

        self._require_open()
        if not isinstance(text, str):
            raise UsageError(f"A note is text, not {text!r:.80}.", hint="Decode bytes; format other values.")
        addition = Addition(text, None if to is None else os.fspath(to), replaces, again, project)
        is_bound = bool(project or self.project or self.viewer)
        addition = self.view.place(addition) if is_bound else addition
        similar: Sequence[str] = ()
        if self.settings.enabled and not again and replaces is None and may_be_fact(text):
            from kept.index.near_facts import find_notes

            filters = self.view.filter(addition.project) if is_bound else Filter()
            similar = find_notes(self.config, text, filters, limit=_COMPARED_PASSAGES)
        by = author or python_author(self.config)
        if only_propose or by_tool:
            from kept.notes.review_queue import propose, write_for_agent

            write = propose if only_propose else write_for_agent
            return write(self._review_queue(), addition, similar=similar, by=by, why=why)
        recorder = open_recorder(self.config, self.workspace, self.clock, by, why=why, change_id=change_id)
        writer = NoteWriter(self.workspace, moment or self.clock.now(), self.settings.max_file_bytes, recorder=recorder)
        return writer.commit(addition, similar)[0]

    def read(self, path: str | os.PathLike[str], *, start: int | None = None, lines: int | None = None) -> Passage:
        """Return lines of a note, or of a conversation as a search cites it (``sessions/….jsonl``).

        Instead of a path, ``path`` may be a citation (``memory/ideas.md#L3-L9``), a day ("yesterday", "12 November"),
        or the title or file name of a note if only one note has it. ``start`` and ``lines`` override a citation.
        """
        from kept.search.browse import read_reference

        self._require_open()
        return read_reference(self.view, os.fspath(path), self._find_note, start=start, lines=lines)

    def _find_note(self, name: str) -> str | None:
        from kept.search.browse import find_note

        return find_note(self.index_service, name, self.visible)

    # parts

    @property
    def notes(self) -> MemoryNotes:
        """Tags, links and projects of the notes."""
        from kept.search.browse import MemoryNotes

        return MemoryNotes(self.index_service, self.view)

    @property
    def history(self) -> MemoryHistory:
        """History of the notes: who changed what, when and why; `MemoryHistory.undo` takes a change back."""
        from kept.memory_history import MemoryHistory

        self._require_unbound("The history")
        return MemoryHistory(self.config, self.workspace, self.clock)

    @property
    def review(self) -> ReviewQueue:
        """Writes of agents that wait for a person."""
        self._require_unbound("What waits for review")
        return self._review_queue()

    def _review_queue(self) -> ReviewQueue:
        from kept.notes.review_queue import ReviewQueue

        return ReviewQueue(self.config, self.workspace, self.clock)

    @property
    def forgetting(self) -> MemoryForgetting:
        """Removal of something from every file: plan it, then apply the plan."""
        from kept.forgetting.forgetter import MemoryForgetting

        service, view = self.index_service, self.view
        search = functools.partial(self.search, max_results=5)
        return MemoryForgetting(self.config, self.workspace, service, self.clock, view, search)

    # the index

    @property
    def index_service(self) -> IndexService:
        """Index and everything that maintains it. For Kept's own packages: its methods may change."""
        self._require_open()
        service: IndexService | None = vars(self).get("_service")
        if service is None:
            from kept.search.service import IndexService

            embedder, limits = self._own_embedder, self._limits
            new = IndexService(self.config, self.workspace, self.clock, embedder=embedder, limits=limits)
            # Two threads may get here at once: setdefault is atomic, and the second service has opened nothing yet.
            service = vars(self).setdefault("_service", new)
        return service

    def search(
        self,
        query: str = "",
        *,
        max_results: int | None = None,
        min_score: float | None = None,
        source: str | None = None,
        path: str | os.PathLike[str] | None = None,
        session: str | None = None,
        session_key: str | None = None,
        channel: str | None = None,
        since: When | None = None,
        until: When | None = None,
        as_of: When | None = None,
        tags: str | Iterable[str] = (),
        project: str | None = None,
        seen: SeenTail | None = None,
        progress: Progress | None = None,
    ) -> SearchResult:
        """Return passages of notes and conversations that answer a query, best first.

        There are fewer than ``max_results`` (1 to 200), or none, if little matches; ``min_score`` is from 0 to 1.
        ``source`` is "memory" (notes) or "sessions" (conversations). ``since`` and ``until`` are a datetime (without a
        zone: local time), a date, a timedelta (that long ago) or a text such as "yesterday", "7d" or "2026-03-01".

        A query that is only a time ("what did I do yesterday"), or none with ``since`` or ``until``, lists that time,
        oldest first; then ``SearchResult.period`` tells how the time was read. ``session`` is the id of a session or
        the beginning of it, or the key of a conversation, full or short (``telegram:5054``); SessionNotFound is raised
        if there is none. ``session_key`` is a key that need not exist. With these or ``channel``, only conversations
        are searched. With ``tags``, only notes that have all of them; #area/home counts as #area too. With
        ``project``, or in a memory that is bound to one, notes and conversations of the project are preferred, and
        those of other projects are left out; ``project="none"`` leaves out those of all projects. ``seen`` is the end
        of a conversation that the caller knows: its passages are left out, and what was said there last need not be
        indexed first.

        ``as_of`` answers as it was at the end of that day: facts as they held then by their own dates, without daily
        notes and messages of later days. A time in the query ("in October") ranks facts the same way, but leaves
        nothing out. `Hit.validity` tells when a fact holds.
        """
        request = SearchRequest(
            query,
            max_results,
            min_score,
            source,
            path,
            session,
            session_key,
            channel,
            since,
            until,
            as_of,
            tags,
            project,
            seen,
        )
        with timed("search") as measured:
            result = self.view.search(self.index_service, request, progress)
            measured["failed"] = bool(result.degraded)
        return result

    def list(
        self,
        *,
        source: str | None = "memory",
        path: str | os.PathLike[str] | None = None,
        since: When | None = None,
        until: When | None = None,
        tags: str | Iterable[str] = (),
        order: Literal["time", "change"] = "time",
        max_results: int = 50,
        offset: int = 0,
        progress: Progress | None = None,
    ) -> Listing:
        """Return notes, or with ``source=None`` notes and conversations, newest first.

        ``order="time"`` goes by the time that they are from, such as the date of a daily note; ``order="change"`` by
        their last change. ``offset`` leaves out the first ones, for the next page of a long list.
        """
        from kept.search.browse import list_files

        require_number("max_results", max_results, 1, None, whole=True)
        require_number("offset", offset, 0, None, whole=True)
        request = SearchRequest(source=source, path=path, since=since, until=until, tags=tags)
        filters = self.view.make_filter(request)
        return list_files(
            self.index_service, filters, order=order, max_results=max_results, offset=offset, progress=progress
        )

    def sync(self, *, force: bool = False, progress: Progress | None = None) -> SyncReport:
        """Bring the index up to date with notes and conversations. ``force`` rebuilds it."""
        return self.index_service.sync(force=force, progress=progress)

    def status(self) -> Status:
        """Return the state of the index and its problems. Changes no note and no setting."""
        return self.view.visible_status(self.index_service)

    @property
    def visible(self) -> Filter:
        """Filter for what this memory sees. Empty unless it is bound to a project or for a person."""
        return self.view.filter()
