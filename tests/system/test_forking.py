"""A forked child uses the memory that its parent had open, with connections of its own."""

import pytest

from tests.support.commands import kept_environment, run_python
from tests.support.workspaces import write_note

# In a process of its own: newer versions of Python warn of every fork beside other threads.
HEAD = """
import multiprocessing, os, signal, sys
from kept import Memory, SessionStore
from kept.errors import KeptError
from kept.testing import FakeEmbedder

workspace, home = sys.argv[1:]

def find(query):
    return memory.search(query).hits[0].path

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

OPEN = """
memory = Memory.open(workspace, home=home, embedder=FakeEmbedder())
memory.sync()
sessions = SessionStore.open(home=home)
sessions.get_or_create("telegram", "5054")
for _ in range(3):
    print(child(lambda: (memory.search("parrot7").hits[0].path, len(sessions.recent()))))
context = multiprocessing.get_context("fork")
with context.Pool(2) as pool:
    print(pool.map(find, ["parrot3", "parrot4"]))
print(memory.search("parrot7").hits[0].path, len(sessions.recent()))
memory.close()
"""

WRITING = """
memory = Memory.open(workspace, home=home, embedder=FakeEmbedder())
memory.search("parrot7")
print(child(lambda: memory.add("The heron eats frogs.").path.startswith("memory/")))
print("heron" in str(memory.search("heron frogs").hits[0]))
with memory.index_service.inspecting():  # a child forked inside the lock starts with a free one
    print(child(lambda: memory.search("parrot7").hits[0].path))
"""

LOCKED = """
from kept.base.file_lock import locked
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
from kept.server.live import LiveIndex
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
        env = {**kept_environment(tmp_path), "PYTHONWARNINGS": "ignore"}
        ended = run_python(HEAD + script, tmp_path / "workspace", tmp_path / "home", env=env)
        assert ended.stderr == ""
        return ended.stdout.splitlines()

    return run


def test_a_forked_child_searches_with_connections_of_its_own(run):
    assert run(OPEN) == [*["('memory/7.md', 1)"] * 3, "['memory/3.md', 'memory/4.md']", "memory/7.md 1"]


def test_what_a_child_writes_its_parent_finds(run):
    assert run(WRITING) == ["True", "True", "memory/7.md"]


def test_a_child_does_not_hold_its_parent_s_locks(run):
    assert run(LOCKED) == ["free"]


def test_a_child_does_not_lead_in_its_parent_s_place(run):
    assert run(LIVE) == ["leader", "stopped"]
