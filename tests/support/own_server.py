"""A PostgreSQL server for one test, which may stop and start it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from kept.config.search_settings import StoreSettings
from kept.postgres.database import Database
from kept.postgres.schema_migrations import migrate
from tests.support.postgres_server import start_server, stop_server

SCHEMA = "harbour"


class OwnServer:
    """A server with the tables of one team. Its folder is short, as the path of a socket must be."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="kept-own-"))
        self._folder.chmod(0o755)
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"postgresql://postgres@/postgres?host={self._folder / 's'}"
        self.settings = StoreSettings(driver="postgres", url=self.url, schema=SCHEMA)
        self.environment = {
            "KEPT_MEMORY_SEARCH__STORE__DRIVER": "postgres",
            "KEPT_MEMORY_SEARCH__STORE__URL": self.url,
            "KEPT_MEMORY_SEARCH__STORE__SCHEMA": SCHEMA,
        }
        self.start()
        database = Database(self.url, SCHEMA)
        migrate(database, create=True)
        database.close()

    def start(self) -> None:
        """Start the server, unless it runs."""
        if self._process is None:
            folder = self._folder
            # What is committed must survive `stop`, which lets the server write nothing more.
            self._process = start_server(folder / "data", folder / "s", folder / "log", synchronous_commit="on")

    def stop(self) -> None:
        if self._process is not None:
            stop_server(self._process)
            self._process = None

    def save_state(self) -> None:
        """Save the database as it is now, as a standby has it that falls behind from now on."""
        self._copy("data", "saved")

    def go_back(self) -> None:
        """Replace the database by the saved one: what was committed since is lost."""
        self._copy("saved", "data")

    def _copy(self, source: str, target: str) -> None:
        self.stop()
        shutil.rmtree(self._folder / target, ignore_errors=True)
        subprocess.run(["cp", "-a", self._folder / source, self._folder / target], check=True)
        self.start()

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._folder)
