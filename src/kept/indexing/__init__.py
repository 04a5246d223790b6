"""From files to the index, and from a query to hits.

`service` is the entry: it locks, repairs, syncs and searches the index that `index_handle` opens. A sync passes through
`sources` (lists and reads files), `note_rows` and `transcripts` (texts to rows), `vectorise` (chunks to vectors;
`batch_runner` and `batch_book` for a provider's batch API), `sync_planner` (compares) and `sync` (writes).
`browse` lists what is there without a query, and reads what a path, citation, day or title means; `status` reports.

Two processes: `sync` writes under a lock on the index. The second process waits for it, and then plans again; a search
that waits too long answers from the index as it is.

Who sees what: `memory_view` has what a person or a group, or a memory that is bound to a project, may find and read.
Private notes are in memory/private.

`near_facts` finds lines that a new fact repeats or changes. `history_sync` records changes by other programs before
they are indexed.
"""
