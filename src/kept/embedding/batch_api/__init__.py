"""Batch APIs of providers: many texts in one file, cheaper, answered within hours.

`base` has the interface; `openai`, `voyage` and `gemini` implement it. `kept.embedding.registry` finds the API of an
embedder, and `kept.indexing` runs the jobs.
"""
