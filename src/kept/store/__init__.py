"""The search index: one SQLite file, derived from notes and transcripts. The only package with SQL for the index.

`index` opens the file, with its cache of embeddings and full-text search; `generation` has the tables that a rebuild
replaces, with the vectors of chunks in `vectors`, and `file_list` lists its files. `integrity` finds damage, and
`repair` mends it in the file or salvages the embeddings into a new one.
"""
