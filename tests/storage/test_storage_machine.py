"""Any sequence of commits, edits by others and kills: nothing acknowledged is lost, nothing half done is seen."""

from hypothesis.stateful import run_state_machine_as_test

from tests.support.storage_machine import SETTINGS, StorageMachine


def test_any_sequence_of_commits_edits_and_kills_loses_nothing():
    run_state_machine_as_test(StorageMachine, settings=SETTINGS)
