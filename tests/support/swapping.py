"""Run by test_paths.py in a process of its own, since an audit hook cannot be removed.

Repeats an operation on a workspace. In the n-th run, just before its n-th call that opens, lists, makes or renames
something, a part of the path becomes a link to a folder outside. So every moment between two calls is tried.
"""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from kept import KeptError, Memory
from kept.forgetting.forgetter import Removal
from kept.forgetting.needles import Needles
from kept.forgetting.plan import ForgetOrder, ForgetPlan, digest_of
from kept.forgetting.plan import Place as ForgetPlace
from kept.notes.adopt import adopt_notes
from kept.sessions.entries import Message
from kept.sessions.store import SessionStore

EVENTS = {"open", "os.listdir", "os.scandir", "os.mkdir", "os.rename", "os.remove", "os.truncate", "os.utime"}
SECRET = "zanzibar"
MARK = "only-outside"
LIMIT = 100_000
SETTINGS = {"memory_search.provider": "none"}
NOTE = "memory/box/note.md"
PARTS = ("memory", "memory/box", NOTE)


class Swap:
    """Swaps once, before the call whose number it was armed with."""

    def __init__(self) -> None:
        self.left = 0
        self.act: Callable[[], None] = lambda: None
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: object) -> None:
        if self.left and event in EVENTS:
            self.left -= 1
            if not self.left:
                self.act()

    def arm(self, number: int, act: Callable[[], None]) -> None:
        self.left, self.act = number, act

    def disarm(self) -> bool:
        """Whether it has swapped."""
        left, self.left = self.left, 0
        return left == 0


class Place:
    """A workspace, another to adopt from, a home, and what lies outside and has the same names."""

    def __init__(self, folder: Path) -> None:
        self.workspace, self.home = folder / "workspace", folder / "home"
        self.outside, self.other = folder / "outside", folder / "other"
        for root in (self.outside, self.other):
            write(root / NOTE, f"- {SECRET if root is self.outside else 'lighthouse'}\n- keeper\n")
        write(self.outside / "memory" / f"{MARK}.md", SECRET)
        write(self.outside / "memory/box" / f"{MARK}.md", SECRET)
        with SessionStore.open(home=self.home, settings=SETTINGS) as sessions:
            session = sessions.get_or_create("telegram", "1")
            sessions.append(session.id, Message.of("user", "lighthouse"))
            self.transcript = Path(sessions.config.paths.folder) / sessions.get(session.id).log
        said = self.transcript.read_text().replace("lighthouse", SECRET)
        write(self.outside / "transcript.jsonl", said)
        self.before = self.tree()
        self.reset()

    def reset(self) -> None:
        shutil.rmtree(self.workspace, ignore_errors=True)
        write(self.workspace / NOTE, "- lighthouse\n- keeper\n")

    def tree(self) -> dict[str, bytes | None]:
        return {str(path): path.read_bytes() if path.is_file() else None for path in self.outside.rglob("*")}

    def targets(self, operation: str, part: str) -> tuple[Path, Path]:
        """What is swapped, and what for."""
        if part == "transcript":
            return self.transcript, self.outside / "transcript.jsonl"
        return (self.other if operation == "adopt from" else self.workspace) / part, self.outside / part

    def escaped(self, told: str) -> bool:
        index = b"".join(path.read_bytes() for path in self.home.glob("agents/main/index.sqlite*"))
        notes = b"".join(path.read_bytes() for path in self.workspace.rglob("*.md"))
        seen = told.encode() + index + notes
        return SECRET.encode() in seen or MARK.encode() in seen or self.tree() != self.before


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def append(place: Place, memory: Memory) -> str:
    return str(memory.add("harbour", to=NOTE))


def create(place: Place, memory: Memory) -> str:
    return str(memory.add("harbour", to="memory/box/new/new.md"))


def read(place: Place, memory: Memory) -> str:
    return memory.read(NOTE).text


def get_transcript(place: Place, memory: Memory) -> str:
    return memory.read(f"sessions/{place.transcript.name}").text


def look(place: Place, memory: Memory) -> str:
    return str(memory.index_service.scan())


def index(place: Place, memory: Memory) -> str:
    return str(memory.sync(force=True))


def remove(place: Place, memory: Memory) -> str:
    cut = ForgetPlace("note", NOTE, f"{NOTE}#L2", "", digest_of("- keeper"), 2)
    plan = ForgetPlan("citation", (cut,), Needles())
    removal = Removal(memory.forgetting, ForgetOrder("1", memory.workspace.root, plan))
    removal.change_workspace()
    return str(vars(removal.outcome))


def adopt_into(place: Place, memory: Memory) -> str:
    return str(adopt_notes(memory.workspace, str(place.other), max_bytes=LIMIT))


OPERATIONS: dict[str, tuple[Callable[[Place, Memory], str], tuple[str, ...]]] = {
    "read": (read, PARTS),
    "get a transcript": (get_transcript, ("transcript",)),
    "append": (append, PARTS),
    "create": (create, PARTS[1:2]),
    "look": (look, PARTS),
    "index": (index, PARTS[1:2]),
    "remove": (remove, PARTS[1:]),
    "adopt into": (adopt_into, PARTS[1:2]),
    "adopt from": (adopt_into, PARTS[1:2]),
}


def run(swap: Swap, place: Place, memory: Memory, operation: str, part: str) -> tuple[int, list[int]]:
    """How many moments there were, and in which of them the operation escaped."""
    action = OPERATIONS[operation][0]
    path, target = place.targets(operation, part)
    aside = path.with_name("aside")

    def act() -> None:
        path.rename(aside)
        path.symlink_to(target)

    escapes = []
    for number in range(1, 1_000):
        place.reset()
        if operation.startswith("adopt"):
            (place.workspace / NOTE).unlink()
        swap.arm(number, act)
        try:
            told = action(place, memory)
        except KeptError as error:
            told = error.message
        if not swap.disarm():
            return number - 1, escapes
        path.unlink()
        aside.rename(path)
        if place.escaped(told):
            escapes.append(number)
    raise AssertionError(f"{operation} does not end")


def main() -> None:
    place, swap = Place(Path(sys.argv[1])), Swap()
    with Memory.open(place.workspace, home=place.home, settings=SETTINGS) as memory:
        memory.sync()
        outcomes = {
            f"{operation}: {part}": run(swap, place, memory, operation, part)
            for operation, (_, parts) in OPERATIONS.items()
            for part in parts
        }
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
