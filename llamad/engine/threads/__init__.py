"""The threads beside the engine thread: sampling, grammars, and arriving rows of logits."""
