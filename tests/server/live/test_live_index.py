"""The index keeps itself current: every kind of change that people and programs make."""

import os
import queue
import shutil
import sys
import threading

import pytest

from kept.index.sources import IndexLimits
from kept.server.live import LiveIndex, find_watcher
from kept.server.live.changes import LiveTiming
from kept.sessions.entries import Message
from kept.sessions.store import SessionStore
from kept.testing import FakeEmbedder
from tests.support.waiting import wait_until
from tests.support.workspaces import index_path, open_memory, paths, write_note

QUICK = {"memory_search.sync.watch_debounce_ms": 60}


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "workspace"
    write_note(folder, "memory/a.md", "The parrot is green.\n")
    return folder


@pytest.fixture
def live(tmp_path, workspace):
    """Starts live indexes; all of them are stopped in the end."""
    memories, started = [], []

    def start(settings=None, **options):
        memory = open_memory(tmp_path, settings={**QUICK, **(settings or {})}, **options.pop("memory", {}))
        memories.append(memory)
        index = LiveIndex(memory, **options).start()
        started.append(index)
        assert index.wait_ready(60)
        return index

    yield start
    for index in started:
        index.stop()
    for memory in memories:
        memory.close()


EXTRA = ("there", "later")


@pytest.fixture
def search(tmp_path):
    """A search by word that syncs nothing, so that a hit shows that the live index is current."""
    extra = [str(tmp_path / name) for name in EXTRA]
    settings = {
        "memory_search.sync.on_search": False,
        "memory_search.provider": "none",
        "memory_search.extra_paths": extra,
    }
    reader = open_memory(tmp_path, settings=settings)

    def search(words):
        return paths(reader.search(words))

    yield search
    reader.close()


def search_until(search, words, expected):
    """Wait until the first hits are the expected ones. Ranking decides on the others."""
    wait_until(lambda: search(words)[: max(1, len(expected))] == expected, f"{words} is found in {expected}")


def test_an_edit_a_new_note_and_a_removal_are_taken_in(live, search, workspace):
    live()
    write_note(workspace, "memory/a.md", "The zeppelin is silver.\n")
    search_until(search, "zeppelin", ["memory/a.md"])
    write_note(workspace, "MEMORY.md", "The walrus is grey.\n")
    search_until(search, "walrus", ["MEMORY.md"])
    (workspace / "memory/a.md").unlink()
    search_until(search, "zeppelin", [])


def test_a_workspace_that_is_deleted_and_made_again_is_taken_in(live, search, workspace):
    index = live()
    shutil.rmtree(workspace)
    wait_until(lambda: "no workspace" in (index.state().problem or ""), "the problem is named")
    write_note(workspace, "memory/b.md", "The zeppelin is silver.\n")
    search_until(search, "zeppelin", ["memory/b.md"])
    write_note(workspace, "memory/b.md", "The walrus is grey.\n")
    search_until(search, "walrus", ["memory/b.md"])
    assert index.state().problem is None


def test_a_workspace_behind_a_link_is_watched_wherever_the_link_leads(live, search, workspace, tmp_path):
    workspace.rename(tmp_path / "one")
    write_note(tmp_path / "two", "memory/b.md", "The zeppelin is silver.\n")
    workspace.symlink_to(tmp_path / "one")
    live()
    write_note(tmp_path / "one", "memory/c.md", "The walrus is grey.\n")
    search_until(search, "walrus", ["memory/c.md"])
    (tmp_path / "link").symlink_to(tmp_path / "two")
    (tmp_path / "link").rename(workspace)
    search_until(search, "zeppelin", ["memory/b.md"])


def test_an_editor_that_writes_beside_and_renames_is_seen(live, search, workspace):
    live()
    for number in range(3):
        write_note(workspace, "memory/.a.md.swp", "not a note")
        beside = write_note(workspace, "memory/a.md~", f"The zeppelin{number} is silver.\n")
        beside.rename(workspace / "memory/a.md")
        search_until(search, f"zeppelin{number}", ["memory/a.md"])


