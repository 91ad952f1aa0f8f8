"""JSON to typed parameters; raises the 400s."""
