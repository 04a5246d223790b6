"""The neighbourhood of a note as a picture and a list: links, backlinks, and notes with the same rare tags."""

from __future__ import annotations

from starlette.responses import Response

from kept.memory import Memory
from kept.search.note_links import LinkResolver
from kept.store.generation import Generation
from kept.web.note_graph import Neighbour, NoteGraph, choose_neighbours, draw_graph
from kept.web.visit import Page, Screen, Visit


def show_graph(visit: Visit) -> Response:
    links = visit.memory.links(visit.path["path"])
    graph, degraded = load_graph(visit.memory, links.path)
    return visit.render(
        "graph.html",
        path=links.path,
        title=links.title or links.path,
        graph=graph,
        degraded=degraded,
    )


def load_graph(memory: Memory, path: str) -> tuple[NoteGraph, tuple[str, ...]]:
    """Return the picture of a note and its neighbours, and problems of the index."""
    links = memory.links(path)
    outgoing = [link.resolved for link in links.outgoing if link.resolved and link.resolved != path]
    incoming = [link.path for link in links.incoming]

    def read(live: Generation) -> NoteGraph:
        tagged = {
            tag: [other for other in live.notes.paths_tagged(tag) if other != path] for tag in live.notes.tags_of(path)
        }
        paths = {*outgoing, *incoming, *(other for others in tagged.values() for other in others)}
        titles = {other: live.notes.find_title(other) or "" for other in paths}
        neighbours, left_out = choose_neighbours(outgoing, incoming, tagged, titles)
        return draw_graph(neighbours, _links_between(live, neighbours), left_out)

    return memory.index_service.read(read)


def _links_between(live: Generation, neighbours: list[Neighbour]) -> list[tuple[str, str]]:
    resolver = LinkResolver(live.notes)
    paths = {neighbour.path for neighbour in neighbours}
    pairs = []
    for path in sorted(paths):
        for source, link in live.notes.links_from(path)[:200]:
            target = resolver.resolve(link, source)
            if target in paths and target is not None:
                pairs.append((min(path, target), max(path, target)))
    return list(dict.fromkeys(pairs))


SCREEN = Screen(name="graph", label="", home="", pages=(Page("/graph/{path:path}", show_graph),))
