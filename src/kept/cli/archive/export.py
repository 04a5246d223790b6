"""Writes an archive of everything that is canonical, while other processes write.

Records and the lines of a history only grow: a copy ends where the file ended when it was opened. A note that an editor
changes while it is read is reported. The archive appears under its name only when it is complete.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import os
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import IO, Any, BinaryIO, cast
from urllib.parse import urlsplit

from kept.base.clock import Clock, SystemClock
from kept.base.durable import replacing
from kept.base.limits import int64, utf8_safe
from kept.base.records import Problem
from kept.base.redact import redact
from kept.base.values import frozen
from kept.cli.archive.archive_file import (
    AGENTS,
    CHUNK_BYTES,
    KEPT_FOLDER,
    MANIFEST,
    MAX_MEMBER_BYTES,
    NOTES,
    SETTINGS,
    ArchivedAgent,
    FileRecord,
    Manifest,
    add_member,
    format_manifest,
    is_agent_record,
    is_note_member,
    parse_member_name,
)
from kept.config import Config, LoadedConfig
from kept.config.layers import is_same_folder, settings_by_agent
from kept.config.read import parse_settings, read_settings, secret_names, snake
from kept.config.schema import Settings
from kept.errors import UsageError
from kept.notes.opened import FolderTrees
from kept.notes.scan import scan_workspace
from kept.notes.workspace import PERSONS_OWN, Workspace

SUFFIXES = (".tar", ".tar.gz", ".tgz")
_IN_MEMORY_BYTES = 8 << 20
"""A larger file is copied to a temporary file first."""
_ANY_SIZE = 1 << 62
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@frozen
class ExportReport:
    path: str
    agents: tuple[str, ...]
    files: int
    archive_bytes: int
    content_bytes: int
    """Size of the files."""
    removed_settings: tuple[str, ...]
    problems: tuple[Problem, ...]
    """Files that are not in the archive, or not as they are now."""
    left_out: tuple[str, ...]
    """Extra paths, which are not packed."""


@frozen
class _Source:
    """A file to pack: its name in the archive, and where it is."""

    member: str
    folder: str
    parts: tuple[str, ...]


def export_archive(
    loaded: LoadedConfig,
    target: str,
    *,
    overwrite: bool = False,
    clock: Clock | None = None,
) -> ExportReport:
    """Write an archive of all agents."""
    target = os.path.abspath(os.path.expanduser(target))
    if not target.lower().endswith(SUFFIXES):
        hint = "For example: kept export kept.tar.gz"
        raise UsageError(f"{target}: the name of an archive ends in .tar or .tar.gz.", hint=hint)
    if not os.path.isdir(folder := os.path.dirname(target)):  # perhaps a disk that is not mounted
        raise UsageError(f"{folder}: there is no such folder.", hint="Create it, or choose another.")
    if os.path.lexists(target) and not overwrite:
        raise UsageError(f"{target}: exists already.", hint="Choose another name, or replace it with --overwrite.")
    raw_settings = read_settings(loaded.user_file.path)
    settings = copy_settings(loaded.user_file.path, raw_settings) if raw_settings else None
    packer = _Packer()
    sources = packer.find(loaded, target)
    with ExitStack() as stack:
        raw = stack.enter_context(replacing(target))
        out: IO[bytes] | BinaryIO = raw
        if not target.lower().endswith(".tar"):
            out = cast("IO[bytes]", stack.enter_context(gzip.GzipFile("", "wb", 6, fileobj=raw, mtime=0)))
        tar = stack.enter_context(tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT))
        if settings is not None:
            packer.add(tar, SETTINGS, io.BytesIO(settings.content), 0)
        packer.pack(tar, sources)
        manifest = Manifest(
            created=(clock or SystemClock()).now().replace(microsecond=0),
            agents=tuple(packer.agents),
            removed_settings=settings.removed if settings else (),
            files=packer.files,
        )
        content = format_manifest(manifest)
        add_member(tar, MANIFEST, io.BytesIO(content), len(content))
    return ExportReport(
        path=target,
        agents=tuple(known.name for known in packer.agents),
        files=len(packer.files),
        archive_bytes=os.path.getsize(target),
        content_bytes=sum(record.size for record in packer.files.values()),
        removed_settings=manifest.removed_settings,
        problems=tuple(packer.problems),
        left_out=tuple(packer.left_out),
    )


class _Packer:
    """Finds files, and writes one consistent copy of each into an archive."""

    def __init__(self) -> None:
        self.agents: list[ArchivedAgent] = []
        self.files: dict[str, FileRecord] = {}
        self.problems: list[Problem] = []
        self.left_out: dict[str, None] = {}

    def report(self, path: str, reason: str) -> None:
        self.problems.append(Problem(utf8_safe(path), reason))

    # finding

    def find(self, loaded: LoadedConfig, target: str) -> list[_Source]:
        """Return the files of agents. Those with the same workspace have it packed once, under the first one's name."""
        by_name = settings_by_agent(loaded)
        by_name[loaded.config.agent_id] = loaded  # with the workspace of this run
        sources: list[_Source] = []
        owners: dict[str, str] = {}
        for name, settings in by_name.items():
            config = settings.config
            owner = next((known for known, folder in owners.items() if is_same_folder(folder, config.workspace)), name)
            if owner == name:
                owners[name] = config.workspace
                sources += self._find_notes(config, name)
            sources += self._find_records(config.paths.conversations, name)
            self.agents.append(ArchivedAgent(name, owner, config.agent.workspace_layout))
            self.left_out.update(dict.fromkeys(map(utf8_safe, Workspace.of(config).extra_paths)))
        return [source for source in sources if os.path.join(source.folder, *source.parts) != target]

    def _find_notes(self, config: Config, name: str) -> Iterator[_Source]:
        """Yield the files of a workspace: notes, the files among them, and Kept's own."""
        if not os.path.isdir(config.workspace):
            self.report(config.workspace, f"does not exist, so the archive has no notes of {name}")
            return
        workspace = replace(Workspace.of(config), extra_paths=(), endings=("",))  # what every name ends in
        scan = scan_workspace(workspace, max_bytes=_ANY_SIZE)
        self.problems += scan.problems
        paths = {file.path for file in scan.files}
        own = [os.path.join(folder, ".keptignore") for folder in scan.folders]
        own += [os.path.join(workspace.root, name) for name in PERSONS_OWN if workspace.layout == "kept"]
        paths |= {workspace.cite(path) for path in own if _is_plain_file(path)}
        paths |= {"/".join((KEPT_FOLDER, *parts)) for parts in self._walk(os.path.join(workspace.root, KEPT_FOLDER))}
        for path in sorted(paths):
            if is_note_member(parts := tuple(path.split("/"))):
                yield _Source(f"{NOTES}/{name}/{path}", workspace.root, parts)

    def _find_records(self, folder: str, name: str) -> Iterator[_Source]:
        """Yield the conversations and records in the folder of an agent. Derived files are left out."""
        for parts in sorted(self._walk(folder)):
            if is_agent_record(parts):
                yield _Source("/".join((AGENTS, name, *parts)), folder, parts)

    def _walk(self, folder: str) -> Iterator[tuple[str, ...]]:
        """Yield the parts of the path of each regular file below a folder. Links are not followed."""

        def failed(exc: OSError) -> None:
            if not isinstance(exc, FileNotFoundError):
                self.report(exc.filename or folder, f"cannot be listed ({exc.strerror})")

        for path, _, names in os.walk(folder, onerror=failed):
            for name in names:
                if _is_plain_file(file := os.path.join(path, name)):
                    yield tuple(os.path.relpath(file, folder).split(os.sep))

    # packing

    def pack(self, tar: tarfile.TarFile, sources: list[_Source]) -> None:
        with FolderTrees() as trees:
            for source in sources:
                self._pack_file(tar, source, trees)

    def _pack_file(self, tar: tarfile.TarFile, source: _Source, trees: FolderTrees) -> None:
        path = os.path.join(source.folder, *source.parts)
        try:
            member = parse_member_name(source.member)
            handle = os.open(source.parts[-1], _READ, dir_fd=trees.open(source.folder, source.parts[:-1]))
            with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES) as spool, open(handle, "rb", 0) as file:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise OSError(errno.EINVAL, "not a file")
                if os.fstat(handle).st_size > MAX_MEMBER_BYTES:
                    raise OSError(errno.EFBIG, "too large")
                if not _copy(file, cast("IO[bytes]", spool), grows=member.grows):
                    self.report(path, "changed while it was read; the archive has what was read")
                self.add(tar, source.member, cast("IO[bytes]", spool), int64(os.fstat(handle).st_mtime_ns))
        except ValueError as exc:
            self.report(path, f"its name {exc}, so it is not in the archive")
        except FileNotFoundError:
            pass  # deleted meanwhile
        except OSError as exc:
            self.report(path, f"cannot be read ({exc.strerror}), so it is not in the archive")

    def add(self, tar: tarfile.TarFile, name: str, content: IO[bytes], mtime_ns: int) -> None:
        content.seek(0)
        digest, size = hashlib.sha256(), 0
        while block := content.read(CHUNK_BYTES):
            digest.update(block)
            size += len(block)
        add_member(tar, name, content, size, mtime_ns)
        self.files[name] = FileRecord(size, digest.hexdigest(), mtime_ns)


