"""The vocabulary: turns texts into tokens and back, for the endpoints and the engine. Any thread."""
