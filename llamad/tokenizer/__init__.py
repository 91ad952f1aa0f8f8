"""The vocabulary: texts to tokens and back, for the endpoints and the engine. Any thread."""
