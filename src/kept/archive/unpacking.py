"""Restores an archive.

Every archive of the chain is checked to its end before anything is changed. Each file is then written beside its place
and renamed, so a restore that is killed leaves whole files, and the same command continues it. Settings come last.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from kept.archive.comparison import FileAction, compare_files, count_actions, list_kept
from kept.archive.examination import ArchiveChain, get_sound_chain
from kept.archive.forgotten_files import leave_out_forgotten
from kept.archive.manifest import ArchivedAgent
from kept.archive.member_names import SETTINGS
from kept.archive.restore_places import RestorePlaces, plan_places, plan_settings
from kept.archive.settings_copy import copy_settings
from kept.archive.staging import StagedFiles
from kept.archive.tar_stream import TarMember, opened_archive
from kept.config.edit import locked_settings
from kept.config.layers import MAIN_AGENT, find_user_file
from kept.config.settings_file import MAX_BYTES, read_settings
from kept.durable import make_private_folder, write_atomic
from kept.errors import ArchiveDamaged, ConfigError, LockBusy, WriteFailed
from kept.file_lock import claimed
from kept.records import Problem, Progress
from kept.values import frozen

LOCK_FILE = "restore.lock"


@frozen
class RestoreReport:
    archives: tuple[str, ...]
    """The archive and those that it builds on, the newest first."""
    created: str
    agents: tuple[ArchivedAgent, ...]
    workspaces: dict[str, str]
    """Folder of the notes of each agent."""
    counts: dict[str, int]
    """Number of files by action."""
    replaced: int
    """Files that differed and were replaced on request."""
    kept: tuple[Problem, ...]
    """Files here that differ from the archive and were left as they are."""
    settings: str
    """'restored', 'same', 'kept' if there were other settings here, 'refused' or 'none'."""
    settings_problem: str
    removed_settings: tuple[str, ...]
    """Secret settings that the archive does not have. Set these again."""
    problems: tuple[Problem, ...]
    dry_run: bool


def restore_archive(
    path: str,
    *,
    home: str,
    bases: Sequence[str] = (),
    agent: str | None = None,
    workspace: str | None = None,
    same_folders: bool = False,
    with_settings: bool = True,
    overwrite: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> RestoreReport:
    """Restore an archive into a home and its workspaces, and return what was done.

    A file that is here with another content stays, unless ``overwrite``. ``agent`` restores that agent only;
    ``workspace`` is the folder for its notes, or for those of the main agent. See `plan_places`.
    """
    chain = get_sound_chain(path, bases, progress=progress)
    user_file = find_user_file(home, None, {}).path
    places = plan_places(
        chain.newest.header,
        home=home,
        user_file=user_file,
        agent=agent,
        workspace=workspace,
        workspace_agent=agent or MAIN_AGENT,
        same_folders=same_folders,
    )
    actions = leave_out_forgotten(chain, places, compare_files(chain, places))
    settings = _SettingsPlan.of(chain, places, user_file, is_wanted=with_settings)
    writes = {
        name: item
        for name, item in actions.items()
        if item.action in ("new", "updated") or (overwrite and item.action == "differs")
    }
    run = _RestoreRun(chain, writes, progress)
    if not dry_run:
        _require_space(writes.values())
        make_private_folder(home)
        with claimed(os.path.join(home, LOCK_FILE)) as is_ours:
            if not is_ours:
                raise LockBusy("Another restore is running.", path=home)
            run.write_all()
            settings.apply(user_file)
    replaced = sum(item.action == "differs" for item in writes.values())
    return RestoreReport(
        archives=tuple(archive.path for archive in chain.archives),
        created=chain.newest.header.created,
        agents=places.agents,
        workspaces={agent.name: places.workspaces[agent.notes] for agent in places.agents},
        counts=count_actions(actions),
        replaced=replaced,
        kept=tuple(list_kept({name: item for name, item in actions.items() if name not in writes})),
        settings=settings.outcome,
        settings_problem=settings.problem,
        removed_settings=chain.newest.header.removed_settings if settings.outcome == "restored" else (),
        problems=tuple(run.problems),
        dry_run=dry_run,
    )


def _require_space(files: Iterable[FileAction]) -> None:
    """Raise WriteFailed if a file system has too little space for what is to be written to it."""
    needed: dict[int, int] = {}
    folders: dict[int, str] = {}
    for item in files:
        folder = _existing_parent(item.folder)
        device = os.stat(folder).st_dev
        needed[device] = needed.get(device, 0) + item.record.size
        folders[device] = folder
    for device, size in needed.items():
        state = os.statvfs(folders[device])
        free = state.f_bavail * state.f_frsize
        if size > free:
            raise WriteFailed(
                f"The files need {size:,} bytes in {folders[device]}, where {free:,} are free.",
                hint="Nothing was changed. Free some space, or choose another folder.",
            )


def _existing_parent(path: str) -> str:
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


# settings


@frozen
class _SettingsPlan:
    outcome: str
    before: bytes | None
    content: bytes | None
    """New content of the settings file, or None to leave it."""
    problem: str = ""

    @classmethod
    def of(cls, chain: ArchiveChain, places: RestorePlaces, user_file: str, *, is_wanted: bool) -> _SettingsPlan:
        archived = _read_settings(chain) if is_wanted and SETTINGS in chain.newest.records else None
        here = read_settings(user_file)
        outcome = "none"
        if archived is not None and here:
            outcome = "same" if copy_settings(user_file, here).content == archived else "kept"
            archived = None
        elif archived is not None:
            outcome = "restored"
        try:
            return cls(outcome, here, plan_settings(places, user_file, archived))
        except (ConfigError, UnicodeDecodeError) as exc:
            if archived is None:
                raise
            problem = exc.message if isinstance(exc, ConfigError) else "not UTF-8"
            return cls("refused", here, plan_settings(places, user_file, None), problem)

    def apply(self, user_file: str) -> None:
        if self.content is None:
            return
        with locked_settings(user_file) as real_path:
            if read_settings(real_path) != self.before:
                raise ConfigError(f"{user_file}: another program has changed it meanwhile.", hint="Run it again.")
            write_atomic(real_path, self.content)


def _read_settings(chain: ArchiveChain) -> bytes | None:
    archive = chain.locate(SETTINGS)
    record = chain.newest.records[SETTINGS]
    if archive is None or record.size > MAX_BYTES:
        return None
    with opened_archive(archive.path) as reader:
        for member in reader.iter_members():
            if member.name == SETTINGS:
                return b"".join(member.blocks())
    return None


# files


class _RestoreRun:
    """Writes files of the archives of a chain, in batches: see `StagedFiles`."""

    def __init__(self, chain: ArchiveChain, writes: dict[str, FileAction], progress: Progress | None) -> None:
        self._chain = chain
        self._writes = writes
        self._progress = progress
        self._total = sum(item.record.size for item in writes.values())
        self._done = 0
        self.problems: list[Problem] = []

    def write_all(self) -> None:
        by_archive: dict[str, set[str]] = {}
        for name in self._writes:
            archive = self._chain.locate(name)
            assert archive is not None, name  # examined before
            by_archive.setdefault(archive.path, set()).add(name)
        with StagedFiles(self.problems) as staged:
            for path, names in by_archive.items():
                self._write_from(path, names, staged)
            staged.commit()

    def _write_from(self, path: str, names: set[str], staged: StagedFiles) -> None:
        with opened_archive(path) as reader:
            for member in reader.iter_members():
                if member.name in names:
                    names.discard(member.name)
                    staged.add(self._writes[member.name], member)
                    self._report(member)
                if not names:
                    return
        raise ArchiveDamaged(f"{path}: it changed while it was read.", hint="Run the same command again.")

    def _report(self, member: TarMember) -> None:
        self._done += member.size
        if self._progress is not None:
            self._progress(self._done, max(self._total, 1), member.name)
