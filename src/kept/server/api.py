"""The HTTP API: one route for each method of a memory.

    POST /v1/memory/search            {"query": "which port is staging on?"}
    POST /v1/memory/history/undo      {"change": ["3f2a91c0"]}
    GET  /v1/memory/openapi.json

A body has the arguments of the method by name. The answer is {"result": …}, what the method returns: its fields by
name, without those that have their default. A failure has the error of `--json`.
"""

from __future__ import annotations

import datetime as dt
import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import MISSING, field, fields, is_dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Literal, get_args, get_origin

import anyio.to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kept import __version__
from kept.agent.recent_context import Sent, recent_context
from kept.agent.tools.toolbox import Toolbox
from kept.base.grants import SCOPES, Act, Grant
from kept.base.json_values import read_value, to_tree, type_hints
from kept.base.listings import BrokenLinks, Listing, NoteLinks, TagList
from kept.base.net.serving import GRANT, ROUTE, App, error_body
from kept.base.records import Passage, SearchResult, Written
from kept.base.reports import Status
from kept.base.values import frozen
from kept.base.visibility import PROJECTS_FOLDER
from kept.client.remote_sessions import RestoredSession, SentDraft, SentLine
from kept.client.server_connection import API, TokenRights
from kept.errors import EntryRefused, KeptError, SessionKeyInvalid, UsageError
from kept.forgetting.forgetter import MemoryForgetting
from kept.forgetting.plan import ForgetPlan
from kept.forgetting.receipt import ForgetReceipt
from kept.gateway.channels.http import error_response, json_response, read_body
from kept.memory import Memory
from kept.memory_history import MemoryHistory
from kept.notes.history.note_history import Author, NoteChange
from kept.notes.history.undo import UndoResult
from kept.notes.projects import choose_project, list_projects
from kept.notes.replacement import FactReference
from kept.notes.review_queue import ReviewItem, ReviewList, ReviewPreview, ReviewQueue, ReviewResult
from kept.notes.workspace import is_instruction
from kept.search.browse import MemoryNotes
from kept.server.mcp.server import toolbox_of
from kept.sessions.deleted import DeletedSession
from kept.sessions.entries import DamagedEntry
from kept.sessions.importers.import_run import DraftWriter, SessionOutcome
from kept.sessions.record import SessionRecord
from kept.sessions.session_key import SessionKey
from kept.sessions.store import SessionStore
from kept.sessions.transcript import Damage

MAX_BODY_BYTES = 64_000_000
TOOL = "HTTP API"
"""Tool that the history records for a write."""

log = logging.getLogger(__name__)

Arguments = dict[str, Any]
Texts = tuple[str, ...]


@frozen
class ApiCall:
    """A call of an operation: the memory and the conversations as the token of the request sees them."""

    toolbox: Toolbox
    grant: Grant | None
    arguments: Arguments

    @property
    def memory(self) -> Memory:
        return self.toolbox.memory

    @property
    def author(self) -> Author:
        """The author that the history records for a write."""
        person, client = (self.grant.person, self.grant.name) if self.grant is not None else (None, None)
        return Author(tool=TOOL, person=person, client=client)

    def require_change(self, *paths: str) -> None:
        """Raise ScopeMissing if a note instructs agents, and the token may not change such a note."""
        if self.grant is not None and any(is_instruction(self.memory.workspace, path) for path in paths):
            self.grant.require("change instructions")

    def session(self) -> SessionRecord:
        """Return the session that the argument ``reference`` names, which is taken out."""
        return self.toolbox.sessions.get(self.arguments.pop("reference"), self.memory.viewer)


@frozen
class Operation:
    act: Act
    result: Any
    """Type of what it returns."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Types of its arguments by name."""
    required: Texts = ()
    run: Callable[[ApiCall], Any] | None = None
    """Without it, the method of the memory that the path names runs."""
    of_everybody: bool = False
    """True if the answer has texts of everybody, so that a token for one person is refused."""


