"""Healing a damaged index: checked again first, with as little loss as possible, and recorded."""

from __future__ import annotations

import logging
import os

from kept.errors import StoreDamaged
from kept.records import Heal
from kept.sqlite import delete_database, file_number, replace_damaged
from kept.store.index import Index
from kept.store.integrity import FILE, Finding, check_file
from kept.store.repair import mend_in_place, salvage

log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())  # a command reports it in its answer; without a handler Python would print it too

MENDED, REPLACED = "mended", "replaced"


def heal_index(path: str, damage: StoreDamaged, *, workspace: str | None, is_certain: bool = False) -> Heal | None:
    """Heal the index at a path. Return None if it is sound: then the connection that saw the damage was stale.

    The caller holds the index's lock, so no process writes during the check, and has closed its own connection.
    ``is_certain`` skips the check: a fresh connection has met the damage too.
    """
    findings = [Finding(FILE, damage.message)] if is_certain else _check(path)
    if not findings:
        log.info("%s Checked again, the index is sound; nothing was changed.", damage.message)
        return None
    heal = _mend(path, findings) or _replace(path, workspace)
    reasons = "; ".join(dict.fromkeys(f"{finding.table}: {finding.problem}" for finding in findings[:3]))
    log.warning("%s %s (%s)", damage.message, describe_heal(heal), reasons)
    return heal


def describe_heal(heal: Heal) -> str:
    if heal.action == MENDED:
        return "It has been rebuilt from the notes; no embedding was lost."
    lost = f", {heal.lost} could not be read" if heal.lost else ""
    return f"It has been rebuilt from the notes; {heal.embeddings} embeddings were kept{lost}."


def _check(path: str) -> list[Finding]:
    if file_number(path) is None:
        return []  # deleted: opening it creates a new one
    return check_file(path)


def _mend(path: str, findings: list[Finding]) -> Heal | None:
    try:
        index = Index(path)
    except StoreDamaged:
        return None
    try:
        return Heal(os.path.basename(path), MENDED, times=1) if mend_in_place(index, findings) else None
    finally:
        index.close()


def _replace(path: str, workspace: str | None) -> Heal:
    new = f"{path}.new"
    try:
        salvaged = salvage(path, new, workspace=workspace)
        replace_damaged(path, new)
    finally:
        delete_database(new)
    return Heal(os.path.basename(path), REPLACED, times=1, embeddings=salvaged.embeddings, lost=salvaged.lost)
