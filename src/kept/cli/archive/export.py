"""Writes an archive of the documents and logs of all agents, while other processes write.

A log is packed up to its last whole line. A note that an editor changes while it is read is reported. The archive
appears under its name only when it is complete.
"""

from __future__ import annotations

import gzip
import os
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from kept.base.clock import SystemClock
from kept.base.digest import digest_bytes
from kept.base.durable import replacing
from kept.base.limits import utf8_safe
from kept.base.records import Problem
from kept.base.redact import redact
from kept.base.values import frozen
from kept.cli.archive.archive_file import (
    AGENTS,
    KEPT_FOLDER,
    MANIFEST,
    NOTES,
    SETTINGS,
    ArchivedAgent,
    FileRecord,
    Manifest,
    add_member,
    check_member_name,
    format_manifest,
    is_agent_record,
    is_note_member,
    read_stored,
)
from kept.config import LoadedConfig
from kept.config.layers import is_same_folder, parse_settings, read_settings, settings_by_agent
from kept.config.read import secret_names, snake
from kept.config.schema import Settings
from kept.errors import UsageError, WorkspaceError
from kept.notes.scan import scan_workspace
from kept.notes.workspace import PERSONS_OWN, Workspace
from kept.storage.contract import Storage
from kept.storage.open import open_agent

SUFFIXES = (".tar", ".tar.gz", ".tgz")
_ANY_SIZE = 1 << 62


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
    """A document or a log to pack: its name in the archive, and where it is."""

    member: str
    storage: Storage
    path: str
    shown: str
    """Its path on this machine, for messages."""


def export_archive(loaded: LoadedConfig, target: str, *, overwrite: bool = False) -> ExportReport:
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
        out: Any = raw
        if not target.lower().endswith(".tar"):
            out = stack.enter_context(gzip.GzipFile("", "wb", 6, fileobj=raw, mtime=0))
        tar = stack.enter_context(tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT))
        if settings is not None:
            packer.add(tar, SETTINGS, settings[0], 0)
        for source in sources:
            packer.pack(tar, source)
        manifest = Manifest(
            created=SystemClock().now().replace(microsecond=0),
            agents=tuple(packer.agents),
            removed_settings=settings[1] if settings else (),
            files=packer.files,
        )
        add_member(tar, MANIFEST, format_manifest(manifest))
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
    """Finds documents and logs, and writes one copy of each into an archive."""

    def __init__(self) -> None:
        self.agents: list[ArchivedAgent] = []
        self.files: dict[str, FileRecord] = {}
        self.problems: list[Problem] = []
        self.left_out: dict[str, None] = {}

    def report(self, path: str, reason: str) -> None:
        self.problems.append(Problem(utf8_safe(path), reason))

    # finding

    def find(self, loaded: LoadedConfig, target: str) -> list[_Source]:
        """Return the documents and logs of agents. Those with the same workspace have it packed once, under the first
        one's name."""
        by_name = settings_by_agent(loaded)
        by_name[loaded.config.agent_id] = loaded  # with the workspace of this run
        sources: list[_Source] = []
        owners: dict[str, str] = {}
        for name, settings in by_name.items():
            config, workspace = settings.config, Workspace.of(settings.config)
            shared = (known for known, root in owners.items() if is_same_folder(root, workspace.root))
            owner = name if config.database else next(shared, name)  # in a database, each agent has its own
            if owner == name:
                owners[name] = workspace.root
                sources += self._find_notes(workspace, name)
            records, paths = open_agent(config), config.paths
            prefix = paths.transcripts.removesuffix("sessions/")
            for path in sorted(self._list(records, prefix, paths.folder)):  # derived files are left out
                if is_agent_record(below := path.removeprefix(prefix)):
                    member, shown = f"{AGENTS}/{name}/{below}", os.path.join(paths.folder, path)
                    sources.append(_Source(member, records, path, shown))
            self.agents.append(ArchivedAgent(name, owner, workspace.layout))
            self.left_out.update(dict.fromkeys(map(utf8_safe, workspace.extra_paths)))
        return [source for source in sources if source.shown != target]

    def _find_notes(self, workspace: Workspace, name: str) -> Iterator[_Source]:
        """Yield the files of a workspace: notes, the files among them, and Kept's own."""
        storage = workspace.storage
        if not storage.exists():
            self.report(workspace.root, f"does not exist, so the archive has no notes of {name}")
            return
        everything = replace(workspace, extra_paths=(), endings=("",))  # what every name ends in
        scan = scan_workspace(everything, max_bytes=_ANY_SIZE)
        self.problems += scan.problems
        own = [workspace.cite(os.path.join(folder, ".keptignore")) for folder in scan.folders]
        own += PERSONS_OWN if workspace.layout == "kept" else ()
        paths = {file.path for file in scan.files}
        for path in own:
            with suppress(WorkspaceError):  # a link
                paths |= {path} if storage.documents.find(path) else set()
        for path in sorted(paths.union(self._list(storage, f"{KEPT_FOLDER}/", workspace.root))):
            if is_note_member(path):
                yield _Source(f"{NOTES}/{name}/{path}", storage, path, os.path.join(workspace.root, path))

    def _list(self, storage: Storage, prefix: str, root: str) -> Iterator[str]:
        def refused(path: str, exc: WorkspaceError) -> None:
            self.report(os.path.join(root, path), f"cannot be listed ({exc.message.rstrip('.')})")

        yield from (info.path for info in storage.documents.list(prefix, on_refused=refused))
        try:
            yield from (info.name for info in storage.logs.list(prefix))
        except WorkspaceError as exc:
            refused(prefix, exc)

    # packing

    def pack(self, tar: tarfile.TarFile, source: _Source) -> None:
        documents = source.storage.documents
        try:
            check_member_name(source.member)
            before = documents.find(source.path)
            stored = read_stored(source.storage, source.path)
            if documents.find(source.path) != before and stored:  # an editor may write in place
                self.report(source.shown, "changed while it was read; the archive has what was read")
        except ValueError as exc:
            self.report(source.shown, f"its name {exc}, so it is not in the archive")
        except WorkspaceError as exc:
            self.report(source.shown, f"cannot be read, so it is not in the archive ({exc.message.rstrip('.')})")
        else:
            if stored:  # or it was deleted meanwhile
                self.add(tar, source.member, *stored)

    def add(self, tar: tarfile.TarFile, name: str, content: bytes, modified_ns: int) -> None:
        add_member(tar, name, content, modified_ns)
        self.files[name] = FileRecord(len(content), digest_bytes(content), modified_ns)


# settings without keys, tokens and passwords


def copy_settings(path: str, raw: bytes) -> tuple[bytes, tuple[str, ...]]:
    """Return settings without those whose values are secret, and the names of these. ``path`` is for messages.

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
        return raw, ()
    import yaml

    content = str(yaml.safe_dump(public, allow_unicode=True, sort_keys=False)) if public else ""
    return redact(content).encode(), tuple(sorted(removed))


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
    if redact(value) != value or redact(f"{name}: {value}") != f"{name}: {value}":
        return True
    try:
        parts = urlsplit(value)
    except ValueError:
        return "://" in value
    return "://" in value and ("@" in parts.netloc or bool(parts.query))