def _add(call: ApiCall) -> Written:
    to, project, replaces = (call.arguments.get(name) for name in ("to", "project", "replaces"))
    paths = ["MEMORY.md"] if to == "memory" else [to] if to not in (None, "daily") else []
    paths += [f"{PROJECTS_FOLDER}/{project}/{to}"] if project and to else []
    paths += [FactReference.parse(replaces).path] if replaces is not None else []
    call.require_change(*paths)
    return call.memory.add(**call.arguments, author=call.author)


def _list(call: ApiCall) -> Listing:
    source = call.arguments.pop("source", "memory")
    return call.memory.list(source=None if source == "all" else source, **call.arguments)


def _diff(call: ApiCall) -> str:
    history = call.memory.history
    (change,) = history.find_changes([call.arguments["change"]])
    return history.diff(change)


def _undo(call: ApiCall) -> UndoResult:
    history, is_dry = call.memory.history, call.arguments.pop("dry_run", False)
    plan = history.undo(**call.arguments, author=call.author, dry_run=True)
    if is_dry or not plan.changes:
        return plan
    call.require_change(*(path for step in plan.steps for path in (step.path, step.was) if path))
    why = call.arguments.get("why", "")
    return history.undo([change.id for change in plan.changes], author=call.author, why=why)


def _preview(call: ApiCall) -> ReviewPreview:
    review = call.memory.review
    return review.preview(review.get(call.arguments["item_id"]))


def _accept(call: ApiCall) -> ReviewResult:
    return call.memory.review.accept(**call.arguments, author=call.author)


def _forget(call: ApiCall) -> ForgetReceipt:
    """Plan again what was shown, and remove the places that were chosen of it."""
    token, places = call.arguments.pop("token"), call.arguments.pop("places")
    plan = call.memory.forgetting.plan(call.arguments.pop("query", None), **call.arguments)
    plan.require_token(token)
    return call.memory.forgetting.apply(plan.choose(places))


def _read_session(call: ApiCall) -> list[SentLine]:
    sessions, session_id, messages = call.toolbox.sessions, call.session().id, call.arguments.get("messages")
    lines = sessions.iter_lines(session_id) if messages is None else sessions.tail(session_id, messages)
    return [
        SentLine(
            line.number,
            line.raw.decode("utf-8", "replace"),
            line.content.reason if isinstance(line.content, Damage) else "",
        )
        for line in lines
    ]


def _rights(call: ApiCall) -> TokenRights:
    """Return what the token may do, and for whom it is."""
    agent = call.memory.config.agent_id
    if call.grant is None:
        return TokenRights(agent, "everybody", SCOPES)
    return TokenRights(agent, call.grant.name, tuple(sorted(call.grant.scopes)), call.grant.person)


def _recent_sessions(call: ApiCall) -> list[SessionRecord]:
    return call.toolbox.visible_sessions(**call.arguments)


def _rename_session(call: ApiCall) -> SessionRecord:
    return call.toolbox.sessions.rename(call.session().id, call.arguments["title"])


def _reset_session(call: ApiCall) -> SessionRecord:
    return call.toolbox.sessions.reset(call.session().id)


def _delete_session(call: ApiCall) -> str:
    """Return the renamed transcript, or nothing if it was purged."""
    purge = call.arguments.get("purge", False)
    if purge and call.grant is not None:
        call.grant.require("forget")
    reference = call.arguments["reference"]
    is_deleted = purge and call.toolbox.sessions.find_deleted(reference) is not None
    session_id = reference if is_deleted else call.session().id
    return call.toolbox.sessions.delete(session_id, purge=purge) or ""


def _restore_session(call: ApiCall) -> RestoredSession:
    return RestoredSession(*call.toolbox.sessions.restore(call.arguments["reference"]))


def _list_deleted(call: ApiCall) -> list[DeletedSession]:
    return call.toolbox.sessions.deleted()


