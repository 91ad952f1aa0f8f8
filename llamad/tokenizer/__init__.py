"""The vocabulary: texts to tokens and back, for the front and the engine. Any thread."""
