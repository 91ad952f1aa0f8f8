"""Images and sound: turns files that clients send into embeddings that an engine reads."""
