from __future__ import annotations

import pytest

from kept.storage.files.file_storage import FileStorage
from kept.testing import MemoryStorage


@pytest.fixture(params=["files", "memory"])
def storage(request, tmp_path):
    return FileStorage(str(tmp_path / "root")) if request.param == "files" else MemoryStorage()
