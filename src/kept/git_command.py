"""Runs the `git` program: without questions, with a time limit, and never in another repository than the caller's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress

_KEPT_VARIABLES = ("GIT_SSH", "GIT_SSL_", "GIT_PROXY_", "GIT_HTTP_", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM")
"""Beginnings of variables that say how to reach a remote. Others may name another repository, as in a hook of git."""
_SIGXFSZ = getattr(signal, "SIGXFSZ", 25)


class GitFailed(Exception):
    """A call of git failed. The text is its last line."""

    def __init__(self, message: str, *, output: str = "", is_too_large: bool = False) -> None:
        super().__init__(message)
        self.output = output
        """Everything that git said."""
        self.is_too_large = is_too_large
        """True if it was stopped because it wrote too large a file."""


def git_environment() -> dict[str, str]:
    """Return the environment for git: nothing can be asked, and nothing leads to another repository."""
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith(_KEPT_VARIABLES)
    }
    return own | {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "true",  # a program that answers nothing; otherwise a window might ask
        "SSH_ASKPASS": "true",
        "GIT_EDITOR": "true",
        "LC_ALL": "C",
    }


def run_git(
    root: str,
    *arguments: str,
    timeout_s: float,
    stdin: bytes = b"",
    variables: Mapping[str, str] | None = None,
    max_file_bytes: int | None = None,
    good_codes: tuple[int, ...] = (0,),
) -> bytes:
    """Run git in a folder and return its output. Raise GitFailed.

    ``max_file_bytes`` stops it when it writes a larger file, such as a pack that a remote sends.
    """
    process = start_git(root, *arguments, variables=variables, max_file_bytes=max_file_bytes)
    try:
        output, errors = process.communicate(stdin, timeout=timeout_s)
    except subprocess.TimeoutExpired as exc:
        raise GitFailed(f"git took longer than {timeout_s:.0f} seconds") from exc
    finally:
        stop_git(process)
    if process.returncode not in good_codes:
        raise failure_of(process.returncode, errors, output)
    return output


def read_git(root: str, *arguments: str, max_output: int, variables: Mapping[str, str] | None = None) -> bytes | None:
    """Run git in a folder and return its output, or None as soon as there is more than ``max_output`` bytes."""
    process = start_git(root, *arguments, variables=variables)
    pieces: list[bytes] = []
    size = 0
    try:
        if process.stdin is not None:
            process.stdin.close()
        while process.stdout is not None and (piece := os.read(process.stdout.fileno(), 1 << 20)):
            pieces.append(piece)
            size += len(piece)
            if size > max_output:
                return None
        process.wait()
        errors = process.stderr.read() if process.stderr is not None else b""
    finally:
        stop_git(process)
    if process.returncode:
        raise failure_of(process.returncode, errors)
    return b"".join(pieces)


def start_git(
    root: str,
    *arguments: str,
    variables: Mapping[str, str] | None = None,
    max_file_bytes: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start git in a group of processes of its own, so that `stop_git` also ends what it started."""
    try:
        process = subprocess.Popen(
            ["git", *arguments],
            cwd=root,
            env=git_environment() | dict(variables or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as exc:
        raise GitFailed(f"git cannot be run ({exc.strerror})") from exc
    if max_file_bytes is not None and sys.platform == "linux":
        import resource

        with suppress(OSError):  # it has ended already
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (max_file_bytes, max_file_bytes))
    return process


def stop_git(process: subprocess.Popen[bytes]) -> None:
    """End git and what it started, unless it has ended."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


def failure_of(code: int, errors: bytes, output: bytes = b"") -> GitFailed:
    """Return the error for an exit code and what git said."""
    message = "\n".join(part.decode("utf-8", "replace").strip() for part in (errors, output) if part)
    lines = [line for line in message.split("\n") if line.strip() and not line.startswith("hint:")]
    reason = next((line for line in lines if line.startswith(("fatal: ", "error: "))), lines[-1] if lines else "")
    is_too_large = f"signal {_SIGXFSZ}" in message or code == -_SIGXFSZ or "File too large" in message
    return GitFailed(reason or f"exit code {code}", output=message, is_too_large=is_too_large)
