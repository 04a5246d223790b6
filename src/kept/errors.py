"""Errors that Kept raises on purpose. Those of providers, models and channels are in `remote_errors`.

    KeptError
    ├── UsageError              the request makes no sense
    │   ├── EmptyQuery
    │   ├── EmptyNote
    │   ├── CitationMismatch    a citation whose lines are not what the caller means
    │   ├── ScheduleInvalid     a time, a time zone or an address of a schedule that cannot be read
    │   └── BenchSetInvalid     a folder that is not a benchmark set, or a malformed line in one
    ├── NotFound                no schedule, token, project, change or item for review has this name or id
    │   └── LoginRefused        the server that this machine is logged in to does not accept the token
    ├── ScopeMissing            the token of a request does not allow it
    ├── ConfigError             a setting is unknown, misplaced or of the wrong type
    │   └── AgentNotFound       no agent has this name
    ├── WorkspaceError
    │   ├── WorkspaceMissing
    │   ├── NoteNotFound
    │   ├── PathRefused         a path outside the workspace, or not a note
    │   ├── NoteTooLarge
    │   ├── NoteConflict        the note has changed since it was read or written; nothing was changed
    │   ├── WriteFailed         a file could not be written; it is unchanged
    │   │   └── WriteUnfinished a part of a change is written; the rest follows by itself
    │   ├── HistoryDamaged      an old version of a note is missing or damaged; notes are not
    │   ├── ReviewFull          too many changes wait for review
    │   ├── DocumentNotFound    the storage has no document with this path
    │   ├── StorageConflict     a document or a log is not as the caller expects; nothing was changed
    │   ├── LeaseLost           another process holds the lease by now; nothing was changed
    │   ├── LockMissing         the folder or file to lock does not exist
    │   └── LockBusy            another process held the lock until the timeout
    ├── ForgetFailed            a forget could not be planned or finished
    │   ├── ForgetTooMuch       it would remove a large part of the memory, and needs consent to that
    │   └── ForgetChanged       the places are not those that were confirmed
    ├── StoreError              the search index (derived: never a reason to lose a note)
    │   ├── StoreDamaged
    │   ├── StoreFull
    │   ├── StoreBusy
    │   ├── StoreTooNew
    │   └── StoreUnavailable
    ├── DatabaseError           PostgreSQL, in which servers keep a memory
    │   ├── DatabaseUnreachable
    │   ├── DatabaseBusy
    │   ├── DatabaseRefused     a login, a right, a name or a table is missing
    │   └── DatabaseTooNew      its tables were made by a later version of Kept
    ├── ServerUnreachable       the server that this machine is logged in to does not answer
    ├── BackendFailed           an external search program failed; the built-in index answers instead
    ├── ServiceError            the system's service manager could not be used
    ├── SyncRefused             the repository is not in a state to synchronise; nothing was changed
    ├── SyncFailed              git or the remote failed; what was written here stays and is sent later
    ├── ArchiveError            an archive of `kept export`
    │   ├── ArchiveRefused      not such an archive, or one that was made to do harm
    │   └── ArchiveDamaged      truncated, or with a checksum that does not match
    └── SessionError
        ├── SessionNotFound
        ├── SessionExists       a session with this id exists
        ├── SessionDeleted      the user deleted it, so that it is not imported again
        ├── SessionKeyInvalid
        ├── EntryRefused        an entry that cannot be written as JSON
        └── TranscriptTooNew    written by a later version; readable, but not appendable

Each error has a ``code`` for programs, a ``hint`` that says what to do, ``retryable``, and the codes that report it on
the command line, over HTTP and over MCP.
"""

from __future__ import annotations

from typing import ClassVar