def _import_draft(call: ApiCall) -> SessionOutcome:
    """Write what is new of a session that was read from the files of another program."""
    try:
        draft = call.arguments["draft"].to_draft()
    except DamagedEntry as exc:
        raise EntryRefused(f"The session {call.arguments['draft'].id:.64} cannot be read: {exc}.") from exc
    if SessionKey.parse_full(draft.start.key).agent_id != call.memory.config.agent_id:
        raise SessionKeyInvalid("The session is of another agent.", hint="Log in again: kept login URL")
    return DraftWriter(call.toolbox.sessions).write_draft(draft)


def _find_project(call: ApiCall) -> str:
    """Return the project of a repository, or nothing."""
    return choose_project(list_projects(call.memory.workspace), call.arguments["repository"]) or ""


def _context(call: ApiCall) -> str:
    """Return what another agent gets at the start of a session."""
    memory, project = call.memory, _find_project(call) or None
    bound = Memory(memory.config, clock=memory.clock, project=project, viewer=memory.viewer)
    chosen = {name: call.arguments.get(name) for name in ("cwd", "current", "sent")}
    return recent_context(bound, call.toolbox.sessions, **chosen)


_TO_FORGET = {"query": str, "session": str, "person": str, "before": str, "allow_all": bool}
_PERIOD = {"since": str, "until": str}
_REFERENCE: dict[str, Any] = {"reference": str}

OPERATIONS: dict[str, Operation] = {
    "search": Operation(
        "read",
        SearchResult,
        {
            **{"query": str, "max_results": int, "min_score": float, "source": str, "path": str, "session": str},
            **{"session_key": str, "channel": str, **_PERIOD, "as_of": str, "tags": Texts, "project": str},
        },
    ),
    "add": Operation(
        "write notes",
        Written,
        {
            "text": str,
            "to": str,
            "replaces": str,
            "again": bool,
            "project": str,
            "why": str,
            "moment": dt.datetime,
            "change_id": str,
        },
        ("text",),
        _add,
    ),
    "read": Operation("read", Passage, {"path": str, "start": int, "lines": int}, ("path",)),
    "list": Operation(
        "read",
        Listing,
        {
            **{"source": Literal["memory", "sessions", "all"], "path": str, **_PERIOD, "tags": Texts},
            **{"order": Literal["time", "change"], "max_results": int, "offset": int},
        },
        run=_list,
    ),
    "status": Operation("read", Status),
    "rights": Operation("read", TokenRights, run=_rights),
    "notes/tags": Operation("read", TagList),
    "notes/links": Operation("read", NoteLinks, {"note": str}, ("note",)),
    "notes/broken_links": Operation("read", BrokenLinks),
    "notes/find_project": Operation("read", str, {"repository": Texts}, ("repository",), _find_project),
    "notes/name_nearest": Operation("read", str, {"name": str}, ("name",)),
    "history/changes": Operation(
        "read",
        tuple[NoteChange, ...],
        {"note": str, "since": str, "by": str, "session": str, "max_results": int},
        of_everybody=True,
    ),
    "history/find_changes": Operation("read", tuple[NoteChange, ...], {"ids": Texts}, ("ids",), of_everybody=True),
    "history/diff": Operation("read", str, {"change": str}, ("change",), _diff, of_everybody=True),
    "history/undo": Operation(
        "write notes",
        UndoResult,
        {"change": Texts, "session": str, "since": str, "by": str, "why": str, "dry_run": bool},
        run=_undo,
        of_everybody=True,
    ),
    "review/list": Operation("review changes", ReviewList, {"session": str}, of_everybody=True),
    "review/get": Operation("review changes", ReviewItem, {"item_id": str}, ("item_id",), of_everybody=True),
    "review/preview": Operation(
        "review changes", ReviewPreview, {"item_id": str}, ("item_id",), _preview, of_everybody=True
    ),
    "review/accept": Operation(
        "review changes", ReviewResult, {"item_id": str, "text": str}, ("item_id",), _accept, of_everybody=True
    ),
    "review/reject": Operation("review changes", ReviewResult, {"item_id": str}, ("item_id",), of_everybody=True),
    "forgetting/plan": Operation("forget", ForgetPlan, _TO_FORGET),
    "forgetting/apply": Operation(
        "forget", ForgetReceipt, {**_TO_FORGET, "token": str, "places": str}, ("token", "places"), _forget
    ),
    "sessions/recent": Operation("read", tuple[SessionRecord, ...], {"channel": str}, run=_recent_sessions),
    "sessions/get": Operation("read", SessionRecord, _REFERENCE, ("reference",), ApiCall.session),
    "sessions/iter_lines": Operation(
        "read", tuple[SentLine, ...], {**_REFERENCE, "messages": int}, ("reference",), _read_session
    ),
    "sessions/rename": Operation(
        "write notes", SessionRecord, {**_REFERENCE, "title": str}, ("reference", "title"), _rename_session
    ),
    "context": Operation(
        "read",
        str,
        {"cwd": str, "current": str, "sent": Sent, "repository": Texts},
        ("repository",),
        _context,
        of_everybody=True,
    ),
    "sessions/import_draft": Operation(
        "write notes", SessionOutcome, {"draft": SentDraft}, ("draft",), _import_draft, of_everybody=True
    ),
    "sessions/deleted": Operation("read", tuple[DeletedSession, ...], run=_list_deleted, of_everybody=True),
    "sessions/delete": Operation(
        "write notes", str, {**_REFERENCE, "purge": bool}, ("reference",), _delete_session, of_everybody=True
    ),
    "sessions/restore": Operation(
        "write notes", RestoredSession, _REFERENCE, ("reference",), _restore_session, of_everybody=True
    ),
    "sessions/reset": Operation("talk to the agent", SessionRecord, _REFERENCE, ("reference",), _reset_session),
}


