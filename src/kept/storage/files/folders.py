"""Opens the files of a storage one folder at a time, so that no symbolic link on the way is ever followed.

Checking a path and then opening it leaves a moment in which a folder can be swapped for a link. So each folder is
opened in its parent (``openat`` with ``O_NOFOLLOW``). The root itself may be a link: the user chose it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from kept.base.durable import OPEN_FOLDER, is_temporary, make_private_folder, sync_folder
from kept.base.limits import printable_line
from kept.errors import NoteTooLarge, PathRefused, WorkspaceError
from kept.storage.contract import MAX_PATH_BYTES, OWN_FOLDER, Choose, OnRefused

_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""A pipe in the place of a file must not block the process."""
_OWN_PARENT, _OWN_NAME = OWN_FOLDER.rpartition("/")[0] + "/", OWN_FOLDER.rpartition("/")[2]


@contextmanager
def opened_folder(root: str, path: str, *, create: bool = False) -> Iterator[int]:
    """Yield the open folder that a file is in. Raise OSError, with ELOOP if a link is in the way."""
    try:
        handle = os.open(root, OPEN_FOLDER)
    except FileNotFoundError:
        if not create:
            raise
        make_private_folder(root)
        handle = os.open(root, OPEN_FOLDER)
    try:
        for part in path.split("/")[:-1]:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=handle)
                    sync_folder(handle)
            try:
                below = os.open(part, OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=handle)
            except NotADirectoryError:  # what Linux reports for a link, too
                if stat.S_ISLNK(os.stat(part, dir_fd=handle, follow_symlinks=False).st_mode):
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
                raise
            os.close(handle)
            handle = below
        yield handle
    finally:
        os.close(handle)


@contextmanager
def opened_file(root: str, path: str, flags: int = os.O_RDONLY) -> Iterator[int | None]:
    """Yield the open file, or None if there is none. Raise PathRefused for a link or anything else that is no file."""
    handle = None
    try:
        with opened_folder(root, path) as folder:
            handle = os.open(path.rpartition("/")[2], flags | _FILE, dir_fd=folder)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise PathRefused(f"{printable_line(path)}: not a file.")
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as exc:
        raise refusal(path, exc) from exc
    try:
        yield handle
    finally:
        if handle is not None:
            os.close(handle)


def read_file(root: str, path: str, max_bytes: int | None = None) -> tuple[bytes, os.stat_result] | tuple[None, None]:
    """Return the bytes and the state of a file, None if there is none. Raise NoteTooLarge, also for one that grows."""
    with opened_file(root, path) as handle:
        if handle is None:
            return None, None
        # Before the bytes: a state of after them would hide an edit that came in between.
        state = os.fstat(handle)
        size = state.st_size
        if max_bytes is None or size <= max_bytes:
            with open(handle, "rb", closefd=False) as file:
                data = file.read(-1 if max_bytes is None else max_bytes + 1)
            if max_bytes is None or len(data) <= max_bytes:
                return data, state
            size = len(data)
        raise NoteTooLarge(f"{printable_line(path)}: {size:,} bytes, more than the limit of {max_bytes:,}.")


def find_state(root: str, path: str) -> os.stat_result | None:
    """Return the state of a file, or None if there is none. Raise PathRefused for a link, or what is no file."""
    try:
        with opened_folder(root, path) as folder:
            state = os.stat(path.rpartition("/")[2], dir_fd=folder, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        raise refusal(path, exc) from exc
    if stat.S_ISLNK(state.st_mode):
        raise PathRefused(f"{printable_line(path)}: symbolic links are not followed.")
    if not stat.S_ISREG(state.st_mode):
        raise PathRefused(f"{printable_line(path)}: not a file.")
    return state


def walk(
    root: str, prefix: str, choose: Choose | None = None, on_refused: OnRefused | None = None
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files whose path begins with a prefix, ordered by path. Links and temporary files are left out."""

    def refuse(path: str, exc: OSError) -> None:
        error = refusal(path or root, exc)
        if on_refused is None:
            raise error from exc
        on_refused(path, error)

    folders = [iter(_list_folder(root, prefix.rpartition("/")[0], choose, refuse))]
    while folders:
        for path, state in folders[-1]:
            if state is not None:
                if path.startswith(prefix):
                    yield path, state
            elif path.startswith(prefix) or prefix.startswith(path + "/"):
                folders.append(iter(_list_folder(root, path, choose, refuse)))
                break
        else:
            folders.pop()


_Entry = tuple[str, os.stat_result | None]
"""Path of a file with its state, or of a folder without one."""


def _list_folder(root: str, folder: str, choose: Choose | None, refuse: Callable[[str, OSError], None]) -> list[_Entry]:
    """Return the files and folders in a folder, sorted."""
    lead, entries = f"{folder}/" if folder else "", list[_Entry]()
    try:
        if len(folder) > MAX_PATH_BYTES:  # it could be opened part by part, but not by other programs
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        with opened_folder(root, f"{lead}.") as handle:  # opened again: a handle of O_PATH cannot be listed
            listing = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=handle)
        try:
            by_name = {entry.name: entry for entry in os.scandir(listing)}
            if lead == _OWN_PARENT:
                by_name.pop(_OWN_NAME, None)
            folders = {name: entry.is_dir(follow_symlinks=False) for name, entry in by_name.items()}
            for name in folders if choose is None else choose(folder, folders):
                if folders[name]:
                    entries.append((lead + name, None))
                    continue
                try:  # through the handle of the folder, so that no link can redirect it
                    state = by_name[name].stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                except OSError as exc:
                    refuse(lead + name, exc)
                    continue
                if stat.S_ISREG(state.st_mode) and not is_temporary(name):
                    entries.append((lead + name, state))
        finally:
            os.close(listing)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as exc:
        refuse(folder, exc)
        return []
    # "a.md" before "a/b.md", as the whole paths are ordered.
    return sorted(entries, key=lambda entry: entry[0] if entry[1] else entry[0] + "/")


def refusal(path: str, error: OSError) -> WorkspaceError:
    if error.errno in (errno.ELOOP, errno.EMLINK):
        return PathRefused(f"{printable_line(path)}: symbolic links are not followed.")
    return WorkspaceError(f"{printable_line(path)}: cannot be read ({error.strerror}).")