class KeptError(Exception):
    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False
    default_hint: ClassVar[str] = ""
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 0
    """0 for a status that follows from ``retryable``."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = self.default_hint if hint is None else hint

    def __str__(self) -> str:
        """Return message and hint, as a traceback shows them."""
        return f"{self.message} {self.hint}" if self.hint else self.message

    @property
    def http(self) -> int:
        """HTTP status. 503 and 429 mean: the same request may work later."""
        return self.http_status or (503 if self.retryable else 500)

    @property
    def jsonrpc(self) -> int:
        """JSON-RPC code: invalid parameters if the request is at fault, else an internal error."""
        return -32602 if 400 <= self.http < 500 and not self.retryable else -32603


class UsageError(KeptError):
    code = "usage"
    exit_code = 2
    http_status = 400


class EmptyQuery(UsageError):
    code = "empty_query"
    default_hint = "Enter a query, for example: kept search 'what did we decide about backups'"


class EmptyNote(UsageError):
    code = "empty_note"
    default_hint = "Give the text to remember, or '-' to read it from standard input."


class CitationMismatch(UsageError):
    code = "citation_mismatch"
    default_hint = "Search again, and cite the line as it is now."


class ScheduleInvalid(UsageError):
    code = "schedule_invalid"
    default_hint = "'kept schedule add --help' shows what can be written."


class BenchSetInvalid(UsageError):
    code = "bench_set_invalid"
    default_hint = "docs/tasks/measuring-recall.md describes the files of a set."


class NotFound(KeptError):
    code = "not_found"
    exit_code = 3
    http_status = 404


class LoginRefused(NotFound):
    code = "login_refused"


class ScopeMissing(KeptError):
    code = "scope_missing"
    exit_code = 4
    http_status = 403
    default_hint = "Ask for another token: 'kept token create' makes them."


class ConfigError(KeptError):
    code = "config"
    exit_code = 2
    default_hint = "'kept config path' shows the file that is read."


class AgentNotFound(ConfigError):
    code = "agent_not_found"
    exit_code = 3
    http_status = 404
    default_hint = "'kept config agents list' shows the agents there are."


class WorkspaceError(KeptError):
    code = "workspace"
    exit_code = 8


class WorkspaceMissing(WorkspaceError):
    code = "workspace_missing"
    exit_code = 3
    default_hint = "Create it with 'kept init', or name another with --workspace."


class NoteNotFound(WorkspaceError):
    code = "note_not_found"
    exit_code = 3
    http_status = 404
    default_hint = "'kept search' shows paths that exist."


class PathRefused(WorkspaceError):
    code = "path_refused"
    exit_code = 4
    http_status = 403
    default_hint = "Name a Markdown file inside the workspace, such as memory/ideas.md."


class NoteTooLarge(WorkspaceError):
    code = "note_too_large"
    http_status = 413
    default_hint = "Split the note into smaller files."


class NoteConflict(WorkspaceError):
    code = "note_conflict"
    exit_code = 4
    http_status = 409
    default_hint = "Compare your text with the note as it is now, and save again."


class WriteFailed(WorkspaceError):
    code = "write_failed"
    retryable = True
    default_hint = "The file is unchanged. Check free space and permissions, then try again."


class WriteUnfinished(WriteFailed):
    code = "write_unfinished"
    retryable = False
    default_hint = "Do not repeat the change: it is written down, and finished as soon as the disk allows it."


class HistoryDamaged(WorkspaceError):
    code = "history_damaged"
    default_hint = "'kept doctor' checks the history. Notes are not affected."


class ReviewFull(WorkspaceError):
    code = "review_full"
    http_status = 409
    default_hint = "A person decides about them with 'kept review'."


class DocumentNotFound(WorkspaceError):
    code = "document_not_found"
    exit_code = 3
    http_status = 404


class StorageConflict(WorkspaceError):
    code = "storage_conflict"
    exit_code = 4
    http_status = 409
    default_hint = "Nothing was changed. Read it again, then repeat the change."


class LeaseLost(WorkspaceError):
    code = "lease_lost"
    http_status = 409
    default_hint = "Nothing was changed. Another process does this work now."


class LockMissing(WorkspaceError):
    code = "lock_missing"


class LockBusy(WorkspaceError):
    code = "lock_busy"
    exit_code = 5
    retryable = True
    default_hint = "Another Kept process is writing. Try again in a moment."

    def __init__(self, message: str, *, path: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.path = path


class ForgetFailed(KeptError):
    code = "forget_failed"
    exit_code = 8


class ForgetTooMuch(ForgetFailed):
    code = "forget_too_much"
    exit_code = 2
    http_status = 400
    default_hint = "Name it more exactly, or use --all if all of it should go."


class ForgetChanged(ForgetFailed):
    code = "forget_changed"
    exit_code = 2
    http_status = 409
    default_hint = "Look at the places again, and confirm those."


class StoreError(KeptError):
    code = "index"
    exit_code = 6


class StoreDamaged(StoreError):
    code = "index_damaged"
    default_hint = "Run 'kept index' to rebuild it; notes are not affected."


class StoreFull(StoreError):
    code = "disk_full"
    retryable = True
    default_hint = "Free some space and run 'kept index' again; notes are not affected."


class StoreBusy(StoreError):
    code = "index_busy"
    exit_code = 5
    retryable = True
    default_hint = "Another process is writing the index. Try again in a moment."


class StoreTooNew(StoreError):
    code = "index_too_new"
    default_hint = "Upgrade Kept, or delete the index: it is rebuilt from the notes."


class StoreUnavailable(StoreError):
    code = "index_unavailable"
    default_hint = "Make it writable, or choose another folder with --home."


class DatabaseError(KeptError):
    code = "database"
    exit_code = 6


class DatabaseUnreachable(DatabaseError):
    code = "database_unreachable"
    retryable = True
    default_hint = "Check that the server runs and that the address is right, then try again."


class DatabaseBusy(DatabaseError):
    code = "database_busy"
    exit_code = 5
    retryable = True
    default_hint = "Try again in a moment."


class DatabaseRefused(DatabaseError):
    code = "database_refused"


class DatabaseTooNew(DatabaseError):
    code = "database_too_new"
    default_hint = "Upgrade Kept on this server."


class ServerUnreachable(KeptError):
    code = "server_unreachable"
    exit_code = 6
    retryable = True


class BackendFailed(KeptError):
    code = "backend_failed"
    exit_code = 7
    retryable = True


class ServiceError(KeptError):
    code = "service"
    exit_code = 12


class SyncRefused(KeptError):
    code = "sync_refused"
    exit_code = 4
    http_status = 409


class SyncFailed(KeptError):
    code = "sync_failed"
    exit_code = 14
    retryable = True
    default_hint = "What was written here stays, and is sent by the next sync."

    def __init__(self, message: str, *, hint: str | None = None, output: str = "") -> None:
        super().__init__(message, hint=hint)
        self.output = output
        """Everything that git said."""


class ArchiveError(KeptError):
    code = "archive"
    exit_code = 13


class ArchiveRefused(ArchiveError):
    code = "archive_refused"
    default_hint = "Nothing was changed. Name an archive that 'kept export' made."


class ArchiveDamaged(ArchiveError):
    code = "archive_damaged"
    default_hint = "Nothing was changed. Use another copy of the archive."


class SessionError(KeptError):
    code = "session"
    exit_code = 9


class SessionNotFound(SessionError):
    code = "session_not_found"
    exit_code = 3
    http_status = 404
    default_hint = "'kept sessions list' shows all sessions."


class SessionExists(SessionError):
    code = "session_exists"
    default_hint = "It was imported before; nothing was changed."


class SessionDeleted(SessionError):
    code = "session_deleted"
    default_hint = "'kept sessions restore ID' brings a deleted session back."


class SessionKeyInvalid(SessionError):
    code = "session_key_invalid"
    exit_code = 2
    http_status = 400
    default_hint = "A key looks like telegram:5054 or agent:main:telegram:default:direct:5054."


class EntryRefused(SessionError):
    code = "entry_refused"
    http_status = 400
    default_hint = "Entries hold text, whole and finite numbers, true, false, null, lists and objects with text keys."


class TranscriptTooNew(SessionError):
    code = "transcript_too_new"
    default_hint = "Upgrade Kept to continue this session; it can still be read and exported."
