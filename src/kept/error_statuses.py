"""Exit code, HTTP status and JSON-RPC code of every error. A test checks that the table is total."""

from __future__ import annotations

from typing import NamedTuple

from kept.errors import (
    AgentNotFound,
    ArchiveError,
    BackendFailed,
    ChangeNotFound,
    ConfigError,
    EntryRefused,
    ForgetChanged,
    ForgetFailed,
    ForgetTooMuch,
    KeptError,
    LockBusy,
    NoteConflict,
    NoteNotFound,
    NoteTooLarge,
    PathRefused,
    ProjectNotFound,
    ReviewConflict,
    ReviewFull,
    ReviewItemNotFound,
    ScheduleNotFound,
    ScopeMissing,
    ServiceError,
    SessionAmbiguous,
    SessionError,
    SessionKeyInvalid,
    SessionNotFound,
    StoreBusy,
    StoreError,
    StoreFull,
    SyncError,
    SyncFailed,
    SyncRefused,
    TokenNotFound,
    TranscriptUnwritable,
    UndoConflict,
    UsageError,
    WorkspaceError,
    WorkspaceMissing,
    WriteFailed,
)
from kept.remote_errors import (
    ChannelError,
    ConversationFull,
    EmbeddingError,
    EmbeddingFailed,
    EndpointDown,
    MessageConflict,
    MessageNotFound,
    MessageRefused,
    ModelError,
    ModelFailed,
    ModelRefused,
    ModelSilent,
    ModelUnknown,
    NotSent,
    Overloaded,
    QueueFull,
    RemoteError,
    UnknownProvider,
)


class ErrorStatus(NamedTuple):
    """Codes that report an error on the command line, over HTTP and over MCP."""

    exit_code: int
    http: int
    jsonrpc: int


_INVALID_PARAMS = -32602
_INTERNAL_ERROR = -32603

STATUSES: dict[type[KeptError], ErrorStatus] = {
    # An error without a row takes the row of its nearest ancestor. HTTP 503 means: the same request may work later.
    KeptError: ErrorStatus(1, 500, _INTERNAL_ERROR),
    UsageError: ErrorStatus(2, 400, _INVALID_PARAMS),
    ScheduleNotFound: ErrorStatus(3, 404, _INVALID_PARAMS),
    TokenNotFound: ErrorStatus(3, 404, _INVALID_PARAMS),
    ScopeMissing: ErrorStatus(4, 403, _INVALID_PARAMS),
    ConfigError: ErrorStatus(2, 500, _INTERNAL_ERROR),
    AgentNotFound: ErrorStatus(3, 500, _INTERNAL_ERROR),
    WorkspaceError: ErrorStatus(8, 500, _INTERNAL_ERROR),
    WorkspaceMissing: ErrorStatus(3, 500, _INTERNAL_ERROR),
    ProjectNotFound: ErrorStatus(3, 404, _INVALID_PARAMS),
    NoteNotFound: ErrorStatus(3, 404, _INVALID_PARAMS),
    PathRefused: ErrorStatus(4, 403, _INVALID_PARAMS),
    ChangeNotFound: ErrorStatus(3, 404, _INVALID_PARAMS),
    UndoConflict: ErrorStatus(4, 409, _INVALID_PARAMS),
    ReviewItemNotFound: ErrorStatus(3, 404, _INVALID_PARAMS),
    ReviewConflict: ErrorStatus(4, 409, _INVALID_PARAMS),
    ReviewFull: ErrorStatus(8, 409, _INVALID_PARAMS),
    NoteConflict: ErrorStatus(4, 409, _INVALID_PARAMS),
    NoteTooLarge: ErrorStatus(8, 413, _INVALID_PARAMS),
    WriteFailed: ErrorStatus(8, 503, _INTERNAL_ERROR),
    LockBusy: ErrorStatus(5, 503, _INTERNAL_ERROR),
    ForgetFailed: ErrorStatus(8, 500, _INTERNAL_ERROR),
    ForgetTooMuch: ErrorStatus(2, 400, _INVALID_PARAMS),
    ForgetChanged: ErrorStatus(2, 409, _INVALID_PARAMS),
    StoreError: ErrorStatus(6, 500, _INTERNAL_ERROR),
    StoreFull: ErrorStatus(6, 503, _INTERNAL_ERROR),
    StoreBusy: ErrorStatus(5, 503, _INTERNAL_ERROR),
    EmbeddingError: ErrorStatus(7, 500, _INTERNAL_ERROR),
    UnknownProvider: ErrorStatus(2, 500, _INTERNAL_ERROR),
    EmbeddingFailed: ErrorStatus(7, 503, _INTERNAL_ERROR),
    BackendFailed: ErrorStatus(7, 503, _INTERNAL_ERROR),
    RemoteError: ErrorStatus(7, 500, _INTERNAL_ERROR),
    EndpointDown: ErrorStatus(7, 503, _INTERNAL_ERROR),
    Overloaded: ErrorStatus(7, 503, _INTERNAL_ERROR),
    ModelError: ErrorStatus(10, 500, _INTERNAL_ERROR),
    ModelFailed: ErrorStatus(10, 503, _INTERNAL_ERROR),
    ModelRefused: ErrorStatus(10, 500, _INTERNAL_ERROR),
    ModelSilent: ErrorStatus(10, 500, _INTERNAL_ERROR),
    SyncError: ErrorStatus(14, 500, _INTERNAL_ERROR),
    SyncRefused: ErrorStatus(4, 409, _INVALID_PARAMS),
    SyncFailed: ErrorStatus(14, 503, _INTERNAL_ERROR),
    ServiceError: ErrorStatus(12, 500, _INTERNAL_ERROR),
    ArchiveError: ErrorStatus(13, 500, _INTERNAL_ERROR),
    ChannelError: ErrorStatus(11, 500, _INTERNAL_ERROR),
    QueueFull: ErrorStatus(11, 503, _INTERNAL_ERROR),
    ConversationFull: ErrorStatus(11, 429, _INTERNAL_ERROR),
    MessageRefused: ErrorStatus(11, 400, _INVALID_PARAMS),
    MessageConflict: ErrorStatus(11, 409, _INVALID_PARAMS),
    MessageNotFound: ErrorStatus(11, 404, _INVALID_PARAMS),
    ModelUnknown: ErrorStatus(11, 404, _INVALID_PARAMS),
    NotSent: ErrorStatus(11, 503, _INTERNAL_ERROR),
    SessionError: ErrorStatus(9, 500, _INTERNAL_ERROR),
    SessionNotFound: ErrorStatus(3, 404, _INVALID_PARAMS),
    SessionAmbiguous: ErrorStatus(2, 400, _INVALID_PARAMS),
    SessionKeyInvalid: ErrorStatus(2, 400, _INVALID_PARAMS),
    EntryRefused: ErrorStatus(9, 400, _INVALID_PARAMS),
    TranscriptUnwritable: ErrorStatus(9, 503, _INTERNAL_ERROR),
}


def status_of(error: KeptError) -> ErrorStatus:
    """Return the codes of an error: those of its own row, or of its nearest ancestor's."""
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)
