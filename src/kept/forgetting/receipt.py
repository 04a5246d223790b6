"""The receipt of a forget: places, counts, a salted hash, what is left and what could not be reached. It has no text
of what was forgotten."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from kept.config import Config
from kept.damaged_records import repair_end
from kept.durable import append_durably, make_private_folder
from kept.forgetting.byte_scan import ByteScan, LeftOver
from kept.forgetting.needles import Matcher
from kept.forgetting.order import ForgetOrder
from kept.limits import strict_json
from kept.values import frozen

_HIDDEN = "(a name that was forgotten)"
_MOST_PLACES = 1_000
_REMOTE = ("openai", "gemini", "voyage", "anthropic", "mistral")


@frozen
class ForgetReceipt:
    id: str
    at: str
    request: str
    """query, citation, meaning, session, person or before."""
    places: tuple[tuple[str, str], ...]
    """Kind and citation of each place."""
    removed: Mapping[str, int]
    """Number of changes by store, of the run that finished it."""
    salt: str
    sha256: str
    """Hash of the salt and what was removed. With the text, it can be shown to be the same."""
    files: int
    """Files that were searched afterwards."""
    size: int
    lines_searched: int
    left: tuple[LeftOver, ...]
    unreachable: tuple[str, ...]
    changed: tuple[str, ...] = ()
    """Places that had changed since they were shown, and were left alone."""
    is_finished: bool = True
    """False if a part has to be done again; the next command tries."""

    def counts(self) -> dict[str, int]:
        return dict(Counter(kind for kind, _ in self.places))


def hash_removed(salt: str, texts: Iterable[str]) -> str:
    digest = hashlib.sha256(bytes.fromhex(salt))
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()


def make_receipt_of(
    order: ForgetOrder,
    scan: ByteScan,
    *,
    at: str,
    removed: Mapping[str, int],
    changed: Sequence[str],
    unreachable: Sequence[str],
    is_finished: bool,
) -> ForgetReceipt:
    """Return the receipt, with names that were forgotten replaced in paths."""
    matcher = Matcher(order.needles)

    def hide(text: str) -> str:
        return _HIDDEN if _names(matcher, text) else text

    places = tuple((kind, hide(citation)) for kind, citation in order.places[:_MOST_PLACES])
    left = tuple(LeftOver(hide(file.path), file.count) for file in scan.left)
    unread = [f"{hide(path)}: cannot be read" for path in scan.unread]
    return ForgetReceipt(
        order.id,
        at,
        order.request,
        places,
        dict(removed),
        order.salt,
        order.sha256,
        scan.files,
        scan.size,
        scan.lines_searched,
        left,
        tuple(map(hide, dict.fromkeys((*unreachable, *unread)))),
        tuple(map(hide, changed)),
        is_finished,
    )


def _names(matcher: Matcher, text: str) -> bool:
    return matcher.matches(text) or matcher.matches(" ".join(text.replace("/", " ").replace("-", " ").split("_")))


def receipt_json(receipt: ForgetReceipt) -> dict[str, Any]:
    return {
        "id": receipt.id,
        "at": receipt.at,
        "request": receipt.request,
        "counts": receipt.counts(),
        "places": [{"kind": kind, "citation": citation} for kind, citation in receipt.places],
        "removed": dict(receipt.removed),
        "salt": receipt.salt,
        "sha256": receipt.sha256,
        "searched": {"files": receipt.files, "bytes": receipt.size, "lines": receipt.lines_searched},
        "left": [{"path": file.path, "count": file.count} for file in receipt.left],
        "unreachable": list(receipt.unreachable),
        "changed": list(receipt.changed),
        "finished": receipt.is_finished,
    }


def save_receipt(config: Config, receipt: ForgetReceipt) -> None:
    path = config.paths.forget_receipts
    make_private_folder(os.path.dirname(path))
    repair_end(path, lambda raw: raw.endswith(b"}"))
    append_durably(path, json.dumps(receipt_json(receipt), separators=(",", ":")).encode() + b"\n")


def read_receipts(config: Config) -> list[dict[str, Any]]:
    """Return the receipts of an agent, oldest first. A damaged line is skipped."""
    try:
        with open(config.paths.forget_receipts, "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    receipts = []
    for raw in lines:
        try:
            tree = strict_json.decode(raw.decode())
        except (ValueError, RecursionError):
            continue
        if isinstance(tree, dict) and isinstance(tree.get("id"), str):
            receipts.append(tree)
    return receipts


def list_unreachable(
    config: Config, workspace: str, sources: Iterable[str], channels: Collection[str] = ()
) -> list[str]:
    """Return where copies may be that Kept cannot reach. ``sources`` are files that conversations were imported from,
    ``channels`` those of the conversations."""
    reasons = [f"backups, snapshots and copies outside of {config.home} and {workspace}"]
    if folder := _find_git(workspace):
        reasons.append(f"the git history in {folder}, and where it was pushed to")
    reasons += (f"the original of an imported conversation: {source}" for source in dict.fromkeys(sources))
    providers = {config.memory_search.provider, config.memory_search.fallback, config.agent.model.provider or ""}
    remote = sorted(providers & set(_REMOTE))
    reasons += (f"what {provider} keeps of the requests that were sent to it" for provider in remote)
    if "telegram" in channels:
        reasons.append("messages in Telegram itself")
    if "discord" in channels:
        reasons.append("messages in Discord itself")
    reasons.append("conversations that a running program has in memory, until it ends")
    return reasons


def _find_git(workspace: str) -> str | None:
    folder = workspace
    while folder != os.path.dirname(folder):
        if os.path.exists(os.path.join(folder, ".git")):
            return folder
        folder = os.path.dirname(folder)
    return None
