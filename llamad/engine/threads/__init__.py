"""The threads beside the engine thread: samplers, grammars, and rows of logits as they arrive."""
