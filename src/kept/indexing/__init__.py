"""From files to the index, and from a query to hits.

`service` is the entry: it locks, heals, syncs and searches the index that `index_handle` opens. A sync passes through
`sources` (scan), `planner` (what changed), `source_reader` and `prepare` (files to chunks), `vectorise` (chunks to
vectors; `batch_runner` and `batch_book` for a provider's batch API) and `sync_run` (writes). `index_freshness` avoids
scans, `healing` repairs a damaged index, `status` and `usage` report.
"""
