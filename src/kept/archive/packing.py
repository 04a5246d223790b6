"""Writes an archive: everything that is canonical, or what changed since another archive.

The file appears under its name only when it is complete.
"""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import closing
from typing import IO

from kept import __version__
from kept.agent_admin import REMOVED_FOLDER
from kept.archive.examination import get_sound_archive
from kept.archive.manifest import (
    ArchivedAgent,
    ArchiveHeader,
    BaseReference,
    FileRecord,
    ManifestWriter,
    header_bytes,
)
from kept.archive.member_names import HEADER, MANIFEST, SETTINGS
from kept.archive.settings_copy import SettingsCopy, copy_settings
from kept.archive.snapshot import FileCopier, FileCopy, PackedFile, find_notes, find_records
from kept.archive.tar_stream import CHUNK_BYTES, TarWriter, compressed, require_suffix
from kept.clock import Clock, SystemClock, new_id
from kept.config import LoadedConfig
from kept.config.agents import settings_by_agent
from kept.config.layers import default_workspace, is_same_folder
from kept.config.settings_file import read_settings
from kept.durable import replacing
from kept.errors import UsageError
from kept.limits import utf8_safe
from kept.records import Problem, Progress
from kept.values import frozen
from kept.workspace.workspace import Workspace


@frozen
class ExportReport:
    path: str
    id: str
    base: str | None
    """Name of the archive that this one builds on."""
    agents: tuple[str, ...]
    files: int
    """Files in the manifest."""
    stored: int
    """Files whose content is in this archive."""
    archive_bytes: int
    content_bytes: int
    """Size of the stored files."""
    removed_settings: tuple[str, ...]
    vanished: tuple[str, ...]
    """Files that were deleted while the archive was written."""
    problems: tuple[Problem, ...]
    left_out: tuple[str, ...]


@frozen
class AgentSource:
    """An agent to pack."""

    loaded: LoadedConfig
    notes: str
    """Name under which its notes are packed."""


