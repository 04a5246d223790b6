"""Healing a damaged index: with a second look first, with as little loss as possible, and with a record of it."""

from __future__ import annotations

import logging
import os

from kept.database_files import delete_database, file_number, replace_damaged
from kept.errors import StoreDamaged
from kept.records import Heal
from kept.store.index import Index
from kept.store.integrity import FILE, Finding, check_file
from kept.store.mend import mend_in_place
from kept.store.salvage import salvage

log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())  # a command says it in its answer; without a handler Python would print it too

MENDED, REPLACED = "mended", "replaced"


def heal_index(path: str, damage: StoreDamaged, *, workspace: str | None, certain: bool = False) -> Heal | None:
    """Mend the index at a path. Return None where it is sound: then the connection that saw the damage was stale.

    The caller holds the index's lock, so nobody writes while this looks, and has closed its own connection. It is
    ``certain`` of the damage after a fresh connection has met it too.
    """
    findings = [Finding(FILE, damage.message)] if certain else _look_again(path)
    if not findings:
        log.info("%s Looked at again, the index is sound; nothing was changed.", damage.message)
        return None
    heal = _mend(path, findings) or _replace(path, workspace)
    reasons = "; ".join(dict.fromkeys(f"{finding.table}: {finding.problem}" for finding in findings[:3]))
    log.warning("%s %s (%s)", damage.message, describe(heal), reasons)
    return heal


def describe(heal: Heal) -> str:
    if heal.action == MENDED:
        return "It has been rebuilt from the notes; no embedding was lost."
    lost = f", {heal.lost} could not be read" if heal.lost else ""
    return f"It has been rebuilt from the notes; {heal.embeddings} embeddings were kept{lost}."


def _look_again(path: str) -> list[Finding]:
    if file_number(path) is None:
        return []  # deleted: opening it makes a new one
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
        saved = salvage(path, new, workspace=workspace)
        replace_damaged(path, new)
    finally:
        delete_database(new)
    return Heal(os.path.basename(path), REPLACED, times=1, embeddings=saved.embeddings, lost=saved.lost)
