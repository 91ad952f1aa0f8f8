"""Generation requests: turns parameters into tasks, and the engine's events into responses."""
