"""From a query to hits: words and meaning, fused into one score that can be explained.

`pipeline` runs a search. `query` parses the text into terms; `keyword`, `exact` and the vectors find candidates;
`evidence` measures each of them, and `fuse` adds the figures up with the numbers in `weights`. Then `query_dates` adds
for a period that the query names (with `date_words`), `rerank` asks a model, `confidence` makes scores comparable
between queries, `selection` chooses the hits, and `snippet` cuts the text that is shown. `date_filter` reads the dates
that limit a search.
"""
