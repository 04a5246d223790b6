"""Machines of a team whose files are in the database: each has a home and a folder of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kept import Memory
from kept.clock import SystemClock
from kept.config import Config, load_config
from kept.durable import is_temporary
from kept.team_files.files_report import TeamFilesReport
from kept.team_files.team_files import TeamFiles
from kept.workspace.workspace import Workspace
from tests.support.teams import Team


class FileHost:
    """A machine with a folder that is a copy of the team's files."""

    def __init__(self, folder: Path, team: Team, name: str, **settings: Any) -> None:
        self.name = name
        self.home = folder / name / "home"
        self.workspace = folder / name / "workspace"
        self.workspace.mkdir(parents=True)
        self.home.mkdir(parents=True)
        self.team = team
        self.settings = {
            "memory_search.store.driver": "postgres",
            "memory_search.store.url": team.settings.url,
            "memory_search.store.schema": team.schema,
            "memory_search.provider": "none",
            "sync.database.enabled": True,
            "sync.database.host": name,
            **settings,
        }
        self.environment = {
            **team.environment,
            "KEPT_HOME": str(self.home),
            "KEPT_WORKSPACE": str(self.workspace),
            "KEPT_MEMORY_SEARCH__PROVIDER": "none",
            "KEPT_SYNC__DATABASE__ENABLED": "true",
            "KEPT_SYNC__DATABASE__HOST": name,
        }

    @property
    def config(self) -> Config:
        return load_config(
            home=str(self.home), workspace=str(self.workspace), settings=self.settings, trust_workspace=True, environ={}
        ).config

    @property
    def files(self) -> TeamFiles:
        config = self.config
        return TeamFiles(config, Workspace.of(config), SystemClock())

    def memory(self) -> Memory:
        return Memory(self.config)

    def run(self, **options: Any) -> TeamFilesReport:
        return self.files.run(**options)

    def write(self, path: str, text: str | bytes) -> Path:
        file = self.workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return file

    def read(self, path: str) -> str:
        return (self.workspace / path).read_bytes().decode()

    def contents(self) -> dict[str, bytes]:
        """Return what is shared: everything but the state of the copy, and what a kill left behind."""
        every = (file for file in self.workspace.rglob("*") if file.is_file() and not is_temporary(file.name))
        files = {str(file.relative_to(self.workspace)): file.read_bytes() for file in every}
        return {path: data for path, data in files.items() if not path.startswith(".kept/copy/")}


def rows_of(team: Team) -> dict[str, bytes]:
    """Return all files in the database, with the history."""
    with team.database.reading() as connection:
        files = connection.execute("SELECT path, content FROM files WHERE content IS NOT NULL").fetchall()
        grown = connection.execute(
            "SELECT path, string_agg(data, ''::bytea ORDER BY start) FROM file_pieces GROUP BY path"
        ).fetchall()
    return {str(path): bytes(data) for path, data in (*files, *grown)}


def settle(hosts: list[FileHost]) -> None:
    """Synchronise until every machine has everything."""
    for host in (*hosts, *hosts):
        host.run()
