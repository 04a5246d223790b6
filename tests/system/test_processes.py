"""Many processes and threads on one memory at once."""

import json
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kept.index.sources import IndexLimits
from tests.support.commands import start_kept
from tests.support.workspaces import open_memory, paths, write_note

pytestmark = pytest.mark.slow


def test_eight_search_while_one_indexes_and_one_watches(tmp_path):
    workspace = tmp_path / "workspace"
    for number in range(150):
        write_note(
            workspace, f"memory/{number}.md", f"# Note {number}\n\nThe parrot{number} eats seed{number} daily.\n"
        )
    watcher = start_kept(tmp_path, "--set", "memory_search.sync.watch_debounce_ms=50", "index", "--watch")
    watcher.stdout.readline()
    try:
        for round_ in range(3):
            write_note(workspace, f"memory/extra{round_}.md", f"The zeppelin{round_} is silver.\n")
            indexer = start_kept(tmp_path, "index", "--force", "--json")
            searchers = [start_kept(tmp_path, "search", f"parrot{n * 7}", "--json") for n in range(8)]
            for number, process in enumerate(searchers):
                out, err = process.communicate(timeout=120)
                assert (process.returncode, err) == (0, "")
                assert json.loads(out)["results"][0]["path"] == f"memory/{number * 7}.md"
            out, err = indexer.communicate(timeout=120)
            assert (indexer.returncode, err) == (0, "")
            assert json.loads(out)["files"] == 151 + round_
    finally:
        watcher.send_signal(signal.SIGTERM)
        out, err = watcher.communicate(timeout=60)
    assert watcher.returncode == 0
    assert "Traceback" not in err


def test_eight_processes_can_make_the_index_at_the_same_moment(tmp_path):
    workspace = tmp_path / "workspace"
    for number in range(30):
        write_note(workspace, f"memory/{number}.md", f"The parrot{number} eats seed{number}.\n")
    searchers = [start_kept(tmp_path, "search", f"parrot{number}", "--json") for number in range(8)]
    for number, process in enumerate(searchers):
        out, err = process.communicate(timeout=120)
        assert (process.returncode, err) == (0, "")
        assert json.loads(out)["results"][0]["path"] == f"memory/{number}.md"


def test_threads_share_a_memory(tmp_path):
    workspace = tmp_path / "workspace"
    for number in range(30):
        write_note(workspace, f"memory/{number}.md", f"The parrot{number} eats seed{number}.\n")
    with open_memory(tmp_path) as memory, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: memory.search(f"parrot{n % 30}").hits[0].path, range(90)))
    assert found == [f"memory/{n % 30}.md" for n in range(90)]


def test_a_search_during_a_long_sync_answers_from_what_is_there_and_says_so(tmp_path):
    workspace = tmp_path / "workspace"
    write_note(workspace, "memory/a.md", "The parrot is green.\n")
    with open_memory(tmp_path, limits=IndexLimits(search_wait_s=0.05)) as memory, open_memory(tmp_path) as other:
        memory.sync()
        write_note(workspace, "memory/b.md", "The zeppelin is silver.\n")
        with other.index_service.inspecting() as (index, _), index.indexing(wait_s=1):
            for _ in range(2):  # the second one hardly waits
                result = memory.search("parrot")
                assert paths(result) == ["memory/a.md"]
                assert "Another process is indexing" in result.degraded[0]
        assert paths(memory.search("zeppelin")) == ["memory/b.md"]


def test_readers_go_on_while_the_index_is_rebuilt(tmp_path):
    workspace = tmp_path / "workspace"
    for number in range(300):
        write_note(workspace, f"memory/{number}.md", f"The parrot{number} eats seed{number}.\n")
    with open_memory(tmp_path) as memory:
        memory.sync()
    done = threading.Event()
    wrong: list[object] = []

    def read():
        with open_memory(tmp_path, settings={"memory_search.sync.on_search": False}) as reader:
            while not done.is_set():
                result = reader.search("parrot17")
                if paths(result)[:1] != ["memory/17.md"] or result.degraded:
                    wrong.append(result)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    with open_memory(tmp_path) as memory:
        for _ in range(4):
            memory.sync(force=True)
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []
