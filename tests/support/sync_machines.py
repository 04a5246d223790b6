"""Machines with the same notes: each has a home and a workspace of its own, and all share a bare repository on disk."""

import os
import subprocess
from pathlib import Path
from typing import Any

from kept.base.durable import is_temporary
from kept.cli.sync import GitSync, GitSyncReport
from kept.config import load_config
from tests.support.killing import dying_at, is_killed


def git(folder: Path, *arguments: str, stdin: bytes | None = None) -> str:
    """Run git as a person would, with an identity of its own."""
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "protocol.file.allow=always")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, input=stdin, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode("utf-8", "surrogateescape").strip()


def make_remote(folder: Path, name: str = "team.git") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "--quiet", "--bare", "--initial-branch=main", name)
    return folder / name


class Machine:
    """A machine with a workspace."""

    def __init__(self, folder: Path, name: str, **settings: Any) -> None:
        self.home = folder / name / "home"
        self.workspace = folder / name / "workspace"
        (self.workspace / "memory").mkdir(parents=True)
        self.settings = settings

    @property
    def run_of(self) -> GitSync:
        loaded = load_config(
            home=str(self.home), workspace=str(self.workspace), settings=self.settings, trust_workspace=True, environ={}
        )
        return GitSync(loaded.config)

    def connect(self, remote: Path) -> GitSyncReport:
        run = self.run_of
        run.connect(str(remote))
        return run.run()

    def sync(self) -> GitSyncReport:
        return self.run_of.run()

    def write(self, path: str, text: str | bytes) -> Path:
        file = self.workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return file

    def read(self, path: str) -> str:
        return (self.workspace / path).read_bytes().decode()

    def files(self) -> dict[str, bytes]:
        """Return the files of the workspace, but for the repository, the history, and what a kill left behind."""
        every = (file for file in self.workspace.rglob("*") if file.is_file() and not is_temporary(file.name))
        files = {str(file.relative_to(self.workspace)): file.read_bytes() for file in every}
        return {path: data for path, data in files.items() if not path.startswith((".git/", ".kept/"))}


def connect_machines(folder: Path, *names: str, **settings: Any) -> list[Machine]:
    """Return machines that share a new, empty repository."""
    remote = make_remote(folder)
    machines = [Machine(folder, name, **settings) for name in names]
    for machine in machines:
        machine.connect(remote)
    return machines


def settle(machines: list[Machine]) -> None:
    """Synchronise until every machine has everything."""
    for machine in (*machines, *machines):
        machine.sync()


def killed_at(machine: Machine, point: int) -> bool:
    """Synchronise in a process that is killed when it starts git, or changes a file, for the ``point``-th time."""

    def act() -> None:
        watched = dying_at(point)
        for step in ("replace", "fsync", "unlink"):
            setattr(os, step, watched(getattr(os, step)))
        subprocess.Popen = watched(subprocess.Popen)
        machine.sync()

    return is_killed(act)
