"""Finds what a slot need not prefill of a prompt: prefixes, checkpoints, copies. Runs in the engine thread."""
