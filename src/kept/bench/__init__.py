"""Measuring recall: sets of documents, queries and what is relevant go in, figures come out."""
