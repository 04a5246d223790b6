"""Which file is whose: an agent may be used with more than one workspace, and indexes are never shared."""

from __future__ import annotations

import hashlib
import os

from kept.store.index import Index

_META_WORKSPACE = "workspace"


def likely_path(folder: str, workspace: str) -> str:
    """Where the index of a workspace is, as far as names tell."""
    own = _own_path(folder, workspace)
    return own if os.path.exists(own) else os.path.join(folder, "index.sqlite")


def open_index(folder: str, workspace: str) -> Index:
    """`index.sqlite` belongs to the first workspace an agent is used with; each other gets a file of its own."""
    index = Index(likely_path(folder, workspace))
    try:
        if _claim(index, workspace):
            return index
    except BaseException:
        index.close()
        raise
    index.close()
    other = Index(_own_path(folder, workspace))
    _claim(other, workspace)
    return other


def _own_path(folder: str, workspace: str) -> str:
    return os.path.join(folder, f"index-{hashlib.sha256(os.fsencode(workspace)).hexdigest()[:12]}.sqlite")


def _claim(index: Index, workspace: str) -> bool:
    """Whether the index is this workspace's. One that is nobody's becomes it."""
    owner = index.get_meta(_META_WORKSPACE)
    if owner is None:
        with index.writing():
            owner = index.get_meta(_META_WORKSPACE)
            if owner is None:
                index.put_meta(_META_WORKSPACE, workspace)
                owner = workspace
    return bool(owner == workspace)
