"""The search index, derived from notes and transcripts: one SQLite file. The only package with SQL for the index.

`index` opens the file; `embedding_cache` is the file of embeddings beside it. `generation` has the tables that a
rebuild replaces, for files and chunks (`rows`, with what a note says of itself) and `vectors`; `file_list` lists its
files, and `filter_sql` is the SQL of a filter. `word_index` is the full-text search, and `word_lists` the same in
memory. `integrity` finds damage, and removes deleted text from the file.
"""
