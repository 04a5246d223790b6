"""Several real processes that keep one index current."""

import json
import queue
import signal
import threading

import pytest

from tests.support.commands import kept_environment, run_kept, start_kept
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.workspaces import open_memory, paths, write_note

pytestmark = pytest.mark.kills

DEBOUNCE = ("--set", "memory_search.sync.watch_debounce_ms=50")


class Watcher:
    """`kept index --watch --json` in a process of its own, and what it tells."""

    def __init__(self, tmp_path, *settings):
        more = [part for setting in settings for part in ("--set", setting)]
        self.process = start_kept(tmp_path, *DEBOUNCE, *more, "index", "--watch", "--json")
        self.pid = self.process.pid
        self.role = None
        self._events = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            event = json.loads(line)
            self.role = event["state"]["role"]
            self._events.put(event)

    def until(self, matches):
        """The next event of which this is true."""
        while True:
            event = self._events.get(timeout=PATIENCE_S)
            if matches(event):
                return event

    def until_role(self, role):
        return self.until(lambda event: event["state"]["role"] == role)

    def until_synced(self):
        return self.until(lambda event: event["event"] == "synced")["report"]

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        with self.process.stdout, self.process.stderr:
            return code, self.process.stderr.read()


@pytest.fixture
def watch(tmp_path):
    write_note(tmp_path / "workspace", "memory/a.md", "The parrot is green.\n")
    started = []

    def start(*settings):
        started.append(Watcher(tmp_path, *settings))
        return started[-1]

    yield start
    for watcher in started:
        if watcher.process.poll() is None:
            watcher.end(signal.SIGKILL)


def test_one_works_and_when_it_is_killed_another_takes_over(watch, tmp_path):
    first = watch()
    first.until_synced()
    others = [watch(), watch()]
    for watcher in others:
        assert watcher.until_role("standby")["state"]["leaderPid"] == first.pid
    assert status_of(tmp_path)["watcher"] == first.pid

    assert first.end(signal.SIGKILL)[0] == -signal.SIGKILL
    successor = wait_until(
        lambda: next((watcher for watcher in others if watcher.role == "leader"), None), "one takes over"
    )
    assert successor.until_role("leader")["state"]["leaderPid"] == successor.pid
    successor.until_synced()
    assert status_of(tmp_path)["watcher"] == successor.pid
    write_note(tmp_path / "workspace", "memory/b.md", "The zeppelin is silver.\n")
    assert successor.until_synced()["indexed"] == 1
    with open_memory(tmp_path, settings={"memory_search.provider": "none", "memory_search.sync.on_search": False}) as m:
        assert paths(m.search("zeppelin")) == ["memory/b.md"]


def test_a_watcher_that_is_told_to_stop_ends_quietly_and_leaves_the_lead(watch, tmp_path):
    for number in (signal.SIGTERM, signal.SIGINT):
        watcher = watch()
        watcher.until_synced()
        assert watcher.end(number) == (0, "")
    assert status_of(tmp_path)["watcher"] is None


def test_watchers_of_two_workspaces_do_not_stand_in_each_others_way(watch, tmp_path):
    first = watch()
    first.until_synced()
    write_note(tmp_path / "other", "memory/b.md", "The zeppelin is silver.\n")
    second = watch(f"workspace={tmp_path / 'other'}")
    assert second.until_role("leader")
    assert second.until_synced()["files"] == 1


def status_of(tmp_path):
    return run_kept("status", "--json", env=kept_environment(tmp_path), cwd=tmp_path).json
