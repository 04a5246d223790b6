"""The search index: one SQLite file, all of it derived. The only package that speaks SQL for the index."""
