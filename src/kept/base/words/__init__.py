"""Text to words, the same for notes that are indexed and for queries. Pure.

`segment` turns a text into what the full-text index stores. `stopwords` lists the words that a query does not look for,
and `equivalents` those that stand for each other.
"""
