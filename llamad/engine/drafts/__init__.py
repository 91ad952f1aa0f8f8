"""Drafts: guesses at the next tokens, which one step verifies together. Runs in the engine thread."""
