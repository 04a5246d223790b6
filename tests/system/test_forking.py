"""A child that is forked while other threads search can search too, or is told why not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.commands import kept_environment
from tests.support.workspaces import write_note

# In a process of its own: newer versions of Python warn of every fork beside other threads.
HEAD = """
import os, signal, sys, threading
from kept import Memory, SessionStore
from kept.errors import KeptError
from kept.testing import FakeEmbedder

workspace, home = sys.argv[1:]

def child(action):
    "Fork, act in the child, and return what it printed to the parent."
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)  # a child that hangs is ended, and has printed nothing
        try:
            os.write(writing, str(action()).encode())
        except KeptError as exc:
            os.write(writing, f"{exc.code}: {exc.hint}".encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as file:
        printed = file.read().decode()
    os.waitpid(pid, 0)
    return printed or "nothing"
"""

SEARCHING = """
done = threading.Event()
memory = Memory.open(workspace, home=home, embedder=FakeEmbedder())
memory.sync()
sessions = SessionStore.open(home=home)
sessions.get_or_create("telegram", "5054")

def search():
    while not done.is_set():
        memory.search("parrot7")
        sessions.recent()

threads = [threading.Thread(target=search) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(12):
    print(child(lambda: (memory.search("parrot7").hits[0].path, len(sessions.recent()))))
done.set()
for thread in threads:
    thread.join()
print(memory.search("parrot7").hits[0].path)
memory.close()
"""

BUSY = """
from kept import forking
forking.FORK_WAIT_S = 0.01
memory = Memory.open(workspace, home=home, embedder=FakeEmbedder())
inside, done = threading.Event(), threading.Event()

def hold():
    with memory.index_service.inspecting():
        inside.set()
        done.wait()

thread = threading.Thread(target=hold)
thread.start()
inside.wait()
print(child(lambda: memory.search("parrot7")))
print(child(lambda: Memory.open(workspace, home=home, embedder=FakeEmbedder()).search("parrot7")))
done.set()
thread.join()
print(child(lambda: memory.search("parrot7").hits[0].path))
"""

LOCKED = """
from kept.durable import locked
path = home + ".lock"
reading, writing = os.pipe()
with locked(path, wait_s=0, purpose="testing"):
    pid = os.fork()
    if pid == 0:
        os.close(writing)
        os.read(reading, 1)  # lives on until the parent has taken the lock again
        os._exit(0)
with locked(path, wait_s=0, purpose="testing"):
    print("free")
os.close(writing)
os.waitpid(pid, 0)
"""

LIVE = """
from kept.live import LiveIndex
memory = Memory.open(workspace, home=home, embedder=FakeEmbedder())
live = LiveIndex(memory).start()
live.wait_ready(60)
print(live.state().role)
print(child(lambda: live.state().role))
live.stop()
"""


@pytest.fixture
def run(tmp_path):
    for number in range(30):
        write_note(tmp_path / "workspace", f"memory/{number}.md", f"The parrot{number} eats seed{number}.\n")

    def run(script: str) -> list[str]:
        ended = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", HEAD + script, tmp_path / "workspace", tmp_path / "home"],
            env=kept_environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ended.stderr == ""
        return ended.stdout.splitlines()

    return run


def test_children_forked_while_other_threads_search_find_the_same(run):
    assert run(SEARCHING) == ["('memory/7.md', 1)"] * 12 + ["memory/7.md"]


def test_a_child_that_would_hang_is_told_what_to_do(run):
    refused, also_refused, found = run(BUSY)
    assert refused.startswith("forked_while_busy: Fork before other threads")
    assert also_refused == refused
    assert found == "memory/7.md"


def test_a_child_does_not_hold_its_parent_s_locks(run):
    assert run(LOCKED) == ["free"]


def test_a_child_does_not_lead_in_its_parent_s_place(run):
    assert run(LIVE) == ["leader", "stopped"]
