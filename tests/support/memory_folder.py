"""Prints the folder for the temporary files of the tests, if possible in memory: `-m tests.support.memory_folder`.

Most tests write durably and would wait for a disk. Nothing here has to survive a power cut, and a process that is
killed loses no more in memory than on a disk.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

SHM = "/dev/shm"
NEEDED_BYTES = 2 << 30


def find_memory_folder() -> str | None:
    """Return a folder in memory that has room and can contain programs. In a container it often has 64 MB."""
    try:
        if shutil.disk_usage(SHM).free < NEEDED_BYTES:
            return None
        with tempfile.TemporaryDirectory(dir=SHM) as folder:
            program = Path(folder, "program")
            program.write_text("#!/bin/sh\n")
            program.chmod(0o700)
            subprocess.run([program], check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return SHM


if __name__ == "__main__":
    print(find_memory_folder() or tempfile.gettempdir())
