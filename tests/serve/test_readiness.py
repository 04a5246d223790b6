"""Whether a server says that it is ready."""

from __future__ import annotations

import asyncio

from kept.serve.routes import Readiness
from tests.support.workspaces import write_note


def find_problem(memory, *, timeout_s=30.0, busy=False):
    readiness = Readiness(memory, timeout_s)

    async def look() -> str:
        if not busy:
            return await readiness.find_problem()
        with readiness._service.inspecting():  # as a sync that takes long does
            return await readiness.find_problem()

    try:
        return asyncio.run(look())
    finally:
        readiness.close()


def test_an_index_that_opens_is_ready_and_one_that_does_not_is_named(memory, workspace, tmp_path):
    write_note(workspace, "memory/a.md", "A note.")
    assert find_problem(memory()) == ""
    (tmp_path / "folder").mkdir()
    assert find_problem(memory(settings={"memory_search.store.path": str(tmp_path / "folder")})) == "index_unavailable"


def test_an_index_that_does_not_answer_in_time_is_not_ready(memory):
    assert find_problem(memory(), timeout_s=0.1, busy=True) == "timeout"
