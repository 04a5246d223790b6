"""Names that methods of a memory had before they moved to one of its parts.

They still work, but neither `dir` nor `help` lists them. Use the present names in new code.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

EARLIER_NAMES = {
    "changes": "history.changes",
    "diff": "history.diff",
    "undo": "history.undo",
    "recorder": "history.open_recorder",
    "plan_forget": "forgetting.plan",
    "forget": "forgetting.apply",
    "finish_forget": "forgetting.finish",
    "tags": "notes.tags",
    "links": "notes.links",
    "broken_links": "notes.broken_links",
    "find_project": "notes.find_project",
    "seen_by": "as_person",
}
"""Present name by earlier name."""


class EarlierNames:
    """Forwards every earlier name to the present one."""

    if TYPE_CHECKING:
        changes: Callable[..., Any]
        diff: Callable[..., Any]
        undo: Callable[..., Any]
        recorder: Callable[..., Any]
        plan_forget: Callable[..., Any]
        forget: Callable[..., Any]
        finish_forget: Callable[..., Any]
        tags: Callable[..., Any]
        links: Callable[..., Any]
        broken_links: Callable[..., Any]
        find_project: Callable[..., Any]
        seen_by: Callable[..., Any]
    else:

        def __getattr__(self, name: str) -> Any:
            if name in EARLIER_NAMES:
                return attrgetter(EARLIER_NAMES[name])(self)
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'", name=name, obj=self)
