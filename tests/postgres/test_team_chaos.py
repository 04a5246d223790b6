"""Three machines of a team write, index, search and answer while everything fails, for some seconds."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from benchmarks.team_chaos.chaos_run import ChaosRun

pytestmark = [pytest.mark.kills, pytest.mark.slow]


def test_nothing_is_lost_or_twice_and_the_index_equals_a_rebuild():
    folder = Path(tempfile.mkdtemp(prefix="kept-chaos-"))  # short, as the path of a socket must be
    events: list[str] = []
    run = ChaosRun(folder, seed=3, synchronous=True, say=events.append)
    try:
        result = run.run(8, event_every_s=0.8, pause_s=0.5, failovers=1)
    finally:
        run.close()
        shutil.rmtree(folder)
    assert result["problems"] == {}, events
    assert result["figures"]["messages accepted"] > 0
    assert result["figures"]["notes acknowledged"] > 0
    assert any("failover" in event for event in events)
