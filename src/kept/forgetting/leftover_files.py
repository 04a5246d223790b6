"""Temporary files that a killed process left below the home and the workspace: they may have the text of any file."""

from __future__ import annotations

import os
from collections.abc import Iterator

from kept.config import Config
from kept.durable import is_abandoned, is_temporary
from kept.file_lock import locked
from kept.forgetting.byte_scan import iter_all_files
from kept.forgetting.needles import Matcher
from kept.forgetting.order import ForgetOrder, ScrubResult, erase_files
from kept.forgetting.places import Place, digest_of
from kept.workspace.notes import LOCK_WAIT_S
from kept.workspace.workspace import Workspace


def iter_leftovers(config: Config, workspace: str) -> Iterator[str]:
    """Yield temporary files that no process is writing."""
    for path in iter_all_files((config.home, workspace), frozenset((config.models_folder,))):
        if is_temporary(os.path.basename(path)) and is_abandoned(path):
            yield path


def find_in_leftovers(config: Config, workspace: str, matcher: Matcher) -> list[Place]:
    places: list[Place] = []
    for path in iter_leftovers(config, workspace):
        with open(path, "rb") as file:
            data = file.read()
        if matcher.may_match_raw(data) and matcher.matches(data.decode("utf-8", "replace")):
            name = os.path.basename(path)
            places.append(Place("record", name, name, "a temporary file of a process that was killed", digest_of(data)))
    return places


class LeftoverStore:
    """Erases temporary files that no process will rename, whatever they contain."""

    name = "leftovers"

    def __init__(self, config: Config, workspace: Workspace) -> None:
        self.config = config
        self.workspace = workspace

    def scrub(self, order: ForgetOrder) -> ScrubResult:
        with locked(self.workspace.root, wait_s=LOCK_WAIT_S, purpose="writing to this workspace"):
            return erase_files(iter_leftovers(self.config, self.workspace.root))
