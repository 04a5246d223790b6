"""From files to the index. It reads notes and transcripts, and writes one SQLite file, which can be thrown away. Start
at `sync_run`, where two processes that index at once take turns, and at `sqlite`, the tables; `postgres` has those of a
database.

A sync passes through `sources` (lists and reads files), `chunking` (texts to chunks), `note_rows` and `transcripts`
(texts to rows), `vectorise` (chunks to vectors; `batches` for a provider's batch API), `sync_planner` (compares) and
`sync_run` (writes, and records in the history what other programs changed). `workspace_index` opens the index and tells
whether files changed; `status` reports. `near_facts` finds notes that share words with a new fact.
"""
