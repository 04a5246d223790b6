"""The neighbourhood of a note as a picture and a list: links, backlinks, and notes with the same rare tags or names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from kept.memory import Memory
from kept.search.note_links import LinkResolver
from kept.web.note_graph import Neighbour, NoteGraph, choose_neighbours, draw_graph, find_names
from kept.web.visit import Page, Screen, Visit
from kept.workspace.note_edit import read_whole

if TYPE_CHECKING:
    from kept.store.generation import Generation
    from kept.store.word_index import WordIndex

_RARE_PASSAGES = 12
"""A name in more passages says little about any two of them."""
_MOST_NAMES = 10


def show_graph(visit: Visit) -> Response:
    links = visit.memory.notes.links(visit.path["path"])
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
    links = memory.notes.links(path)
    outgoing = [link.resolved for link in links.outgoing if link.resolved and link.resolved != path]
    incoming = [link.path for link in links.incoming]
    names = find_names(read_whole(memory.workspace, path, max_bytes=memory.settings.max_file_bytes).note.text)
    with memory.index_service.inspecting() as (index, _), index.reading():
        notes = index.live.notes
        shared = {f"#{tag}": notes.paths_tagged(tag) for tag in notes.tags_of(path)} | notes_by_name(index.words, names)
        others = {mark: [other for other in paths if other != path] for mark, paths in shared.items()}
        paths = {*outgoing, *incoming, *(other for marked in others.values() for other in marked)}
        titles = {other: notes.find_title(other) or "" for other in paths}
        neighbours, left_out = choose_neighbours(outgoing, incoming, others, titles)
        graph = draw_graph(neighbours, _links_between(index.live, neighbours), left_out)
    return graph, links.degraded


def notes_by_name(words: WordIndex, names: list[str]) -> dict[str, list[str]]:
    """Return the notes that have each name, of the rarest names that more than one passage has."""
    stems = {stems[0]: name for name in reversed(names) if len(stems := words.stems(name)) == 1}
    counts = words.document_frequencies(stems)
    rare = sorted((stem for stem in stems if 1 < counts.get(stem, 0) <= _RARE_PASSAGES), key=counts.__getitem__)
    return {stems[stem]: words.notes_with(stem, limit=_RARE_PASSAGES) for stem in rare[:_MOST_NAMES]}


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


SCREEN = Screen(name="graph", label="", home="", pages=(Page("/graph/{path:path}", show_graph, "read"),))
