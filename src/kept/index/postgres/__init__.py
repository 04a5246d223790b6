"""The index of a workspace as rows of PostgreSQL, which finds candidates by word (GIN) and by meaning (pgvector).

The same code ranks them as those of SQLite, and finds the same. Start reading at `index`, which has the state and the
transactions. `generation` writes files and chunks; `words` (by `stems`), `vectors` and `notes` are read; `filter_sql`
is the condition of a filter, and `embeddings` the cache.
"""
