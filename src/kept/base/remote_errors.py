"""Errors of embedding providers, chat models, network services and channels.

KeptError
├── EmbeddingError
│   ├── EmbedderUnavailable the provider cannot be used as configured
│   ├── EmbeddingFailed     the provider was called and did not deliver
│   └── VectorMisfit        its vectors have another size than the settings say
├── RemoteError             a network service; callers translate it into what it means for the user
│   ├── EndpointDown        unreachable, or no answer in time
│   ├── Overloaded          temporarily refuses requests
│   ├── RequestRefused      rejects the request
│   │   └── QuotaExhausted  ... because the paid quota is used up
│   └── BadAnswer           the response cannot be parsed
├── ModelError              the chat model
│   ├── ModelUnavailable    none is configured, or it cannot be used as configured
│   ├── ModelFailed         it was called and did not deliver
│   │   ├── ModelRefused    ... and will refuse the same request again
│   │   └── ModelSilent     ... and sent nothing for as long as it may
│   ├── ContextOverflow     the request is longer than the model accepts
│   └── BudgetExhausted     the daily token budget is used up; nothing was sent
└── ChannelError            where messages come from and replies go
    ├── ChannelUnavailable  the channel cannot be used as configured
    ├── QueueFull           too many messages are waiting; nothing was accepted
    │   └── ConversationFull ... in this conversation
    ├── MessageRefused      a malformed message
    ├── MessageConflict     the id belongs to another message
    ├── MessageNotFound
    ├── ModelUnknown        a request for a model, and so for an agent, that does not exist
    ├── NotSent             the reply certainly did not leave; sending it again is safe
    └── DeliveryRefused     the reply did not leave and never will
"""

from __future__ import annotations

from kept.errors import KeptError


class EmbeddingError(KeptError):
    code = "embedding"
    exit_code = 7


class EmbedderUnavailable(EmbeddingError):
    code = "embedder_unavailable"


class EmbeddingFailed(EmbeddingError):
    code = "embedding_failed"
    retryable = True


class VectorMisfit(EmbeddingError):
    """The vectors have another size than the settings say. Sending the texts again would not help."""

    code = "vector_misfit"


class RemoteError(KeptError):
    code = "remote"
    exit_code = 7
    wait_s: float | None = None
    """Pause that the service asks for."""


class EndpointDown(RemoteError):
    code = "endpoint_down"
    retryable = True


class Overloaded(RemoteError):
    code = "overloaded"
    retryable = True


class RequestRefused(RemoteError):
    """``status`` is the HTTP status, or the one the response should have had; ``detail`` is the service's own text."""

    code = "request_refused"

    def __init__(self, message: str, *, status: int, detail: str) -> None:
        super().__init__(message)
        self.status = status
        self.detail = detail


class QuotaExhausted(RequestRefused):
    code = "quota_exhausted"


class BadAnswer(RemoteError):
    code = "bad_answer"


class ModelError(KeptError):
    code = "model"
    exit_code = 10


class ModelUnavailable(ModelError):
    code = "model_unavailable"
    default_hint = "Set agents.defaults.model.provider (claude_cli, anthropic or openai) in config.yaml."


class ModelFailed(ModelError):
    code = "model_failed"
    retryable = True


class ModelRefused(ModelFailed):
    code = "model_refused"
    retryable = False


class ModelSilent(ModelFailed):
    """The model sent nothing for the configured time. Waiting again would make a person wait several times."""

    code = "model_silent"
    retryable = False


class ContextOverflow(ModelError):
    code = "context_overflow"


class BudgetExhausted(ModelError):
    code = "budget_exhausted"
    default_hint = "Raise model.daily_budget_tokens, or wait until tomorrow."


class ChannelError(KeptError):
    code = "channel"
    exit_code = 11


class ChannelUnavailable(ChannelError):
    code = "channel_unavailable"


class QueueFull(ChannelError):
    code = "queue_full"
    retryable = True
    default_hint = "Nothing was accepted. Send it again in a few seconds, with the same id."


class ConversationFull(QueueFull):
    code = "conversation_full"
    http_status = 429


class MessageRefused(ChannelError):
    code = "message_refused"
    http_status = 400


class MessageConflict(ChannelError):
    code = "message_conflict"
    http_status = 409
    default_hint = "Give every message its own id, or none."


class MessageNotFound(ChannelError):
    code = "message_not_found"
    http_status = 404
    default_hint = "Only the last few thousand replies are kept."


class ModelUnknown(ChannelError):
    code = "model_not_found"
    http_status = 404
    default_hint = "GET /v1/models lists the models."


class NotSent(ChannelError):
    code = "not_sent"
    retryable = True

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class DeliveryRefused(ChannelError):
    code = "delivery_refused"
