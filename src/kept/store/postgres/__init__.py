"""The index on PostgreSQL, for the machines of a team. Imported only if `memory_search.store.driver` is postgres.

The server gets stems, positions and vectors, and returns them. It does not rank: `listed_search` and `vector_scan` do,
as for SQLite, so the hits are the same. `index` opens the index of a workspace, `index_session` has its transactions,
`generation` its files and chunks, and `file_writer` writes them. `stems` makes stems of words, `posting_tables` stores
where they occur, and `words` reads that. `vectors`, `note_tables`, `file_list` and `filter_sql` are like the modules of
SQLite. `embeddings` is the cache of the team. `integrity` finds damage, `repair` repairs it, `scrub` removes deleted
text. `index_copy` copies an index to SQLite or from it, and compares their `index_contents`. `storable` replaces what
PostgreSQL cannot store. `workspace_name` names a workspace, and `offered_names` are names for completion.
"""
