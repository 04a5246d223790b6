"""Archives of `kept export` below the home and the workspace.

Their files are compressed and have checksums, so an archive that has what is forgotten is erased as a whole: a part of
it would restore nothing. Each is a place that is shown first.
"""

from __future__ import annotations

import os
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from kept.config import Config
from kept.durable import erase_file
from kept.forgetting.byte_scan import iter_all_files
from kept.forgetting.history_places import iter_versions
from kept.forgetting.needles import Matcher
from kept.forgetting.note_places import name_words
from kept.forgetting.order import ForgetOrder, ScrubResult
from kept.forgetting.places import Place, digest_of
from kept.forgetting.record_files import scrub_text
from kept.history.change_log import ChangeLog
from kept.history.history_folder import HISTORY_FOLDER, HistoryFolder
from kept.workspace.opened import decode
from kept.workspace.workspace import Workspace

_ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.zst")
_LARGEST_MEMBER = 1 << 28
_BLOCK = 1 << 20
_HEADER = "archive.json"
_UNREADABLE = (tarfile.TarError, OSError, EOFError, zlib.error, ValueError)


class ArchivedHistory(HistoryFolder):
    """History of notes in an archive, in temporary files without a name: nothing of it is left after a crash."""

    def __init__(self) -> None:
        super().__init__(Workspace(""))
        self._files: dict[tuple[str, str], IO[bytes]] = {}

    def put(self, folder: str, name: str, content: IO[bytes]) -> None:
        file = self._files[folder, name] = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `close`)
        while block := content.read(_BLOCK):
            file.write(block)
        file.flush()

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def names(self, folder: str, ending: str) -> list[str]:
        return sorted(name for parent, name in self._files if parent == folder and name.endswith(ending))

    @contextmanager
    def reading(self, folder: str, name: str) -> Iterator[int | None]:
        file = self._files.get((folder, name))
        yield None if file is None else file.fileno()


def iter_archives(config: Config, workspace: str) -> Iterator[str]:
    """Yield the archives below the home and the workspace, by their names and their first member."""
    for path in iter_all_files((config.home, workspace), frozenset((config.models_folder,))):
        if path.endswith(_ENDINGS):
            try:
                with tarfile.open(path, "r|*") as tar:
                    first = tar.next()
            except _UNREADABLE:
                continue
            if first is not None and first.name == _HEADER:
                yield path


def has_match(path: str, matcher: Matcher) -> bool:
    """Return whether a file of an archive, or a version of its history, has what is forgotten. Raise OSError if the
    archive cannot be read to its end."""
    histories: dict[str, ArchivedHistory] = {}
    try:
        with tarfile.open(path, "r|*") as tar:
            for member in tar:
                if member.isreg() and _matches_member(tar, member, matcher, histories):
                    return True
        return any(_matches_history(ChangeLog(history, ""), matcher) for history in histories.values())
    except _UNREADABLE as exc:
        raise OSError(str(exc)) from exc
    finally:
        for history in histories.values():
            history.close()


def _matches_member(
    tar: tarfile.TarFile, member: tarfile.TarInfo, matcher: Matcher, histories: dict[str, ArchivedHistory]
) -> bool:
    content = tar.extractfile(member)
    if content is None or member.size > _LARGEST_MEMBER:
        return False
    root, is_history, below = member.name.partition(f"/{HISTORY_FOLDER}/")
    if is_history:
        folder, _, name = below.rpartition("/")
        histories.setdefault(root, ArchivedHistory()).put(folder, name, content)
        return False
    data = content.read()
    if matcher.matches(decode(data)[0]) or matcher.has_words(name_words(member.name)):
        return True
    return member.name.endswith((".json", ".jsonl")) and scrub_text(data, matcher, member.name) != data


def _matches_history(log: ChangeLog, matcher: Matcher) -> bool:
    for name in log.names():
        for _, _, change in log.iter_oldest(name):
            names = (change.path, change.was or "") if change else ()
            if any(map(matcher.has_words, map(name_words, names))) or (change and matcher.matches(change.why)):
                return True
    return any(matcher.matches(decode(data)[0]) for _, _, data in iter_versions(log))


def find_in_archives(config: Config, workspace: str, matcher: Matcher) -> list[Place]:
    places: list[Place] = []
    for path in iter_archives(config, workspace):
        try:
            if not has_match(path, matcher):
                continue
        except OSError:
            continue
        shown = os.path.relpath(path, config.home if path.startswith(config.home + os.sep) else workspace)
        places.append(Place("export", shown, shown, "an archive, which goes as a whole", digest_of(path), whole=True))
    return places


class ArchiveStore:
    """Erases the archives that have what is forgotten."""

    name = "archives"

    def __init__(self, config: Config, workspace: str) -> None:
        self.config = config
        self.workspace = workspace

    def scrub(self, order: ForgetOrder) -> ScrubResult:
        matcher, result = Matcher(order.needles), ScrubResult()
        for path in iter_archives(self.config, self.workspace):
            try:
                is_match = has_match(path, matcher)
            except OSError:
                result += ScrubResult(unreachable=(f"{path}: the archive cannot be read",))
                continue
            if is_match and (order.by_tool or order.is_scoped):
                result += ScrubResult(unreachable=(f"{path}: an archive that only the person may delete",))
            elif is_match:
                erase_file(path)
                result += ScrubResult(removed=1)
        return result
