"""Embedding providers with batch APIs, on loopback: upload a file, create a batch of it, poll, download the answers.

A batch finishes after `looks` polls, with the next status in `ends`. Answers never come in the order of the requests.
`at` is called before and after every step.
"""

import email
import json
import re
from collections import deque
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from tests.support import embedding_servers as servers
from tests.support.embedding_servers import KEY, Refused, Reply, Request, only, require


class BatchProvider(servers.Provider):
    """Base class of the servers. `steps` records the calls in order. Subclasses have `step_of` and `check_key`."""

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self.looks = 1
        self.ends: deque[str] = deque()
        self.answers_poorly: Callable[[str], bool] = lambda text: False
        self.changes_output: Callable[[list[Any]], list[Any]] = lambda lines: lines
        self.at: Callable[[str, str], None] = lambda step, when: None
        self.step_faults: dict[str, deque[Reply]] = {}
        self.steps: list[str] = []

    def answer(self, request: Request) -> Reply:
        step = self.step_of(request)
        if step == "embed":
            return super().answer(request)
        self.at(step, "before")
        with self.lock:
            self.steps.append(step)
            faults = self.step_faults.get(step)
            fault = faults.popleft() if faults else None
            try:
                self.check_key(request)
                reply = fault or Reply(200, getattr(self, f"_{step}")(request))
            except Refused as exc:
                reply = Reply(exc.status, self.error(exc.status, str(exc)))
        self.at(step, "after")
        return reply

    def end(self, batch: dict[str, Any]) -> str | None:
        """Return the final status of a batch, or None if it needs more polls."""
        batch["looks"] += 1
        if batch["looks"] < self.looks:
            return None
        batch.setdefault("end", self.ends.popleft() if self.ends else "completed")
        return batch["end"]

    def store(self, lines: list[Any]) -> str:
        name = f"file-{len(self.files) + 1}"
        self.files[name] = b"".join(
            line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines
        )
        return name

    def texts(self) -> list[str]:
        """Return every text that was sent by an ordinary call, outside of a batch."""
        embeds = [one for one in self.requests if one.method == "POST" and self.step_of(one) == "embed"]
        return [text for one in embeds for text in self.texts_of(one.body)]


def parts_of(request: Request) -> list[tuple[Any, bytes]]:
    whole = b"content-type: " + request.headers["content-type"].encode() + b"\r\n\r\n" + request.body
    return [(part, part.get_payload(decode=True)) for part in email.message_from_bytes(whole).get_payload()]


