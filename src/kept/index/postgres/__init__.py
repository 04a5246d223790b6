"""The index of a workspace as rows of PostgreSQL, which finds candidates by word (GIN) and by meaning (pgvector).

The same code ranks them as those of SQLite. A search is three round trips at most: the words of the query, its
candidates, and what is shown around the hits. `generation` writes, `words` and `candidates` read, `index` opens.
"""
