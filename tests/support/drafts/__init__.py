"""Saved states for tests: layouts, corpora, damaged ones."""
