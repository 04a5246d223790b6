"""Measures recall: how often a search returns a passage that answers a query.

`dataset` reads a set, `layout` writes its documents to disk, `query_runner` asks its queries in every variant and
`metrics` judges the hits. `measurement` does all of it. `starter` makes a set of the user's own notes.
"""
