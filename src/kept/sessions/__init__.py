"""Conversations that survive: transcripts in JSONL are canonical, the catalogue of them is derived.

The only package that speaks SQL for the catalogue.
"""
