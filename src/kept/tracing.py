"""Spans as OpenTelemetry, sent over HTTP to a collector. Nothing of it is imported unless an endpoint is set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kept import __version__
from kept.config import Config
from kept.errors import ConfigError
from kept.spans import unwatch_spans, watch_spans

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from kept.spans import Attribute, SpanName

_PREFIX = "kept."
_LEAVES = ("model_call",)
"""Spans of generators, which end in another context than they began in. They have no spans below them."""


@contextmanager
def tracing(config: Config, *, service: str) -> Iterator[None]:
    """Send spans to the endpoint of the settings, if there is one, until the end of the block."""
    endpoint = config.gateway.tracing_endpoint
    if not endpoint:
        yield
        return
    if not endpoint.startswith(("http://", "https://")):
        hint = "Write it as http://127.0.0.1:4318/v1/traces."
        raise ConfigError("gateway.tracing_endpoint is not an HTTP address.", hint=hint)
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as exc:
        hint = "Install it: pip install 'kept[otel]', or unset gateway.tracing_endpoint."
        raise ConfigError("Sending spans needs OpenTelemetry.", hint=hint) from exc
    # A provider of our own, not the global one: libraries would send spans with whatever they like in them.
    provider = TracerProvider(
        resource=Resource.create({"service.name": service, "service.version": __version__}), shutdown_on_exit=False
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    observer = TraceObserver(provider.get_tracer("kept", __version__))
    watch_spans(observer)
    try:
        yield
    finally:
        unwatch_spans(observer)
        provider.shutdown()


class TraceObserver:
    """`SpanObserver` that makes OpenTelemetry spans."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def begin(self, name: SpanName, attributes: dict[str, Attribute]) -> tuple[Any, Any]:
        from opentelemetry import context, trace
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        parent = None
        if trace_parent := attributes.pop("traceparent", ""):
            parent = TraceContextTextMapPropagator().extract({"traceparent": str(trace_parent)})
        kind = SpanKind.SERVER if name == "request" else SpanKind.CLIENT if name == "model_call" else SpanKind.INTERNAL
        started = self._tracer.start_span(_PREFIX + name, context=parent, kind=kind)
        attached = None if name in _LEAVES else context.attach(trace.set_span_in_context(started))
        return started, attached

    def end(
        self,
        ticket: object,
        name: SpanName,
        attributes: dict[str, Attribute],
        took_s: float,
        error: BaseException | None,
    ) -> None:
        from opentelemetry import context
        from opentelemetry.trace import StatusCode

        assert isinstance(ticket, tuple)
        started, attached = ticket
        if attached is not None:
            context.detach(attached)
        for key, value in attributes.items():
            started.set_attribute(_PREFIX + key, value)
        if error is not None:
            # The message of an error may quote a note.
            started.set_attribute("error.type", type(error).__name__)
            started.set_status(StatusCode.ERROR)
        started.end()
