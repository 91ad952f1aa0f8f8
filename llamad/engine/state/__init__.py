"""The engine's whole state, and the decode that is made for its side effect alone. Engine thread."""