def make_api(toolbox: Toolbox) -> App:
    """Return the application of an agent, without a guard."""
    routes = [_make_route(toolbox, path, operation) for path, operation in OPERATIONS.items()]

    async def describe(request: Request) -> Response:
        request.scope[ROUTE] = f"{API}openapi.json"
        return json_response(describe_api())

    return Starlette(routes=[*routes, Route(f"{API}openapi.json", describe)])


def _make_route(toolbox: Toolbox, path: str, operation: Operation) -> Route:
    async def answer(request: Request) -> Response:
        request.scope[ROUTE] = API + path
        grant: Grant | None = request.scope.get(GRANT)
        try:
            if grant is not None:
                grant.require(operation.act)
                if operation.of_everybody:
                    grant.require_everybody()
            arguments = read_arguments(operation, await read_body(request, MAX_BODY_BYTES))
            run = partial(run_operation, toolbox, path, arguments, grant)
            return json_response({"result": to_tree(await anyio.to_thread.run_sync(run))})
        except KeptError as exc:
            return error_response(exc)
        except Exception:  # a client reads every answer as JSON
            log.exception("%s failed", path)
            return json_response(
                error_body("internal", "Unexpected error. The log of the server has the details."), 500
            )

    route = Route(API + path, answer, methods=["POST"])
    route.name = operation.act  # shown to the test that lists all routes
    return route


def run_operation(toolbox: Toolbox, path: str, arguments: Arguments, grant: Grant | None) -> Any:
    """Run an operation on the memory as the token of a request sees it."""
    call = ApiCall(toolbox_of(toolbox, grant), grant, arguments)
    if run := OPERATIONS[path].run:
        return run(call)
    return attrgetter(path.replace("/", "."))(call.memory)(**arguments)


