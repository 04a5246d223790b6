"""Text to words, the same for notes that are indexed and for queries. Pure.

`segment` turns a text into what the full-text index stores. On the way `folding` reduces each letter to its plainest
form, and `identifiers` splits names such as `getUserName`. `stopwords` lists the words that a query does not look for.
"""
