"""What goes into the next batch: decode tokens, prefill chunks, padding. Engine thread."""
