"""The search index, derived from notes and transcripts: one SQLite file. The only package with SQL for the index.

`index` opens the file; `embedding_cache` is the file of embeddings beside it. `generation` has the tables that a
rebuild replaces, for files and chunks (`rows`), with `vectors` (their arithmetic is in `vector_codes`) and
`note_tables`; `file_list` lists its files, and `filter_sql` is the SQL of a filter. `word_index` is the full-text
search for `phrases`, and `word_lists` the same in memory; `quick_reads` finds notes without opening the rest.
`integrity` finds damage, `scrub` removes deleted text from the file.
"""
