"""The history of a workspace, as tests look at it."""

from pathlib import Path

from kept import Memory
from kept.forgetting.old_versions import iter_versions
from kept.notes.history.check import check_history
from kept.notes.history.note_history import NoteChange, NoteHistory
from kept.storage.files.file_storage import FileStorage

LONG_TEXT = "A long passage. " * 400


def changes_of(memory: Memory, path: str | None = None) -> list[NoteChange]:
    """Return the changes of a note, oldest first."""
    return list(memory.history.iter_changes(path=path))[::-1]


def versions_of(workspace: Path) -> list[tuple[str, bytes]]:
    """Return path and bytes of every version of every note."""
    return list(iter_versions(FileStorage(str(workspace))))


def history_files(tmp_path: Path) -> list[Path]:
    return sorted(path for path in (tmp_path / "workspace/.kept").rglob("*") if path.is_file())


def assert_sound(history: NoteHistory) -> None:
    """Every line and every version of a history can be read."""
    state = check_history(history)
    assert (state.torn, state.lost) == ((), 0)


def log_file(tmp_path: Path) -> Path:
    (path,) = (tmp_path / "workspace/.kept/history/changes").glob("*.jsonl")
    return path
