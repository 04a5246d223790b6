"""The neighbourhood of a note as a picture and a list: links, backlinks, and notes with the same rare tags."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from starlette.responses import Response

from kept.base.listings import NoteLinks
from kept.base.values import frozen
from kept.memory import Memory
from kept.server.web.visit import Page, Screen, Visit

MOST_LINKED, MOST_SHARING = 24, 16
WIDTH, HEIGHT = 960, 680
_RADII = ((200.0, 150.0), (395.0, 285.0))
"""Radii of both rings."""
_TURNS = (0.08, 0.21)
"""How far each ring is turned, in parts of a circle: titles of dots in one line would be hard to read."""
_TITLE_CHARS = 26
_SIDE = 170
"""Room for titles on either side."""
_RARE_NOTES = 12
"""A tag that more notes have says little about any two of them."""

Relation = Literal["links to", "linked from", "both", "tag"]


@frozen
class Neighbour:
    path: str
    title: str
    relation: Relation
    detail: str = ""
    """Tags that both have."""


@frozen
class GraphNode:
    neighbour: Neighbour
    x: float
    y: float
    anchor: str
    """Side of the dot that its title is on: start, middle or end, as SVG names it."""
    label_x: float
    label_y: float
    label: str


def choose_neighbours(
    outgoing: Sequence[str], incoming: Sequence[str], shared: Mapping[str, Sequence[str]], titles: Mapping[str, str]
) -> tuple[list[Neighbour], int]:
    """Return the nearest notes, and how many were left out. ``shared`` has the other notes with each tag."""
    linked = list(dict.fromkeys((*outgoing, *incoming)))
    sharing: dict[str, list[str]] = {}
    for mark, paths in shared.items():
        if len(paths) <= _RARE_NOTES:
            for path in paths:
                sharing.setdefault(path, []).append(mark)
    others = sorted((path for path in sharing if path not in linked), key=lambda path: (-len(sharing[path]), path))
    neighbours = [
        Neighbour(path, titles.get(path) or path, _relation(path, outgoing, incoming), " ".join(sharing.get(path, ())))
        for path in linked[:MOST_LINKED]
    ]
    neighbours += [
        Neighbour(path, titles.get(path) or path, "tag", " ".join(sharing[path])) for path in others[:MOST_SHARING]
    ]
    return neighbours, len(linked) + len(others) - len(neighbours)


def _relation(path: str, outgoing: Sequence[str], incoming: Sequence[str]) -> Relation:
    if path in outgoing and path in incoming:
        return "both"
    return "links to" if path in outgoing else "linked from"


def draw_graph(neighbours: Sequence[Neighbour]) -> list[GraphNode]:
    """Place the neighbours on two rings."""
    rings = (
        [neighbour for neighbour in neighbours if neighbour.relation != "tag"],
        [neighbour for neighbour in neighbours if neighbour.relation == "tag"],
    )
    return [
        _place(neighbour, number / len(ring) + turn, radius)
        for ring, radius, turn in zip(rings, _RADII, _TURNS, strict=True)
        for number, neighbour in enumerate(ring)
    ]


def _place(neighbour: Neighbour, turn: float, radius: tuple[float, float]) -> GraphNode:
    angle = 2 * math.pi * turn - math.pi / 2
    across, down = math.cos(angle), math.sin(angle)
    x, y = WIDTH / 2 + radius[0] * across, HEIGHT / 2 + radius[1] * down
    anchor = "middle" if abs(across) < 0.35 else "start" if across > 0 else "end"
    label_x = x + (0 if anchor == "middle" else 12 if across > 0 else -12)
    label_y = y + (-14 if anchor == "middle" and down < 0 else 24 if anchor == "middle" else 5)
    title = neighbour.title
    label = title if len(title) <= _TITLE_CHARS else f"{title[: _TITLE_CHARS - 1]}…"
    return GraphNode(neighbour, round(x, 1), round(y, 1), anchor, round(label_x, 1), round(label_y, 1), label)


def show_graph(visit: Visit) -> Response:
    links = visit.memory.notes.links(visit.path["path"])
    neighbours, left_out = find_neighbours(visit.memory, links)
    return visit.render(
        "graph.html",
        path=links.path,
        title=links.title or links.path,
        nodes=draw_graph(neighbours),
        left_out=left_out,
        width=WIDTH,
        height=HEIGHT,
        side=_SIDE,
        degraded=links.degraded,
    )


def find_neighbours(memory: Memory, links: NoteLinks) -> tuple[list[Neighbour], int]:
    """Return the neighbours of a note, and how many were left out."""
    path = links.path
    outgoing = [link.resolved for link in links.outgoing if link.resolved and link.resolved != path]
    incoming = [link.path for link in links.incoming]
    with memory.index_service.inspecting() as (index, _), index.reading():
        notes = index.live.notes
        shared = {f"#{tag}": notes.paths_tagged(tag) for tag in notes.tags_of(path)}
        others = {mark: [other for other in paths if other != path] for mark, paths in shared.items()}
        paths = {*outgoing, *incoming, *(other for marked in others.values() for other in marked)}
        titles = {other: notes.find_title(other) or "" for other in paths}
    return choose_neighbours(outgoing, incoming, others, titles)


SCREEN = Screen(name="graph", label="", home="", pages=(Page("/graph/{path:path}", show_graph, "read"),))
