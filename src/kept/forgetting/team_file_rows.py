"""Files of the workspace in the database of a team: what was forgotten here is sent, and earlier versions lose it."""

from __future__ import annotations

from kept.clock import Clock
from kept.config import Config
from kept.forgetting.order import ForgetOrder, ScrubResult
from kept.workspace.workspace import Workspace


class TeamFileStore:
    """Scrubs the rows. The last store: the notes, what waits for review and the history are scrubbed by then."""

    name = "files of the team"

    def __init__(self, config: Config, workspace: Workspace, clock: Clock) -> None:
        self._config, self._workspace, self._clock = config, workspace, clock

    def scrub(self, order: ForgetOrder) -> ScrubResult:
        from kept.postgres.table_rewrite import rewrite_tables
        from kept.team_files.file_tables import TABLES
        from kept.team_files.team_files import LOCK_WAIT_S, TeamFiles

        files = TeamFiles(self._config, self._workspace, self._clock)
        report = files.run(remove_many=True)
        with files.state.locked(LOCK_WAIT_S):
            files.state.drop_removed()
        removed = files.tables.hash_versions()
        if files.conversations is not None:
            removed += files.conversations.send_scrubbed()
        problems = rewrite_tables(files.tables.database, TABLES)
        copies = "The folders of other machines have it until they synchronise, which every search there does."
        return ScrubResult(
            removed=removed + len(report.sent), unreachable=(*problems, copies), is_complete=not problems
        )
