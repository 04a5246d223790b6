"""Counts the bytes of the lines that are read from logs."""

from kept.storage.files.file_storage import FileLogs


class ReadCounter:
    """Stands between the logs of a storage and their readers."""

    def __init__(self, monkeypatch) -> None:
        self.read = 0
        for name in ("read", "read_back"):
            monkeypatch.setattr(FileLogs, name, self._counting(getattr(FileLogs, name)))

    def _counting(self, read):
        def counted(*args):
            for line in read(*args):
                self.read += len(line.data) + 1
                yield line

        return counted

    def take(self) -> int:
        """Return the bytes that were read since the last call."""
        read, self.read = self.read, 0
        return read
