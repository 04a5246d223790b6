"""Try to escape from a workspace by swapping a folder for a link: python -m benchmarks.swap [--tries 100000]

One process swaps a folder for a link to a folder outside and back, as fast as it can. Meanwhile this process reads a
note in that folder, appends to it, creates notes, scans the workspace and rebuilds the index. It must never see or
change anything outside.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path

from kept import KeptError, Memory

SECRET = "zanzibar"
MARK = "only-outside"
NOTE = "memory/box/inner/note.md"
NEW = "memory/box/inner/new-{number}.md"
SWAPS_AT_ONCE = 100
AT_FDCWD, RENAME_EXCHANGE = -100, 2


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.swap", description=__doc__)
    parser.add_argument("--tries", type=int, default=100_000, help="number of operations (default: 100,000)")
    tries = parser.parse_args().tries
    with tempfile.TemporaryDirectory(
        prefix="kept-swap-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None
    ) as folder:
        place = lay_out(Path(folder))
        started = time.perf_counter()
        outcomes, swaps = attack(place, tries)
        took_s = time.perf_counter() - started
    print(table(outcomes))
    escapes = sum(counts["escaped"] for counts in outcomes.values())
    print(f"\n{tries:,} tries during {swaps:,} swaps in {took_s:.0f} s: {escapes:,} escapes.")
    raise SystemExit(1 if escapes else 0)


def lay_out(folder: Path) -> Path:
    for root, word in (("workspace/memory/box", "lighthouse"), ("outside", SECRET)):
        write(folder / root / "inner/note.md", f"{word}\n")
    write(folder / "outside/inner" / f"{MARK}.md", SECRET)
    return folder


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def attack(place: Path, tries: int) -> tuple[dict[str, Counter[str]], int]:
    context = multiprocessing.get_context("fork")
    stop, swaps = context.Event(), context.Value("q", 0)
    swapper = context.Process(target=swap_until, args=(place, stop, swaps), daemon=True)
    swapper.start()
    try:
        return attempt(place, tries), swaps.value
    finally:
        stop.set()
        swapper.join()


def swap_until(place: Path, stop: Event, swaps: object) -> None:
    """Swap atomically with RENAME_EXCHANGE (Linux only), so that the name always exists, as a folder or as a link."""
    libc = ctypes.CDLL(None, use_errno=True)
    box = place / "workspace/memory/box"
    link = box.with_name("aside")
    link.symlink_to(place / "outside")
    arguments = (AT_FDCWD, os.fsencode(box), AT_FDCWD, os.fsencode(link), RENAME_EXCHANGE)
    while not stop.is_set():
        for _ in range(SWAPS_AT_ONCE):
            if libc.renameat2(*arguments) != 0:
                raise OSError(ctypes.get_errno(), "renameat2")
        swaps.value += SWAPS_AT_ONCE  # type: ignore[attr-defined]


def attempt(place: Path, tries: int) -> dict[str, Counter[str]]:
    """Of 1,000 tries, 800 read, 150 write, 49 scan for notes and one rebuilds the index."""
    outside = place / "outside"
    before = tree_of(outside)
    outcomes: dict[str, Counter[str]] = {name: Counter() for name in ("read", "append", "create", "scan", "rebuild")}
    settings = {"memory_search.provider": "none"}
    with Memory.open(place / "workspace", home=place / "home", settings=settings) as memory:
        for number in range(tries):
            name, operation = choose(memory, number)
            outcome, seen = outcome_of(operation)
            if SECRET in seen or MARK in seen or (name in ("append", "create") and tree_of(outside) != before):
                outcome = "escaped"
                before = tree_of(outside)
            outcomes[name][outcome] += 1
            if name == "rebuild" and SECRET.encode() in index_of(place):
                outcomes[name]["escaped"] += 1
                memory.close()
                for path in place.glob("home/agents/main/index.sqlite*"):
                    path.unlink()
    return outcomes


def choose(memory: Memory, number: int) -> tuple[str, Callable[[], object]]:
    at = number % 1_000
    if at == 999:
        return "rebuild", lambda: memory.sync(force=True)
    if at >= 950:
        return "scan", memory.index_service.scan
    if at >= 900:
        return "create", lambda: memory.add("harbour", to=NEW.format(number=number % 20))
    if at >= 800:
        return "append", lambda: memory.add("harbour", to=NOTE)
    return "read", lambda: memory.read(NOTE)


def outcome_of(operation: Callable[[], object]) -> tuple[str, str]:
    try:
        return "done", str(operation())
    except KeptError as error:
        return error.code, error.message


def tree_of(folder: Path) -> dict[str, int]:
    return {entry.name: entry.stat().st_size for entry in os.scandir(folder / "inner")}


def index_of(place: Path) -> bytes:
    return b"".join(path.read_bytes() for path in place.glob("home/agents/main/index.sqlite*"))


def table(outcomes: dict[str, Counter[str]]) -> str:
    kinds = sorted({kind for counts in outcomes.values() for kind in counts} - {"done", "escaped"})
    columns = ["done", *kinds, "escaped"]
    lines = [f"| operation | {' | '.join(columns)} |", f"|---|{'--:|' * len(columns)}"]
    for name, counts in outcomes.items():
        lines.append(f"| {name} | {' | '.join(f'{counts[kind]:,}' for kind in columns)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
