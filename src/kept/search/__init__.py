"""From a query to hits: words and meaning, fused into one score that can be explained. It reads the index and notes.
Start at `service`, which syncs the index and searches it, and at `pipeline`, which runs a search.

`query` parses the text into terms; `candidates` finds chunks by word and by meaning, and measures the evidence;
`scores` adds the figures up with the numbers in `weights`, explains each, and makes the sums of two queries comparable;
`grade_of` in `kept.base.records` says which sums are strong, likely or weak. In between, `query_dates` adds for a
period that the query names, and `reordering` lifts exact matches and long notes, and asks a model. `selection` chooses
the hits and the text that is shown.

Times: `date_reader` reads expressions such as "last week" with the words and the calendar in `date_words`;
`query_dates` also reads dates that limit a search. `expansion` adds other spellings of words. Order: `fact_validity`
puts what holds before what was replaced, `repetitions` lowers echoes and conflict copies. For people: `hit_display`.

Around a search: `memory_view` is what a memory finds and what a person, a group or a project may see, and chooses
between the index and another program (`qmd`); `browse` lists what is there without a query, reads what a path,
citation, day or title means, and answers about tags and links.
"""
