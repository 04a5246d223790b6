"""Tests of kept.forgetting."""
