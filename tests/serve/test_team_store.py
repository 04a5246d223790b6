"""A server whose index is in PostgreSQL."""

from __future__ import annotations

from tests.support.files import write_file
from tests.support.serve_process import ServeProcess, create_token
from tests.support.waiting import wait_until


def test_a_server_of_a_team_is_ready_as_long_as_its_database_answers(team, tmp_path):
    write_file(tmp_path / "workspace/MEMORY.md", "# Memory\n\n- Staging moved to port 5433.\n")
    token = create_token(tmp_path / "home", "reader", "read")
    running = ServeProcess(tmp_path, **team.environment)
    try:
        with running.client() as probe:
            assert probe.get("/readyz").json()["status"] == "ready"
            assert "5433" in str(running.call(token, "memory_search", query="staging port"))
            assert team.end_connections() > 0  # as a failover does
            wait_until(lambda: probe.get("/readyz").status_code == 200, "it connects again")
            assert "5433" in str(running.call(token, "memory_search", query="staging port"))
            team.server.drop_schema(team.schema)
            wait_until(lambda: probe.get("/readyz").status_code == 503, "it notices")
            assert probe.get("/healthz").status_code == 200
        assert "postgresql://" not in "\n".join(running.lines)
    finally:
        assert running.stop() == 0
