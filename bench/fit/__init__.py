"""Measures how well the memory of a model is estimated, and compares --fit with llama-server."""
