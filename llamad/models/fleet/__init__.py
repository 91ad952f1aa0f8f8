"""Many models in one daemon: which of them are loaded, and which request waits for which."""