def _is_plain_file(path: str) -> bool:
    return os.path.isfile(path) and not os.path.islink(path)


def _copy(file: IO[bytes], spool: IO[bytes], *, grows: bool) -> bool:
    """Copy a file as long as it is now. Return whether the copy is of one moment.

    The last line of a file that grows is left out while it is being written.
    """
    before, end = os.fstat(file.fileno()), 0
    while (rest := before.st_size - spool.tell()) and (block := file.read(min(CHUNK_BYTES, rest))):
        end = spool.tell() + block.rindex(b"\n") + 1 if b"\n" in block else end
        spool.write(block)
    if grows:
        spool.truncate(end)
    after = os.fstat(file.fileno())
    return grows or (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size)


# settings without keys, tokens and passwords


@frozen
class SettingsCopy:
    content: bytes
    removed: tuple[str, ...]
    """Names of the settings that are not in it, such as 'gateway.telegram.token'."""


def copy_settings(path: str, raw: bytes) -> SettingsCopy:
    """Return settings without those whose values are secret. ``path`` is for messages.

    A setting is secret if the schema says so, if its value looks like a key, or if it is an address with a password or
    parameters. Settings with a secret lose their comments, which may have it too.
    """
    tree = parse_settings(path, raw)
    text = raw.decode("utf-8-sig")
    names = {*secret_names(Settings)}
    names.add("user_tokens")  # a removed setting, which a file may still have
    removed: list[str] = []
    public = _without_secrets(tree, "", names, removed)
    if not removed and redact(text) == text and not any(name in snake(text).lower() for name in names):
        return SettingsCopy(raw, ())
    import yaml

    content = str(yaml.safe_dump(public, allow_unicode=True, sort_keys=False)) if public else ""
    return SettingsCopy(redact(content).encode(), tuple(sorted(removed)))


def _without_secrets(tree: Any, at: str, names: set[str], removed: list[str]) -> Any:
    """Return a part of the settings, and add the names of what is left out to ``removed``. ``at`` is its own name."""
    if not isinstance(tree, dict | list):
        return tree
    public: dict[Any, Any] = {}
    for step, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        name = f"{at}.{step}".lstrip(".")
        texts = value if isinstance(value, list) else [value]
        is_named = isinstance(step, str) and snake(step) in names
        if is_named or any(isinstance(text, str) and _is_secret(text, str(step)) for text in texts):
            removed.append(name)
        else:
            public[step] = _without_secrets(value, name, names, removed)
    return public if isinstance(tree, dict) else list(public.values())


def _is_secret(value: str, name: str) -> bool:
    return redact(value) != value or redact(f"{name}: {value}") != f"{name}: {value}" or _has_credentials(value)


def _has_credentials(value: str) -> bool:
    if "://" not in value:
        return False
    try:
        parts = urlsplit(value)
    except ValueError:
        return True
    return "@" in parts.netloc or bool(parts.query)
