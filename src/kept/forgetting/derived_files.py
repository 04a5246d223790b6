"""Files that are derived from notes and transcripts: the index, the catalogue of sessions, and qmd's index.

They are brought up to date first, so that no embedding is paid for twice, and then written anew without free pages.
"""

from __future__ import annotations

import glob
import os
from typing import ClassVar

from kept.base.durable import erase_file
from kept.base.sqlite import rewrite_database
from kept.base.values import frozen
from kept.config import Config
from kept.errors import KeptError, StoreBusy, StoreError
from kept.forgetting.plan import ForgetOrder, ScrubResult
from kept.index.sqlite.integrity import read_owner, scrub_index
from kept.search.service import IndexService
from kept.sessions.catalogue import Catalogue


@frozen
class CatalogueStore:
    """Scrubs the catalogue of sessions."""

    name: ClassVar[str] = "catalogue"
    config: Config

    def scrub(self, order: ForgetOrder) -> ScrubResult:
        path = self.config.paths.catalogue
        if not os.path.exists(path):
            return ScrubResult()
        catalogue = Catalogue(path, self.config.paths.sessions)
        try:
            catalogue.refresh()
            catalogue.run(lambda db: rewrite_database(db, path, noun="session catalogue"))
        except StoreBusy as exc:
            return ScrubResult(unreachable=(exc.message,), is_complete=False)
        finally:
            catalogue.close()
        return ScrubResult(removed=1)


@frozen
class IndexStore:
    """Scrubs the indexes: that of the workspace, those of other workspaces of the agent, and those of other agents
    that share the workspace."""

    name: ClassVar[str] = "index"
    service: IndexService
    config: Config

    def scrub(self, order: ForgetOrder) -> ScrubResult:
        own = self.service.path
        is_synced = self._sync() if os.path.exists(own) else False
        result = ScrubResult()
        for path in self._paths():
            is_own = path == own or os.path.dirname(path) == self.config.paths.folder
            if not is_own and not _shares_workspace(path, self.service.workspace.root):
                continue
            stale = () if path == own and is_synced else _stale_files(order)
            try:
                wait_s = self.service.limits.sync_wait_s
                scrub_index(path, stale=stale, wait_s=wait_s)
            except (StoreError, KeptError) as exc:
                result += ScrubResult(unreachable=(exc.message,), is_complete=False)
                continue
            result += ScrubResult(removed=1)
        return result

    def _sync(self) -> bool:
        """Bring the index up to date, and close its connection. Return whether that worked."""
        try:
            self.service.sync_background()
        except KeptError:
            return False
        finally:
            self.service.reopen()
        return True

    def _paths(self) -> list[str]:
        pattern = os.path.join(glob.escape(os.path.join(self.config.home, "agents")), "*", "index*.sqlite")
        return sorted({path for path in (self.service.path, *glob.glob(pattern)) if os.path.exists(path)})


def _shares_workspace(path: str, workspace: str) -> bool:
    try:
        return read_owner(path) == workspace
    except StoreError:
        return False


def _stale_files(order: ForgetOrder) -> list[tuple[str, str]]:
    """Return source and path of the files that were changed."""
    paths = dict.fromkeys(citation.partition("#")[0] for _, citation in order.places)
    return [("sessions" if path.startswith("sessions/") else "memory", path) for path in paths]


@frozen
class QmdStore:
    """Removes the index of qmd, which is filled again when it is next used."""

    name: ClassVar[str] = "qmd"
    config: Config

    def scrub(self, order: ForgetOrder) -> ScrubResult:
        count = 0
        for root in glob.glob(os.path.join(glob.escape(self.config.paths.folder), "qmd-*")):
            for folder, _, names in os.walk(root):
                for name in names:
                    erase_file(os.path.join(folder, name))
                    count += 1
        return ScrubResult(removed=count)
