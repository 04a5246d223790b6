"""A collector that speaks OTLP over HTTP on loopback, and keeps the spans that it gets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class SpanCollector(ThreadingHTTPServer):
    """A collector that keeps the spans which it gets."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Receiver)
        self.spans = []
        self.raw = b""

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.server_address[1]}/v1/traces"


class _Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        assert self.path == "/v1/traces"
        assert self.headers["Content-Type"] == "application/x-protobuf"
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.raw += body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                self.server.spans += scope.spans
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


@contextmanager
def collecting() -> Iterator[SpanCollector]:
    server = SpanCollector()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def attributes(sent):
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in sent.attributes}
