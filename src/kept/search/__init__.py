"""From a query to hits: words and meaning, fused into one score that can be explained.

`pipeline` runs a search. `query` parses the text into terms; `candidates` finds chunks by word and by meaning, and
measures the evidence for each; `exact` finds the literal text. `scores` adds the figures up with the numbers in
`weights` and explains each; `confidence` makes the sums of two queries comparable. In between, `query_dates` adds for a
period that the query names, and `rerank` asks a model. `selection` chooses the
hits and the text that is shown.

Times: `date_reader` reads expressions such as "last week" with the words in `date_words` and the calendar in `periods`;
`query_dates` also reads the dates that limit a search. `note_links` resolves the links between notes.

Words: `keywords` ranks by word, `expansion` adds other spellings. Order: `fact_validity` puts what holds before what
was replaced, `repetitions` lowers echoes and conflict copies, `whole_notes` judges long notes. For people:
`hit_display`.
"""
