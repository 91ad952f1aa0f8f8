"""The helper threads of the engine thread: for sampling, grammars, and arriving rows of logits."""
