"""Logs as JSON, one object a line: requests, and what the program has to say. Never a text, a query or a secret.

The message of an exception may quote a note. So an error is logged with its type and the places in the code only.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import sys
import traceback
from typing import Any

from kept.serve.request_front import RequestRecord

_FRAMES = 8

log = logging.getLogger("kept.requests")


class JsonFormatter(logging.Formatter):
    """Formatter that writes one JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        request = getattr(record, "request", None)
        if isinstance(request, RequestRecord):
            fields |= request_fields(request)
        elif record.name.startswith("kept"):
            fields["message"] = record.getMessage()
        else:
            fields["message"] = str(record.msg)  # another library's arguments may be anything
        if record.exc_info and record.exc_info[1] is not None:
            fields |= _error_fields(record.exc_info[1])
        return json.dumps(fields)


def request_fields(request: RequestRecord) -> dict[str, Any]:
    return {
        "event": "request",
        "requestId": request.id,
        "method": request.method,
        "route": request.route,
        "status": request.status,
        "durationMs": round(request.took_s * 1000, 3),
        "token": request.token,
    }


def log_request(request: RequestRecord) -> None:
    log.info("request", extra={"request": request})


def log_line(text: str) -> None:
    """Log what the server has to say to its operator."""
    log.info("%s", text)


def log_as_json() -> None:
    """Write the log as JSON to standard error, requests included."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    log.setLevel(logging.INFO)


def _error_fields(error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    return {"error": type(error).__name__, "at": [f"{frame.filename}:{frame.lineno}" for frame in frames]}
