"""Decides what goes into the next batch: decode tokens, prefill chunks, padding. Runs in the engine thread."""
