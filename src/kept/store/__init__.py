"""The search index, derived from notes and transcripts: one SQLite file. The only package with SQL for the index.

`index` opens the file; `embedding_cache` is the file of embeddings beside it. `generation` has the tables that a
rebuild replaces, with the vectors of chunks in `vectors`, and `file_list` lists its files. `rows` are the values.
`integrity` finds damage, `scrub` removes deleted text from the file.

`word_index` is the full-text search for `phrases`: `phrase_search` on disk with FTS5, `listed_search` in memory with
`word_lists` and `posting_lists`. `memo` keeps what was worked out until the index changes. `vector_scan` finds the
nearest vectors with the arithmetic of `vector_codes`. `filter_sql` is the SQL of a filter. `note_tables` has names,
tags and links, `name_list` the names for completion.
"""
