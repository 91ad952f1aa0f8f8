"""The engine's whole state, and decodes that are made only for their side effects. Runs in the engine thread."""
