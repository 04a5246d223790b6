"""The search index: one SQLite file, derived from notes and transcripts. The only package with SQL for the index.

`index` opens the file and holds three parts: `generation` (files and chunks, with their vectors in `vectors`), `words`
(full-text search) and `cache` (embeddings, kept across rebuilds). `kernels` compares packed vectors. `integrity` finds
damage, and `repair` mends a file or salvages its embeddings into a new one.
"""