def export_archive(
    loaded: LoadedConfig,
    target: str,
    *,
    agent: str | None = None,
    base: str | None = None,
    notes_only: bool = False,
    overwrite: bool = False,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> ExportReport:
    """Write an archive of all agents, or of the one that is named.

    With ``base``, files that are the same in that archive are not stored again. An archive of one agent has no
    settings: they belong to all.
    """
    target = os.path.abspath(os.path.expanduser(target))
    suffix = require_suffix(target)
    if not os.path.isdir(folder := os.path.dirname(target)):  # perhaps a disk that is not mounted
        raise UsageError(f"{folder}: there is no such folder.", hint="Create it, or choose another.")
    if os.path.lexists(target) and not overwrite:
        raise UsageError(f"{target}: exists already.", hint="Choose another name, or replace it with --overwrite.")
    earlier = get_sound_archive(base) if base else None
    settings = copy_user_settings(loaded) if agent is None else None
    sources = list(_sources(loaded, agent))
    header = ArchiveHeader(
        id=new_id(),
        created=(clock or SystemClock()).now().isoformat(timespec="seconds"),
        kept=__version__,
        agents=tuple(map(_describe, sources)),
        base=BaseReference(earlier.header.id, os.path.basename(earlier.path), earlier.header.created)
        if earlier
        else None,
        removed_settings=settings.removed if settings else (),
        left_out=tuple(_left_out(sources)),
    )
    packer = _Packer(earlier.records if earlier else {}, progress)
    files = packer.find(loaded, sources, agent=agent, notes_only=notes_only, target=target)
    with (
        tempfile.SpooledTemporaryFile(max_size=CHUNK_BYTES * 32) as list_file,
        closing(FileCopier()) as copier,
        replacing(target) as raw,
    ):
        manifest = ManifestWriter(list_file)  # type: ignore[arg-type]
        with compressed(raw, suffix) as out:
            packer.pack(TarWriter(out), manifest, copier, header, settings, files, list_file)
    return ExportReport(
        path=target,
        id=header.id,
        base=header.base.file if header.base else None,
        agents=tuple(agent.name for agent in header.agents),
        files=manifest.count - 1,  # the header is not a file of the user
        stored=packer.stored,
        archive_bytes=os.path.getsize(target),
        content_bytes=packer.stored_bytes,
        removed_settings=header.removed_settings,
        vanished=tuple(packer.vanished),
        problems=tuple(packer.problems),
        left_out=header.left_out,
    )


def copy_user_settings(loaded: LoadedConfig) -> SettingsCopy | None:
    """Return the user's settings without secrets, or None if there are none."""
    raw = read_settings(loaded.user_file.path)
    return copy_settings(loaded.user_file.path, raw) if raw else None


# what to pack


def _sources(loaded: LoadedConfig, agent: str | None) -> Iterator[AgentSource]:
    """Yield the agents. Those with the same workspace have their notes packed once, under the first one's name."""
    by_name = settings_by_agent(loaded) if agent is None else {agent: loaded}
    by_name[loaded.config.agent_id] = loaded  # with the workspace of this run
    first: dict[str, str] = {}
    for name, settings in by_name.items():
        workspace = settings.config.workspace
        owner = next((known for known, folder in first.items() if is_same_folder(folder, workspace)), name)
        first.setdefault(owner, workspace)
        yield AgentSource(settings, owner)


def _describe(source: AgentSource) -> ArchivedAgent:
    config = source.loaded.config
    is_default = is_same_folder(config.workspace, default_workspace(config.home, config.agent_id))
    shown = None if is_default else _with_tilde(config.workspace)
    return ArchivedAgent(config.agent_id, source.notes, shown, config.agent.workspace_layout)


def _with_tilde(path: str) -> str:
    user = os.path.expanduser("~")
    return utf8_safe(f"~{path[len(user) :]}" if path.startswith(user + os.sep) else path)


def _left_out(sources: list[AgentSource]) -> Iterator[str]:
    seen = set()
    for source in sources:
        for extra in Workspace.of(source.loaded.config).extra_paths:
            if extra not in seen:
                seen.add(extra)
                yield _with_tilde(extra)


class _Packer:
    def __init__(self, earlier: dict[str, FileRecord], progress: Progress | None) -> None:
        self._earlier = earlier
        self._progress = progress
        self.stored = 0
        self.stored_bytes = 0
        self.vanished: list[str] = []
        self.problems: list[Problem] = []

    def report(self, path: str, reason: str) -> None:
        self.problems.append(Problem(path, reason))

    def find(
        self, loaded: LoadedConfig, sources: list[AgentSource], *, agent: str | None, notes_only: bool, target: str
    ) -> list[PackedFile]:
        files: list[PackedFile] = []
        for source in sources:
            config = source.loaded.config
            if source.notes == config.agent_id and not os.path.isdir(config.workspace):
                self.report(config.workspace, f"does not exist, so the archive has no notes of {config.agent_id}")
            elif source.notes == config.agent_id:
                files += find_notes(config, source.notes, notes_only=notes_only, report=self.report)
            files += find_records(config.paths.folder, config.agent_id, report=self.report)
        removed = os.path.join(loaded.config.home, REMOVED_FOLDER)
        for name in sorted(os.listdir(removed)) if agent is None and os.path.isdir(removed) else ():
            files += find_records(os.path.join(removed, name), name, report=self.report, removed=True)
        return [file for file in files if file.path != target]

    def pack(
        self,
        tar: TarWriter,
        manifest: ManifestWriter,
        copier: FileCopier,
        header: ArchiveHeader,
        settings: SettingsCopy | None,
        files: list[PackedFile],
        list_file: IO[bytes],
    ) -> None:
        self._add_bytes(tar, manifest, HEADER, header_bytes(header))
        if settings is not None:
            self._add_bytes(tar, manifest, SETTINGS, settings.content)
        total, done = sum(file.size for file in files), 0
        for file in files:
            self._add_file(tar, manifest, copier, file)
            done += file.size
            if self._progress is not None:
                self._progress(done, max(total, 1), file.member)
        manifest.close()
        list_file.seek(0)
        tar.add(MANIFEST, manifest.size, 0, iter(lambda: list_file.read(CHUNK_BYTES), b""))
        tar.close()

    def _add_file(self, tar: TarWriter, manifest: ManifestWriter, copier: FileCopier, file: PackedFile) -> None:
        try:
            with copier.copied(file) as copy:
                self._add(tar, manifest, file.member, copy)
                if copy.is_torn:
                    self.report(utf8_safe(file.path), "changed while it was read; the archive has what was read")
        except FileNotFoundError:
            self.vanished.append(file.member)
        except OSError as exc:
            self.report(utf8_safe(file.path), f"cannot be read ({exc.strerror}), so it is not in the archive")

    def _add_bytes(self, tar: TarWriter, manifest: ManifestWriter, name: str, content: bytes) -> None:
        digest = hashlib.sha256(content).hexdigest()
        self._add(tar, manifest, name, FileCopy(io.BytesIO(content), len(content), digest, 0, is_torn=False))

    def _add(self, tar: TarWriter, manifest: ManifestWriter, name: str, copy: FileCopy) -> None:
        known = self._earlier.get(name)
        is_stored = name == HEADER or known is None or (known.sha256, known.size) != (copy.sha256, copy.size)
        if is_stored:
            tar.add(name, copy.size, copy.mtime_ns // 1_000_000_000, copy.blocks())
            if name != HEADER:
                self.stored += 1
                self.stored_bytes += copy.size
        manifest.add(FileRecord(name, copy.size, copy.sha256, copy.mtime_ns, is_stored))
