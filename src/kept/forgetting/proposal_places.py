"""Proposals of agents, and changes that wait for review, in `.kept/proposals` of the workspace."""

from __future__ import annotations

import os

from kept.durable import erase_file
from kept.forgetting.needles import Matcher
from kept.forgetting.order import ForgetOrder, ScrubResult
from kept.forgetting.places import Place
from kept.forgetting.record_files import find_in_file
from kept.review.review_folder import ReviewFolder
from kept.workspace.workspace import Workspace


def find_in_proposals(workspace: Workspace, matcher: Matcher) -> list[Place]:
    """Return a place for each item that has something to forget."""
    places: list[Place] = []
    for path in ReviewFolder(workspace).paths():
        places += find_in_file(path, matcher, "proposal", os.path.relpath(path, workspace.root))
    return places


class ProposalStore:
    """Removes items that match: without its text, a proposal is worth nothing."""

    name = "proposals"

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def scrub(self, order: ForgetOrder) -> ScrubResult:
        matcher, result = Matcher(order.needles), ScrubResult()
        places = find_in_proposals(self.workspace, matcher)
        if not places:
            return result
        with ReviewFolder(self.workspace).locked():
            for place in find_in_proposals(self.workspace, matcher):
                erase_file(os.path.join(self.workspace.root, place.path))
                result += ScrubResult(removed=1)
        return result