class _FileBatches(BatchProvider):
    """A provider that takes a file of requests. Subclasses have `window`, `check_batch` and `dims_of`."""

    def step_of(self, request: Request) -> str:
        path = urlsplit(request.path).path
        match request.method, path.removeprefix("/v1").split("/")[1:]:
            case "POST", ["files"]:
                return "upload"
            case "POST", ["batches"]:
                return "create"
            case "GET", ["batches"]:
                return "list"
            case "GET", ["batches", _]:
                return "poll"
            case "POST", ["batches", _, "cancel"]:
                return "cancel"
            case "GET", ["files", _, "content"]:
                return "download"
        return "embed"

    def check_key(self, request: Request) -> None:
        require(request.headers.get("authorization") == f"Bearer {KEY}", 401, "Incorrect API key provided.")

    def _upload(self, request: Request) -> Any:
        fields = {part.get_param("name", header="content-disposition"): raw for part, raw in parts_of(request)}
        require(fields["purpose"] == b"batch", 400, "purpose must be batch")
        name = f"file-{len(self.files) + 1}"
        self.files[name] = fields["file"]
        return {"id": name, "object": "file", "bytes": len(fields["file"]), "purpose": "batch"}

    def _create(self, request: Request) -> Any:
        body = request.body
        require(body["endpoint"] == "/v1/embeddings", 400, "endpoint is not supported")
        require(body["completion_window"] == self.window, 400, f"completion_window must be {self.window}")
        require(body["input_file_id"] in self.files, 400, "no such file")
        require(all(isinstance(value, str) for value in body["metadata"].values()), 400, "metadata must be strings")
        self.check_batch(body)
        name = f"batch_{len(self.batches) + 1}"
        self.batches[name] = {"id": name, "looks": 0, **body}
        return self.shown(self.batches[name], "validating")

    def shown(self, batch: dict[str, Any], status: str, **files: str) -> Any:
        no_files = {"errors": None, "output_file_id": None, "error_file_id": None}
        return {"id": batch["id"], "status": status, "metadata": batch["metadata"], **no_files, **files}

    def _list(self, request: Request) -> Any:
        newest = [self.shown(batch, "in_progress") for batch in reversed(self.batches.values())]
        return {"object": "list", "data": newest, "has_more": False}

    def _poll(self, request: Request) -> Any:
        batch = self.batches.get(request.path.rpartition("/")[2])
        require(batch, 404, "No batch found")
        word = self.end(batch)
        if word is None:
            return self.shown(batch, "in_progress")
        if word == "failed":
            reason = {"code": "token_limit_exceeded", "message": "Enqueued token limit reached.", "line": None}
            return {**self.shown(batch, word), "errors": {"object": "list", "data": [reason]}}
        lines = [json.loads(line) for line in self.files[batch["input_file_id"]].splitlines()]
        done = lines if word == "completed" else lines[: len(lines) // 2]
        good = [self.line(batch, one) for one in done if not self.answers_poorly(self.text(one))]
        bad = [self.bad_line(batch, one) for one in done if self.answers_poorly(self.text(one))]
        files = {"output_file_id": self.store(self.changes_output(good[::-1]))}
        if bad:
            files["error_file_id"] = self.store(bad)
        return self.shown(batch, word, **files)

    def _cancel(self, request: Request) -> Any:
        batch = self.batches[request.path.split("/")[-2]]
        batch["end"] = "cancelled"
        return self.shown(batch, "cancelling")

    def _download(self, request: Request) -> Any:
        name = request.path.split("/")[-2]
        require(name in self.files, 404, "No such File object")
        return self.files[name]

    def text(self, line: Any) -> str:
        (text,) = line["body"]["input"]
        return text

    def line(self, batch: dict[str, Any], line: Any) -> Any:
        vector = self.vectors([self.text(line)], self.dims_of(batch, line))[0]
        body = {"data": [{"index": 0, "embedding": vector}], "usage": {"total_tokens": 7}}
        return {"custom_id": line["custom_id"], "response": {"status_code": 200, "body": body}, "error": None}

    def bad_line(self, batch: dict[str, Any], line: Any) -> Any:
        body = self.error(400, "This text is not welcome.")
        return {"custom_id": line["custom_id"], "response": {"status_code": 400, "body": body}, "error": None}


class OpenAI(_FileBatches, servers.OpenAI):
    window = "24h"

    def check_batch(self, body: Any) -> None:
        only(body, "input_file_id", "endpoint", "completion_window", "metadata", "output_expires_after")
        for raw in self.files[body["input_file_id"]].splitlines():
            line = json.loads(raw)
            require(set(line) == {"custom_id", "method", "url", "body"}, 400, "a line is not as documented")
            require((line["method"], line["url"]) == ("POST", "/v1/embeddings"), 400, "a line is not as documented")
            only(line["body"], "model", "input", "encoding_format", "dimensions", "user")

    def dims_of(self, batch: dict[str, Any], line: Any) -> int | None:
        return line["body"].get("dimensions")


class Voyage(_FileBatches, servers.Voyage):
    window = "12h"

    def check_batch(self, body: Any) -> None:
        only(body, "input_file_id", "endpoint", "completion_window", "metadata", "request_params")
        only(body["request_params"], "model", "input_type", "truncation", "output_dimension", "output_dtype")
        require(body["request_params"]["input_type"] == "document", 400, "input_type")
        for raw in self.files[body["input_file_id"]].splitlines():
            line = json.loads(raw)
            require(set(line) == {"custom_id", "body"} and set(line["body"]) == {"input"}, 400, "a line is not so")

    def dims_of(self, batch: dict[str, Any], line: Any) -> int | None:
        return batch["request_params"].get("output_dimension")

    def bad_line(self, batch: dict[str, Any], line: Any) -> Any:
        error = {"code": "batch_expired", "message": "not welcome"}
        return {"batch_id": batch["id"], "custom_id": line["custom_id"], "response": None, "error": error}


class Gemini(BatchProvider, servers.Gemini):
    def step_of(self, request: Request) -> str:
        path = urlsplit(request.path).path
        for step, method, form in (
            ("upload", "POST", r"/upload/v1beta/files"),
            ("create", "POST", r"/v1beta/models/[\w.-]+:asyncBatchEmbedContent"),
            ("list", "GET", r"/v1beta/batches"),
            ("poll", "GET", r"/v1beta/batches/[\w-]+"),
            ("cancel", "POST", r"/v1beta/batches/[\w-]+:cancel"),
            ("download", "GET", r"/download/v1beta/files/[\w-]+:download"),
        ):
            if request.method == method and re.fullmatch(form, path):
                return step
        return "embed"

    def check_key(self, request: Request) -> None:
        require(request.headers.get("x-goog-api-key") == KEY, 400, "API key not valid.")

    def _upload(self, request: Request) -> Any:
        require(request.headers.get("x-goog-upload-protocol") == "multipart", 400, "no protocol")
        require(request.headers["content-type"].startswith("multipart/related"), 400, "not related")
        (about, described), (_, content) = parts_of(request)
        require(about.get_content_type() == "application/json", 400, "no description")
        require(json.loads(described)["file"]["mimeType"] == "application/jsonl", 400, "no type")
        name = f"files/file-{len(self.files) + 1}"
        self.files[name.removeprefix("files/")] = content
        return {"file": {"name": name, "mimeType": "application/jsonl", "state": "ACTIVE"}}

    def _create(self, request: Request) -> Any:
        only(request.body, "batch")
        only(request.body["batch"], "displayName", "inputConfig", "model", "priority")
        source = request.body["batch"]["inputConfig"]["fileName"].removeprefix("files/")
        require(source in self.files, 404, "no such file")
        for raw in self.files[source].splitlines():
            line = json.loads(raw)
            require(set(line) == {"key", "request"}, 400, "a line is not as documented")
            only(line["request"], "model", "content", "taskType", "title", "outputDimensionality")
        name = f"batches/b{len(self.batches) + 1}"
        self.batches[name] = {"name": name, "looks": 0, "source": source, **request.body["batch"]}
        return self.shown(self.batches[name], "PENDING")

    def shown(self, batch: dict[str, Any], state: str, **more: Any) -> Any:
        metadata = {"displayName": batch["displayName"], "state": f"BATCH_STATE_{state}", "name": batch["name"]}
        return {"name": batch["name"], "metadata": metadata, **more}

    def _list(self, request: Request) -> Any:
        return {"operations": [self.shown(batch, "RUNNING") for batch in reversed(self.batches.values())]}

    def _poll(self, request: Request) -> Any:
        batch = self.batches.get(request.path.removeprefix("/v1beta/"))
        require(batch, 404, "Requested entity was not found.")
        word = self.end(batch)
        if word is None:
            return self.shown(batch, "RUNNING", done=False)
        if word != "completed":
            return self.shown(batch, word.upper(), done=True, error={"code": 13, "message": "It did not work out."})
        lines = [json.loads(line) for line in self.files[batch["source"]].splitlines()]
        name = self.store(self.changes_output([self.line(one) for one in lines][::-1]))
        return self.shown(batch, "SUCCEEDED", done=True, response={"responsesFile": f"files/{name}"})

    def line(self, line: Any) -> Any:
        (part,) = line["request"]["content"]["parts"]
        if self.answers_poorly(part["text"]):
            return {"key": line["key"], "error": {"code": 3, "message": "This text is not welcome."}}
        vector = self.vectors([part["text"]], line["request"].get("outputDimensionality"))[0]
        return {"key": line["key"], "response": {"embedding": {"values": vector}}}

    def _cancel(self, request: Request) -> Any:
        self.batches[request.path.removeprefix("/v1beta/").removesuffix(":cancel")]["end"] = "cancelled"
        return {}

    def _download(self, request: Request) -> Any:
        require(request.path.endswith("?alt=media"), 400, "alt=media is missing")
        name = request.path.rpartition("/")[2].partition(":")[0]
        require(name in self.files, 404, "no such file")
        return self.files[name]