def read_arguments(operation: Operation, body: Any) -> Arguments:
    """Return the arguments of a body. Raise UsageError. One that is null is left out."""
    if not isinstance(body, dict):
        raise UsageError("The body has to be an object with the arguments by name.", hint='Such as {"query": "…"}.')
    arguments: Arguments = {}
    for name, value in body.items():
        hint = operation.parameters.get(name)
        if hint is None:
            raise UsageError(
                f"'{name[:64]}' is not an argument.", hint=f"There are: {', '.join(operation.parameters)}."
            )
        if value is None:
            continue
        try:
            arguments[name] = read_value(hint, float(value) if hint is float and type(value) is int else value)
        except ValueError:
            raise UsageError(f"'{name}' has to be {_describe_type(hint)}.", hint=f"See {API}openapi.json.") from None
    missing = [name for name in operation.required if name not in arguments]
    if missing:
        raise UsageError(f"The argument '{missing[0]}' is missing.", hint=f"See {API}openapi.json.")
    return arguments


_PARTS: dict[str, type] = {
    "": Memory,
    "notes": MemoryNotes,
    "history": MemoryHistory,
    "review": ReviewQueue,
    "forgetting": MemoryForgetting,
    "sessions": SessionStore,
}
_JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}


def _describe_type(hint: Any) -> str:
    return "a list of strings" if hint == Texts else f"of the type {_JSON_TYPES.get(hint, 'that OpenAPI describes')}"


# OpenAPI


def describe_api() -> dict[str, Any]:
    """Return the description of all routes, with a schema for each class that an answer has."""
    schemas: dict[str, Any] = {}
    error = {"type": "object", "properties": {name: {"type": "string"} for name in ("code", "message", "hint")}}
    failure = {"description": "The error", "content": _json_content({"type": "object", "properties": {"error": error}})}
    paths = {}
    for path, operation in OPERATIONS.items():
        body = {
            "type": "object",
            "properties": {name: _schema(hint, schemas) for name, hint in operation.parameters.items()},
            "required": list(operation.required),
            "additionalProperties": False,
        }
        result = {"type": "object", "properties": {"result": _schema(operation.result, schemas)}}
        success = {"description": "The result", "content": _json_content(result)}
        paths[API + path] = {
            "post": {
                "operationId": path.replace("/", "_"),
                "summary": _summary(path),
                "description": f"Needs a token that may {operation.act}.",
                "requestBody": {"required": True, "content": _json_content(body)},
                "responses": {"200": success, "default": failure},
            }
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Kept", "version": __version__},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }


def _json_content(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _summary(path: str) -> str:
    """Return the first sentence of the documentation of a method."""
    part, _, name = path.rpartition("/")
    text = inspect.getdoc(getattr(_PARTS[part], name, OPERATIONS[path].run)) or ""
    return " ".join(text.partition("\n\n")[0].split())


def _schema(hint: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a type. Those of classes are added to ``schemas``, and referred to."""
    origin, args = get_origin(hint), get_args(hint)
    if is_dataclass(hint) and isinstance(hint, type):
        if hint.__name__ not in schemas:
            schemas[hint.__name__] = {}  # it may refer to itself
            schemas[hint.__name__] = _class_schema(hint, schemas)
        return {"$ref": f"#/components/schemas/{hint.__name__}"}
    if origin is tuple:
        return {"type": "array", "items": _schema(args[0], schemas)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(args[1], schemas)}
    if origin is Literal:
        return {"enum": list(args)}
    if type(None) in args:
        return {"anyOf": [_schema(args[0], schemas), {"type": "null"}]}
    if hint in (dt.datetime, bytes):
        return {"type": "string", "format": "date-time" if hint is dt.datetime else "byte"}
    return {"type": _JSON_TYPES[hint]} if hint in _JSON_TYPES else {}


def _class_schema(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    hints = type_hints(kind)
    properties = {spec.name: _schema(hints[spec.name], schemas) for spec in fields(kind)}
    required = [spec.name for spec in fields(kind) if spec.default is MISSING and spec.default_factory is MISSING]
    return {"type": "object", "properties": properties, "required": required}