def test_thousands_of_changes_at_once_are_all_taken_in(live, search, workspace):
    index = live()
    for number in range(2_000):
        write_note(workspace, f"memory/many/{number % 20}/{number}.md", f"The parrot{number} eats seed{number}.\n")
    wait_until(lambda: index.state().files == 2_001, "all notes")
    assert search("parrot1999") == ["memory/many/19/1999.md"]
    shutil.rmtree(workspace / "memory/many")
    wait_until(lambda: index.state().files == 1, "none of them")
    assert search("parrot1999") == []


def test_extra_paths_are_watched_also_when_they_come_later(live, search, workspace, tmp_path):
    there, later = (tmp_path / name for name in EXTRA)
    write_note(there, "b.md", "The zeppelin is silver.\n")
    live({"memory_search.extra_paths": [str(there), str(later)]})
    write_note(there, "b.md", "The walrus is grey.\n")
    search_until(search, "walrus", [str(there / "b.md")])
    write_note(later, "c.md", "The octopus is blue.\n")
    search_until(search, "octopus", [str(later / "c.md")])


def test_a_vault_is_watched_with_all_its_folders_and_its_patterns(live, tmp_path, workspace):
    vault = {"workspace_layout": "vault", "memory_search.extensions": ["txt"]}
    reader = open_memory(
        tmp_path, settings={**vault, "memory_search.sync.on_search": False, "memory_search.provider": "none"}
    )
    write_note(workspace, "Area/deep/b.md", "The kite is red.\n")
    live(settings=vault)
    write_note(workspace, "Area/deep/c.txt", "The plum is blue.\n")
    search_until(lambda words: paths(reader.search(words)), "plum", ["Area/deep/c.txt"])
    assert paths(reader.search("kite")) == ["Area/deep/b.md"]
    write_note(workspace, ".keptignore", "deep/\n")
    search_until(lambda words: paths(reader.search(words)), "kite", [])
    reader.close()


def test_a_link_inside_the_workspace_leads_the_watcher_nowhere(live, workspace, tmp_path):
    write_note(tmp_path / "elsewhere", "b.md", "The zeppelin is silver.\n")
    (workspace / "memory/link").symlink_to(tmp_path / "elsewhere")
    index = live()
    write_note(tmp_path / "elsewhere", "b.md", "The walrus is grey.\n")
    write_note(workspace, "memory/c.md", "The octopus is blue.\n")
    wait_until(lambda: index.state().files == 2, "the note that is inside")


# conversations


@pytest.fixture
def talk(tmp_path):
    with SessionStore.open(home=tmp_path / "home") as store:
        record = store.get_or_create("telegram", "5054")

        def say(*texts):
            for text in texts:
                store.append(record.id, Message.of("user", text))

        yield say


def test_a_conversation_is_taken_in_when_enough_was_said(live, search, talk):
    talk("The zeppelin is silver.")
    index = live({"memory_search.sync.sessions.delta_messages": 5}, timing=LiveTiming(talk_quiet_s=1_000_000.0))
    assert len(search("zeppelin")) == 1
    talk("The walrus is grey.")
    wait_until(lambda: index.state().waiting, "it is noticed")
    for _ in range(5):
        assert search("walrus") == []
        talk("More.")
    wait_until(lambda: search("walrus"), "the walrus")


# where something does not work


def test_where_the_kernel_has_no_watchers_left_folders_are_looked_at_and_that_is_said_once(
    live, search, workspace, monkeypatch
):
    def refuse(*_, **__):
        raise OSError("OS file watch limit reached.")

    monkeypatch.setattr("watchfiles.watch", refuse)
    events = queue.SimpleQueue()
    index = live(listener=events.put, timing=LiveTiming(poll_s=0.1))
    assert index.state().watching == "polling"
    for number in range(3):
        write_note(workspace, f"memory/b{number}/c.md", f"The zeppelin{number} is silver.\n")
        search_until(search, f"zeppelin{number}", [f"memory/b{number}/c.md"])
    index.stop()
    notices = [event.message for event in _drain(events) if event.kind == "notice"]
    assert len(notices) == 1
    assert "watch limit reached" in notices[0]
    assert "max_user_watches" in notices[0]


def test_without_the_package_that_watches_folders_are_looked_at_and_it_is_named(live, monkeypatch):
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    events = queue.SimpleQueue()
    assert live(listener=events.put).state().watching == "polling"
    assert any("kept[watch]" in event.message for event in _drain(events))


