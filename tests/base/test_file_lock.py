"""Names that one process at a time can claim."""

from __future__ import annotations

import multiprocessing
import os
import signal

from kept.base.file_lock import claimed


def test_a_name_is_claimed_once_and_free_again_afterwards(tmp_path):
    path = str(tmp_path / "name")
    with claimed(path) as ours:
        assert ours
        with claimed(path) as also_ours:
            assert not also_ours
        assert os.path.exists(path)
    assert not os.path.exists(path)
    with claimed(path) as again:
        assert again


def test_what_a_crash_left_behind_can_be_claimed(tmp_path):
    path = tmp_path / "name"
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    holder = context.Process(target=hold, args=(str(path), ready))
    holder.start()
    assert ready.wait(60)
    with claimed(str(path)) as ours:
        assert not ours
    os.kill(holder.pid, signal.SIGKILL)
    holder.join(60)
    assert path.exists()
    with claimed(str(path)) as ours:
        assert ours
    assert not path.exists()


def hold(path, ready):
    with claimed(path):
        ready.set()
        signal.pause()


def test_of_many_processes_one_at_a_time_is_inside(tmp_path):
    path, log = str(tmp_path / "name"), tmp_path / "log"
    log.touch()
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=enter_often, args=(path, str(log))) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    lines = log.read_text().splitlines()
    assert lines
    assert all(lines[at] == f"in {lines[at + 1].split()[1]}" for at in range(0, len(lines), 2)), "two were inside"


def enter_often(path, log):
    handle = os.open(log, os.O_WRONLY | os.O_APPEND)
    for _ in range(300):
        with claimed(path) as ours:
            if ours:
                os.write(handle, f"in {os.getpid()}\n".encode())
                os.write(handle, f"out {os.getpid()}\n".encode())
    os.close(handle)
