"""Sends every write of Kept to the database before it returns.

A mark is left in `.kept/copy` before the first write, and removed when the write is sent. If the process is killed, or
the database is away, the mark stays, and whoever comes next compares all files.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from kept.clock import new_id
from kept.durable import make_private_folder
from kept.errors import KeptError
from kept.team_files.copy_state import folder_of_copy
from kept.team_files.team_files import MARK, TeamFiles, is_running
from kept.workspace.write_scope import share_writes

if TYPE_CHECKING:
    from kept.clock import Clock
    from kept.config import Config
    from kept.workspace.workspace import Workspace

log = logging.getLogger(__name__)
_SEND_WAIT_S = 20.0
_notices: dict[str, None] = {}


def send_writes(config: Config, workspace: Workspace, clock: Clock) -> None:
    """Send what this process writes to a workspace from now on."""
    share_writes(workspace.root, lambda: SentWrite(config, workspace, clock))


def take_notices() -> list[str]:
    """Return why writes could not be sent, each once."""
    notices = [*_notices]
    _notices.clear()
    return notices


class SentWrite:
    """A write that is under way."""

    def __init__(self, config: Config, workspace: Workspace, clock: Clock) -> None:
        self._config, self._workspace, self._clock = config, workspace, clock
        folder = folder_of_copy(workspace.root)
        make_private_folder(folder)
        self._mark = os.path.join(folder, f"{MARK}{os.getpid()}-{new_id()}")
        os.close(os.open(self._mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    def send(self, paths: list[str]) -> None:
        try:
            if paths:
                files = TeamFiles(self._config, self._workspace, self._clock)
                own = f"{MARK}{os.getpid()}-"
                if any(not name.startswith(own) and not is_running(name) for name in files.unsent()):
                    files.run(wait_s=_SEND_WAIT_S)
                else:
                    files.send(paths, wait_s=_SEND_WAIT_S)
            os.unlink(self._mark)
        except KeptError as exc:
            notice = f"Written here, but not sent to the database of the team yet: {exc.message}"
            if log.hasHandlers():  # a command shows it by itself
                log.warning("%s", notice)
            _notices[notice] = None
            with suppress(FileNotFoundError):  # nobody sends it but whoever comes next
                os.rename(self._mark, self._mark.replace(f"{MARK}{os.getpid()}-", f"{MARK}0-"))
        except FileNotFoundError:
            pass  # another process compared all files meanwhile
