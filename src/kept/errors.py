"""Every error that Kept raises on purpose.

    KeptError
    ├── UsageError              what was asked for makes no sense as it stands
    │   ├── EmptyQuery
    │   ├── EmptyNote
    │   └── BenchSetInvalid     a folder that is no set of documents and queries, or a line of it
    ├── ConfigError             a setting is unknown, misplaced or of the wrong kind
    ├── WorkspaceError
    │   ├── WorkspaceMissing
    │   ├── NoteNotFound
    │   ├── PathRefused         a path that leads out of the workspace, or is not a note
    │   ├── NoteTooLarge
    │   ├── WriteFailed         a note could not be written; it is as it was before
    │   └── LockBusy            another process holds the lock for longer than we wait
    ├── StoreError              the search index (derived: never a reason to lose a note)
    │   ├── StoreDamaged
    │   ├── StoreFull
    │   ├── StoreBusy
    │   ├── StoreTooNew
    │   ├── ForkedWhileBusy     a forked child in which SQLite would hang
    │   └── StoreUnavailable
    ├── EmbeddingError
    │   ├── UnknownProvider
    │   ├── EmbedderUnavailable the provider cannot be used here as configured
    │   │   └── AccessRefused   it wants a key, or does not accept the one it got
    │   └── EmbeddingFailed     the provider was asked and did not deliver
    ├── BackendFailed           another program that answers searches did not; our own index does instead
    ├── RemoteError             a service on the network; whoever called it says what that means for the user
    │   ├── EndpointDown        it cannot be reached, or does not answer in time
    │   ├── Overloaded          it answers that it cannot at the moment
    │   ├── RequestRefused      it does not accept the request
    │   │   └── QuotaExhausted  ... because what was paid for is used up
    │   └── BadAnswer           what it answers cannot be understood
    ├── ModelError              the chat model
    │   ├── ModelUnavailable    none is configured, or it cannot be used here as configured
    │   ├── ModelFailed         it was asked and did not deliver
    │   │   └── ModelRefused    ... and will not, however often it is asked the same
    │   ├── ContextOverflow     it says that what it was sent is longer than it takes
    │   └── BudgetExhausted     the day's budget is used up; nothing was sent
    ├── ChannelError            where messages come from and replies go to
    │   ├── ChannelUnavailable  it cannot be used here as configured
    │   ├── QueueFull           nothing was accepted: more waits than is taken
    │   │   └── ConversationFull ... in this conversation
    │   ├── MessageRefused      a message that cannot be understood
    │   ├── MessageConflict     its id belongs to another message
    │   ├── MessageNotFound
    │   ├── NotSent             the reply has certainly not left; sending it again is safe
    │   └── DeliveryRefused     the reply has not left and never will
    └── SessionError
        ├── SessionNotFound
        ├── SessionAmbiguous    the beginning of an id that fits more than one session
        ├── SessionExists       a session of that id is there already
        ├── SessionKeyInvalid
        ├── EntryRefused        an entry that cannot be written down as JSON
        ├── TranscriptUnreadable
        ├── TranscriptUnwritable nothing was added; what was there is as it was
        └── TranscriptTooNew    written by a later version; it can be read, not added to

Each carries a ``code`` for programs, a ``hint`` that says what to do, and whether trying again can help.
"""

from __future__ import annotations

from typing import ClassVar


class KeptError(Exception):
    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False
    default_hint: ClassVar[str] = ""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = self.default_hint if hint is None else hint

    def __str__(self) -> str:
        return self.message


class UsageError(KeptError):
    code = "usage"


class EmptyQuery(UsageError):
    code = "empty_query"
    default_hint = "Say what to look for, for example: kept search 'what did we decide about backups'"


class EmptyNote(UsageError):
    code = "empty_note"
    default_hint = "Give the text to remember, or '-' to read it from standard input."


class BenchSetInvalid(UsageError):
    code = "bench_set_invalid"
    default_hint = "'kept bench --init DIR' writes a set to begin with, and a README that describes its files."


class ConfigError(KeptError):
    code = "config"
    default_hint = "'kept config path' shows the files that are read."


class WorkspaceError(KeptError):
    code = "workspace"


class WorkspaceMissing(WorkspaceError):
    code = "workspace_missing"
    default_hint = "Create it with 'kept init', or name another with --workspace."


class NoteNotFound(WorkspaceError):
    code = "note_not_found"
    default_hint = "'kept search' shows paths that exist."


class PathRefused(WorkspaceError):
    code = "path_refused"
    default_hint = "Name a Markdown file inside the workspace, such as memory/ideas.md."


class NoteTooLarge(WorkspaceError):
    code = "note_too_large"
    default_hint = "Split the note into smaller files."


class WriteFailed(WorkspaceError):
    code = "write_failed"
    retryable = True
    default_hint = "The note is as it was before. Check free space and permissions, then try again."


