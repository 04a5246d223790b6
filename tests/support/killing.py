"""Kills a process at a chosen step: before the n-th call that changes the disk, of which a write is done by half."""

import os
import signal

_CALLS = ("write", "pwrite", "replace", "rename", "unlink", "fsync", "mkdir", "ftruncate")


def die(*_, **options):
    os.kill(os.getpid(), signal.SIGKILL)


def is_killed(act):
    """Run a function in a child process. Return whether the child was killed."""
    child = os.fork()
    if not child:
        try:
            act()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def dying_at(count):
    """Return a function that wraps others: the process dies at the ``count``-th call of any of them."""
    calls = iter(range(count - 1))

    def watched(original):
        def call(*arguments, **options):
            if next(calls, None) is None:
                die()
            return original(*arguments, **options)

        return call

    return watched


def run_until(step, act):
    """Run a function in a child process that dies at a step. Return True if the function ended before."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    left = [step]
    for name in _CALLS:
        setattr(os, name, _dying(getattr(os, name), left))
    try:
        act()
        os._exit(0)
    finally:
        os._exit(3)


def _dying(call, left):
    def wrapped(*arguments, **options):
        if left[0] == 0:
            if call.__name__ in ("write", "pwrite"):
                handle, data, *rest = arguments
                call(handle, bytes(data)[: len(data) // 2], *rest)
            os._exit(9)
        left[0] -= 1
        return call(*arguments, **options)

    return wrapped
