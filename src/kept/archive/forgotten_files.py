"""Files of an archive with something that was forgotten here after it was made. A restore leaves them out.

The hashes of forgotten texts show which notes and conversations contain them. Old versions of notes are compressed and
depend on each other, so the history of notes from before a forget is left out as a whole.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from kept.archive.comparison import FileAction
from kept.archive.examination import ArchiveChain
from kept.archive.member_names import AGENTS, KEPT_FOLDER, NOTES
from kept.archive.restore_places import RestorePlaces
from kept.archive.tar_stream import TarMember, opened_archive
from kept.config.agent_paths import AgentPaths
from kept.sessions.forgotten_text import ForgottenText
from kept.workspace.opened import decode

_LARGEST_TEXT = 1 << 28
_HAS_TEXT = "it has something that you forgot here"
_OLD_HISTORY = "it is from before you forgot something here"
_OWN_HASHES = "what was forgotten here stays forgotten"


def leave_out_forgotten(
    chain: ArchiveChain, places: RestorePlaces, actions: Mapping[str, FileAction]
) -> dict[str, FileAction]:
    """Return the actions, with "forgotten" for files that would bring something back. Nothing is changed."""
    changed = dict(actions)
    texts = (_forgotten_since(chain, places, agent.name) for agent in places.agents)
    hashes = [forgotten for forgotten in texts if forgotten is not None]
    if not hashes:
        return changed
    names = {name for name, item in actions.items() if item.action in ("new", "updated", "differs")}
    for name in names:
        if reason := _find_reason(name):
            changed[name] = replace(actions[name], action="forgotten", reason=reason)
    for name, text in _iter_texts(chain, {name for name in names if changed[name].action != "forgotten"}):
        if any(forgotten.matches(text) for forgotten in hashes):
            changed[name] = replace(actions[name], action="forgotten", reason=_HAS_TEXT)
    return changed


def _forgotten_since(chain: ArchiveChain, places: RestorePlaces, agent: str) -> ForgottenText | None:
    """Return what an agent has forgotten here, or None if the archive was made after it."""
    path = AgentPaths(os.path.join(places.home, "agents", agent)).forgotten_hashes
    try:
        with open(path, "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
    except FileNotFoundError:
        return None
    archived = chain.newest.records.get(f"{AGENTS}/{agent}/{os.path.basename(path)}")
    return None if archived is not None and archived.sha256 == digest else ForgottenText(path)


def _find_reason(name: str) -> str:
    root, _, *below = name.split("/")
    if root == NOTES and below[:2] == [KEPT_FOLDER, "history"]:
        return _OLD_HISTORY
    return _OWN_HASHES if root == AGENTS and below == [os.path.basename(AgentPaths("").forgotten_hashes)] else ""


def _iter_texts(chain: ArchiveChain, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the text of each file, with its name."""
    by_archive: dict[str, set[str]] = {}
    for name in names:
        archive = chain.locate(name)
        if archive is not None and chain.newest.records[name].size <= _LARGEST_TEXT:
            by_archive.setdefault(archive.path, set()).add(name)
    for path, wanted in by_archive.items():
        with opened_archive(path) as reader:
            for member in reader.iter_members():
                if member.name in wanted:
                    yield member.name, f"{member.name}\n{_text_of(member)}"


def _text_of(member: TarMember) -> str:
    """Return the text of a file; of one with records, also every text in them, without escapes."""
    text = decode(b"".join(member.blocks()))[0]
    if not member.name.endswith((".json", ".jsonl")) or "\\" not in text:
        return text
    lines = [text] if member.name.endswith(".json") else text.split("\n")
    return "\n".join(text_inside for line in lines for text_inside in _texts_in(line))


def _texts_in(line: str) -> Iterator[str]:
    try:
        trees = [json.loads(line)]
    except (ValueError, RecursionError):
        yield line
        return
    while trees:
        tree = trees.pop()
        if isinstance(tree, str):
            yield tree
        elif isinstance(tree, list):
            trees += tree
        elif isinstance(tree, dict):
            trees += [*tree, *tree.values()]
