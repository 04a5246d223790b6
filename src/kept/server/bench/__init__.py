"""Measures recall: how often a search returns a passage that answers a query.

`sets` reads a set and writes its documents to disk; `measurement` asks its queries and judges the hits.
"""
