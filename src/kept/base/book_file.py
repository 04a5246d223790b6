"""A small JSON file that is derived from nothing, and that several processes read and change."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from kept.base.damaged_records import Fault, set_file_aside
from kept.base.durable import make_private_folder, write_atomic
from kept.base.file_lock import locked
from kept.base.json_values import read_value, to_tree
from kept.base.limits import strict_json
from kept.errors import KeptError, WriteFailed

T = TypeVar("T")

VERSION = 1
_LOCK_WAIT_S = 10.0


class BookFile(Generic[T]):
    """File of a value of the class ``kind``. Every change locks and reads it first.

    Records in it are read one by one, so one that is damaged costs only itself. A record may refuse itself in a method
    ``check``, which raises ValueError or a KeptError. ``purpose`` completes "Another process is …".
    """

    def __init__(self, path: str, kind: type[T], *, purpose: str) -> None:
        self.path = path
        self.faults: list[Fault] = []
        """What the last reading left out, and why."""
        self.copies: list[str] = []
        """Copies of the damaged file, which changes made."""
        self._kind = kind
        self._purpose = purpose

    def exists(self) -> bool:
        return os.path.exists(self.path)

    def read(self) -> T:
        """Return what can be read. Reading changes nothing, even if the file is damaged."""
        return self._read(self._content())

    def change(self, change: Callable[[T], T]) -> T:
        """Change the value and return it. A damaged file is copied first."""
        make_private_folder(os.path.dirname(self.path))
        with locked(f"{self.path}.lock", wait_s=_LOCK_WAIT_S, purpose=self._purpose):
            content = self._content()
            before = self._read(content)
            after = change(before)
            if self.faults:
                self.copies.append(set_file_aside(self.path, content or b""))
            if after != before or self.faults:
                write_atomic(self.path, dump_book(after))
            return after

    def _content(self) -> bytes | None:
        try:
            with open(self.path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise WriteFailed(f"{self.path}: cannot be read ({exc.strerror}).", hint="Check its permissions.") from exc

    def _read(self, content: bytes | None) -> T:
        self.faults = []
        if content is None:
            return self._kind()
        try:
            tree = strict_json.decode(content.decode("utf-8"))
        except (ValueError, RecursionError):
            tree = None
        if not isinstance(tree, dict) or tree.get("version") != VERSION:
            self._report("it is not JSON of this version")
            return self._kind()
        hints = get_type_hints(self._kind)
        values = {spec.name: self._read_field(spec.name, hints[spec.name], tree) for spec in fields(self._kind)}  # type: ignore[arg-type]
        return self._kind(**{name: value for name, value in values.items() if value is not None})

    def _read_field(self, name: str, hint: Any, tree: dict[str, Any]) -> Any:
        if get_origin(hint) is not tuple:
            return self._read_part(name, hint, tree.get(name))
        listed = tree.get(name, [])
        if not isinstance(listed, list):
            self._report(f"its {name} are not a list")
            return None
        noun = name.removesuffix("s")
        parts = (self._read_part(f"{noun} {at}", get_args(hint)[0], part) for at, part in enumerate(listed, 1))
        return tuple(part for part in parts if part is not None)

    def _read_part(self, name: str, hint: Any, tree: Any) -> Any:
        try:
            value = read_value(hint, tree)
            if hasattr(value, "check"):
                value.check()
        except (ValueError, KeptError) as exc:
            self._report(f"{name} cannot be read" + (f": {exc.message}" if isinstance(exc, KeptError) else ""))
            return None
        return value

    def _report(self, reason: str) -> None:
        self.faults.append(Fault(self.path, None, reason))


def dump_book(book: Any) -> bytes:
    """Return the content of a file with this value."""
    return json.dumps({"version": VERSION, **to_tree(book)}, ensure_ascii=False, indent=1).encode() + b"\n"
