"""Add two facts, search for one of them, and read the cited lines.

Run: python examples/remember_and_recall.py
"""

from __future__ import annotations

import tempfile

from kept import Memory


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Memory.open(f"{folder}/notes", home=folder, create=True) as memory:
        memory.add("The staging database moved to port 5433.")
        memory.add("Ada prefers tea over coffee.", to="memory")

        result = memory.search("which port is the staging database on?")
        for hit in result:
            print(f"{hit.score:.2f} {hit.citation}: {hit.snippet.splitlines()[-1]}")

        best = result.hits[0]
        passage = memory.read(best.path, start=best.start_line, lines=best.end_line - best.start_line + 1)
        print(passage.text)


if __name__ == "__main__":
    main()