def test_a_sync_that_fails_is_told_and_tried_again(live, search, workspace, tmp_path):
    index = live(timing=LiveTiming(retry_s=(0.1,)))
    file = index_path(tmp_path)
    for part in file.parent.glob("index.sqlite*"):
        part.unlink()
    file.mkdir()
    write_note(workspace, "memory/b.md", "The zeppelin is silver.\n")
    wait_until(lambda: "cannot be opened" in (index.state().problem or ""), "the problem is told")
    file.rmdir()
    search_until(search, "zeppelin", ["memory/b.md"])
    wait_until(lambda: index.state().problem is None, "it is over")


def test_an_embedder_that_was_down_is_asked_again_until_all_is_found_by_meaning(live, workspace):
    embedder = FakeEmbedder()
    embedder.broken = True
    memory = {"embedder": embedder, "limits": IndexLimits(embedder_rest_s=0.0)}
    index = live(memory=memory, timing=LiveTiming(retry_s=(0.1,)))
    assert "not yet by meaning" in (index.state().problem or "")
    embedder.broken = False
    wait_until(lambda: index.state().problem is None, "it is embedded")
    assert embedder.texts


def test_whatever_goes_wrong_while_leading_is_told_and_leading_begun_anew(live, search, workspace):
    events, failed = queue.SimpleQueue(), threading.Event()

    def fail_once(event):
        events.put(event)
        if event.kind == "synced" and not failed.is_set():
            failed.set()
            raise ValueError("no such luck")

    index = live(listener=fail_once, timing=LiveTiming(tick_s=0.1))
    assert failed.is_set()
    write_note(workspace, "memory/b.md", "The zeppelin is silver.\n")
    search_until(search, "zeppelin", ["memory/b.md"])
    assert index.state().role == "leader"
    assert any("no such luck" in event.message for event in _drain(events) if event.kind == "problem")


# how it is used


def test_without_watching_the_index_is_brought_up_to_date_at_the_start_and_no_more(live, search, workspace):
    index = live({"memory_search.sync.watch": False})
    assert search("parrot") == ["memory/a.md"]
    assert index.state().watching == "nothing"
    assert index.state().syncs == 1


def test_it_can_be_stopped_in_the_middle_of_a_long_sync(tmp_path, workspace):
    for number in range(450):
        write_note(workspace, f"memory/{number}.md", f"The parrot{number} eats seed{number}.\n")
    begun, go_on = threading.Event(), threading.Event()

    class PausingEmbedder(FakeEmbedder):
        def embed(self, texts, *, role):
            begun.set()
            assert go_on.wait(60)
            return super().embed(texts, role=role)

    with open_memory(tmp_path, embedder=PausingEmbedder()) as memory:
        index = LiveIndex(memory, timing=LiveTiming(stop_wait_s=0.0)).start()
        assert begun.wait(60)
        index.stop()  # returns at once, while the first batch of files is embedded
        go_on.set()
        wait_until(lambda: index.state().role == "stopped", "the thread has ended")
        assert 0 < memory.status().chunks < 451
        assert memory.sync().files == 451


def test_of_two_in_one_process_one_leads_and_who_it_is_can_be_found_out(live, tmp_path):
    with open_memory(tmp_path) as memory:
        assert find_watcher(memory.config) is None
        first, second = live(), live()
        assert (first.state().role, second.state().role) == ("leader", "standby")
        assert second.state().leader_pid == find_watcher(memory.config) == os.getpid()
        first.stop()
        wait_until(lambda: second.state().role == "leader", "the second takes over")
        second.stop()
        assert find_watcher(memory.config) is None


def test_a_leader_whose_lock_was_deleted_lets_go_and_takes_it_again(live, tmp_path, workspace):
    index = live()
    (lock,) = (tmp_path / "home/agents/main").glob("watcher-*.lock")
    lock.unlink()
    wait_until(lambda: lock.exists() and index.state().role == "leader", "the lock is there again")
    write_note(workspace, "memory/b.md", "The zeppelin is silver.\n")
    wait_until(lambda: index.state().files == 2, "both notes")


def _drain(events):
    drained = []
    while not events.empty():
        drained.append(events.get())
    return drained
