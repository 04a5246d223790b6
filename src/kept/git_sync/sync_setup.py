"""`kept sync --init URL`: creates the repository of a team in a workspace, or adds the remote to an existing one."""

from __future__ import annotations

import os

from kept.durable import append_durably, write_atomic
from kept.errors import GitSyncRefused
from kept.file_lock import locked
from kept.git_command import GitFailed, run_git
from kept.git_sync.git_objects import failed, without_credentials
from kept.git_sync.git_sync import GitSync
from kept.git_sync.repository import OPTIONS, SyncRepository
from kept.history.git_commits import is_repository
from kept.working_copy.synced_files import PRIVATE_FOLDER

_IGNORED = ("/.kept/*", "!/.kept/proposals/", ".kept-*.tmp")
_TIMEOUT_S = 60.0


def connect_workspace(sync: GitSync, url: str) -> bool:
    """Connect a workspace to a remote. Return whether its repository is new. Nothing is sent yet.

    Raise GitSyncRefused if the workspace is in another repository, or has another remote.
    """
    workspace, repository = sync.workspace, sync.repository
    name = sync.settings.remote
    if url.startswith("-") or not url.strip() or not url.isprintable():
        raise GitSyncRefused(f"'{url}' is not the address of a repository.")
    if ":" in name or "/" in name:
        hint = "Unset it, or synchronise without --init."
        raise GitSyncRefused(f"sync.git.remote names an address already: {without_credentials(name)}.", hint=hint)
    workspace.require()
    with locked(workspace.root, wait_s=_TIMEOUT_S, purpose="writing to this workspace"):
        is_new = not os.path.lexists(repository.git_folder)
        if is_new:
            _create(repository)
        elif not repository.exists():
            repository.require_ready()
        known = repository.find("remote", "get-url", name)
        if known and known != url:
            raise GitSyncRefused(
                f"The remote '{name}' of the repository is {without_credentials(known)}.",
                hint=f"Change it with 'git remote set-url {name} URL', or set sync.git.remote to another name.",
            )
        if not known:
            repository.run("remote", "add", "--", name, url)
        _require_branch(repository)
        _write_ignored(repository)
    return is_new


def _create(repository: SyncRepository) -> None:
    if is_repository(os.path.dirname(repository.root)):
        raise GitSyncRefused(
            f"{repository.root} is inside another git repository.",
            hint="Keep the notes of a team in a folder of their own, for example: kept init ~/team-notes",
        )
    branch = repository.settings.branch
    try:
        run_git(
            repository.root,
            *(*OPTIONS, "init", "--quiet", "--template=", f"--initial-branch={branch}", "--", "."),
            timeout_s=_TIMEOUT_S,
        )
    except GitFailed as exc:
        raise failed(exc) from exc


def _require_branch(repository: SyncRepository) -> None:
    """Raise GitSyncRefused if the remote has branches, and not the one of the settings."""
    settings = repository.settings
    output = repository.run("ls-remote", "--heads", "--", settings.remote, timeout_s=settings.timeout_s)
    names = [line.partition("refs/heads/")[2] for line in output.decode("utf-8", "replace").splitlines()]
    if names and settings.branch not in names:
        raise GitSyncRefused(
            f"The remote has no branch '{settings.branch}'. It has: {', '.join(names[:5])}.",
            hint=f"Choose one with 'kept config set sync.git.branch {names[0]}'.",
        )


def _write_ignored(repository: SyncRepository) -> None:
    """Keep the history, which is each machine's own, and private notes out of commits that a person makes."""
    path = os.path.join(repository.root, ".gitignore")
    excluded = [] if repository.settings.private else [f"/{PRIVATE_FOLDER}/"]
    if os.path.lexists(path):  # it may be a person's: leave it as it is
        excluded += _IGNORED
    else:
        write_atomic(path, "".join(f"{line}\n" for line in _IGNORED).encode())
    exclude = os.path.join(repository.git_folder, "info", "exclude")
    try:
        with open(exclude, "rb") as file:
            known = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        known = []
    if added := [line for line in excluded if line not in known]:
        append_durably(exclude, "".join(f"{line}\n" for line in added).encode())
