"""Other programs that answer a search instead of Kept's own index.

`qmd` asks the program qmd and verifies its answers; `program` runs it within limits of time and output; `fallback`
answers from Kept's own index when qmd does not.
"""