class LockBusy(WorkspaceError):
    code = "lock_busy"
    retryable = True
    default_hint = "Another Kept process is writing. Try again in a moment."


class StoreError(KeptError):
    code = "index"


class StoreDamaged(StoreError):
    code = "index_damaged"
    default_hint = "Run 'kept index' to rebuild it; notes are not affected."


class StoreFull(StoreError):
    code = "disk_full"
    retryable = True
    default_hint = "Free some space and run 'kept index' again; notes are not affected."


class StoreBusy(StoreError):
    code = "index_busy"
    retryable = True
    default_hint = "Another process is writing the index. Try again in a moment."


class StoreTooNew(StoreError):
    code = "index_too_new"
    default_hint = "Upgrade Kept, or delete the index: it is rebuilt from the notes."


class ForkedWhileBusy(StoreError):
    code = "forked_while_busy"
    default_hint = (
        "Fork before other threads use the memory, or start processes with multiprocessing.get_context('spawn')."
    )


class StoreUnavailable(StoreError):
    code = "index_unavailable"
    default_hint = "Check that the folder exists and is writable, or choose another with --home."


class EmbeddingError(KeptError):
    code = "embedding"


class UnknownProvider(EmbeddingError):
    code = "unknown_provider"


class EmbedderUnavailable(EmbeddingError):
    code = "embedder_unavailable"


class AccessRefused(EmbedderUnavailable):
    code = "access_refused"


class EmbeddingFailed(EmbeddingError):
    code = "embedding_failed"
    retryable = True


class BackendFailed(KeptError):
    code = "backend_failed"
    retryable = True


class RemoteError(KeptError):
    code = "remote"


class EndpointDown(RemoteError):
    code = "endpoint_down"
    retryable = True


class Overloaded(RemoteError):
    code = "overloaded"
    retryable = True


class RequestRefused(RemoteError):
    """``status`` is the HTTP status, or the one that the answer should have had; ``detail`` what the service says."""

    code = "request_refused"

    def __init__(self, message: str, *, status: int, detail: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.detail = detail


class QuotaExhausted(RequestRefused):
    code = "quota_exhausted"


class BadAnswer(RemoteError):
    code = "bad_answer"


class ModelError(KeptError):
    code = "model"


class ModelUnavailable(ModelError):
    code = "model_unavailable"
    default_hint = "Set agents.defaults.model.provider (claude_cli, anthropic or openai) in config.yaml."


class ModelFailed(ModelError):
    code = "model_failed"
    retryable = True


class ModelRefused(ModelFailed):
    code = "model_refused"
    retryable = False


class ContextOverflow(ModelError):
    code = "context_overflow"


class BudgetExhausted(ModelError):
    code = "budget_exhausted"
    default_hint = "Raise model.daily_budget_tokens, or wait until tomorrow."


class ChannelError(KeptError):
    code = "channel"


class ChannelUnavailable(ChannelError):
    code = "channel_unavailable"


class QueueFull(ChannelError):
    code = "queue_full"
    retryable = True
    default_hint = "Nothing was accepted. Send it again in a few seconds, with the same id."


class ConversationFull(QueueFull):
    code = "conversation_full"


class MessageRefused(ChannelError):
    code = "message_refused"


class MessageConflict(ChannelError):
    code = "message_conflict"
    default_hint = "Give every message an id of its own, or none."


class MessageNotFound(ChannelError):
    code = "message_not_found"
    default_hint = "Replies are kept until some thousand newer ones are there."


class NotSent(ChannelError):
    code = "not_sent"
    retryable = True

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class DeliveryRefused(ChannelError):
    code = "delivery_refused"


class SessionError(KeptError):
    code = "session"


class SessionNotFound(SessionError):
    code = "session_not_found"
    default_hint = "'kept sessions list' shows the sessions there are."


class SessionAmbiguous(SessionError):
    code = "session_ambiguous"
    default_hint = "Give more of the id."


class SessionExists(SessionError):
    code = "session_exists"
    default_hint = "It was brought in before; nothing was changed."


class SessionKeyInvalid(SessionError):
    code = "session_key_invalid"
    default_hint = "A key looks like telegram:5054 or agent:main:telegram:default:direct:5054."


class EntryRefused(SessionError):
    code = "entry_refused"
    default_hint = "Entries hold text, whole and finite numbers, true, false, null, lists and objects with text keys."


class TranscriptUnreadable(SessionError):
    code = "transcript_unreadable"
    default_hint = "Check that the file is there and that you may read it."


class TranscriptUnwritable(SessionError):
    code = "transcript_unwritable"
    retryable = True
    default_hint = "Nothing was added. Check free space and permissions, then try again."


class TranscriptTooNew(SessionError):
    code = "transcript_too_new"
    default_hint = "Upgrade Kept to go on with this session; it can still be read and exported."
