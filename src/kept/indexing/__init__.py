"""From files to the index, and from a query to hits.

`service` is the entry: it locks, heals, syncs and searches the index that `index_handle` opens. A sync passes through
`sources` (lists and reads files), `note_rows` and `transcripts` (texts to rows), `vectorise` (chunks to vectors;
`batch_runner` and `batch_book` for a provider's batch API), `sync_planner` (compares) and `sync` (writes).
`browse` lists what is there without a query, `status` reports.
"""
