"""What a slot has of a prompt without prefilling it: prefixes, checkpoints, copies. Engine thread."""
